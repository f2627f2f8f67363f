"""autograd.Function: a user's own forward and backward."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from ..core import modes
from ..core.absent import absent_class
from ..core.aliases import Values
from ..core.batched import BatchedTensor
from ..core.graph import RETRY_MESSAGE, Node, SavedTensor, grad_mode, gradient_edge, raw_value, unrecorded
from ..core.tensor import Tensor, empty
from ..ops.creation.filled import fill_raw
from ..ops.machinery.inplace import check_history_writable, rebase_history
from .duals import has_tangent
from .function_forward import Transposed, apply_forwards


class FunctionCtx:
    """The argument `ctx` of forward and backward."""

    def __init__(self) -> None:
        self.materialize_grads = True
        self.needs_input_grad: tuple[bool, ...] = ()
        self._to_save: tuple[Any, ...] = ()
        self._dirty: tuple[Any, ...] = ()
        self._non_differentiable: tuple[Any, ...] = ()
        self._node: FunctionNode | None = None
        self._for_forward: tuple[Any, ...] = ()
        self._pushing_forward = False  # while jvp runs
        self._spent = False

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors for backward; they are checked for in-place changes when they are read."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument is of type {type(t).__name__}"
                )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        self._for_forward = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Mark the inputs that forward changed in place."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Mark the outputs that have no gradient."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether backward gets zeros (True) or None for outputs without a gradient."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        if self._pushing_forward:
            return self._for_forward
        node = self._node
        if node is None:
            return self._to_save
        if node.saved is None:
            raise RuntimeError(_SPENT_MESSAGE if self._spent else RETRY_MESSAGE)
        found = tuple(s.unpack(node) if isinstance(s, SavedTensor) else s for s in node.saved)
        if node.cls.clear_saved_tensors_on_access:
            node.saved, self._spent = None, True
        return found

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors


_SPENT_MESSAGE = "ctx.saved_tensors can only be accessed once where clear_saved_tensors_on_access is set. Keep what it returned instead."


class FunctionNode(Node):
    """The recorded call of a user's Function."""

    __slots__ = ("ctx", "cls", "positions", "inputs")

    ctx: FunctionCtx
    cls: Any
    positions: list[int]  # which forward arguments were tensors
    inputs: list[tuple[Any, ...]]  # their shapes, dtypes and devices, where there is a jvp that may ask

    def apply(self, grads: list[Any]) -> tuple[Any, ...]:
        ctx = self.ctx
        if self.saved is None:
            raise RuntimeError(RETRY_MESSAGE)
        if ctx.materialize_grads:
            grads = [_zeros(info) if g is None and info is not None else g for g, info in zip(grads, self.output_info)]
        rule = _reverse_rule(self.cls)
        result = rule(ctx, list(grads)) if self.cls.boxed_grads_call else rule(ctx, *grads)
        given = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        expected = len(ctx.needs_input_grad)
        while len(given) > expected and given[-1] is None:
            given = given[:-1]
        if len(given) != expected:
            raise RuntimeError(
                f"function {self.label} returned an incorrect number of gradients (expected {expected}, got {len(given)})"
            )
        shares = [given[i] for i in self.positions]
        for share in shares:
            if share is not None and not isinstance(share, Tensor):
                raise RuntimeError(
                    f"function {self.label} returned {type(share).__name__} instead of a Tensor or None gradient"
                )
        return tuple(self.fitted(i, share) for i, share in enumerate(shares))

    def linear(self, grads: list[Any]) -> tuple[Any, ...] | None:
        if self.cls.jvp is Function.jvp or not any(g is not None and g.requires_grad for g in grads):
            return None
        row = Transposed(self, grads)
        return tuple(None if edge is None else row.share(k) for k, edge in enumerate(self.edges))

    def fitted(self, index: int, share: Tensor | None) -> Tensor | None:
        """Sum a gradient of broadcast shape down to the input's shape; a gradient that is not needed may have any shape."""
        shape = self.extra[index]
        if share is None or share.shape == shape or self.edges[index] is None:
            return share
        try:
            return share.sum_to_size(shape)
        except RuntimeError:
            raise RuntimeError(
                f"Function {self.label} returned an invalid gradient at index {index} - got {list(share.shape)} but"
                f" expected shape compatible with {list(shape)}"
            ) from None

    def __getattr__(self, name: str) -> Any:
        """Read an attribute that forward set on its ctx: in PyTorch the node of a Function is its ctx."""
        if name in FunctionNode.__slots__ or name.startswith("__"):
            raise AttributeError(name)
        if name == "_raw_saved_tensors":
            if self.saved is None:
                raise RuntimeError(RETRY_MESSAGE)
            return raw_value(self.saved)
        return getattr(self.ctx, name)

    def __repr__(self) -> str:
        return f"<{__name__}.{self.label} object at {id(self):#x}>"


def _zeros(info: Values) -> Tensor:
    shape, d, where = info
    return fill_raw(empty(shape, d, where), 0)


class Function:
    """Subclass with static methods `forward(ctx, ...)` and `backward(ctx, *grads)`, call with `.apply(...)`.

    >>> class Square(flambeau.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return 2 * x * g
    """

    generate_vmap_rule = False
    boxed_grads_call = False  # whether backward gets its gradients as one list, which it may clear to free them early
    clear_saved_tensors_on_access = False  # whether ctx.saved_tensors releases the tensors that it returns
    _backward_cls: type

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        label = cls.__name__ + "Backward"
        cls._backward_cls = type(label, (FunctionNode,), {"__module__": cls.__module__, "label": label})

    def __init__(self, *args: Any, **kwargs: Any):
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should invoke them"
            " on the class itself. Instantiating an autograd function will raise an error in a future version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function with"
            " static forward method."
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward"
            " mode AD."
        )

    vjp = backward  # another name for it: a Function has one of them

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        raise NotImplementedError("vmap is not implemented: to use autograd.Function with vmap, define it.")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs or cls.setup_context is not Function.setup_context:
            args = _positional(cls, args, kwargs)
        if modes.active and modes.own.stack:
            if any(isinstance(a, BatchedTensor) for a in args):
                return _apply_batched(cls, args)
            if has_tangent(args):
                return apply_forwards(cls, FunctionCtx(), args)
            found = modes.own.stack[-1].handle_function(cls, args)
            if found is not NotImplemented:
                return found
        return cls._call(FunctionCtx(), args)

    @classmethod
    def _call(cls, ctx: FunctionCtx, args: Values) -> Any:
        """Run forward, and record the call if a gradient flows."""
        positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        recording = grad_mode.enabled and any(ctx.needs_input_grad)
        edges = tuple(gradient_edge(args[i]) for i in positions) if recording else ()
        before, grad_mode.enabled = grad_mode.enabled, False
        try:
            if cls.setup_context is not Function.setup_context:
                result = cls.forward(*args)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args)
        finally:
            grad_mode.enabled = before
        if ctx._dirty:
            _check_dirty(ctx, args, result)
        if recording:
            return cls._record(ctx, args, positions, edges, result)
        if grad_mode.enabled:
            for out in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(out, Tensor) and out._base is not None and not any(out is a for a in args):
                    _mark_as_view(out, out)
        return result

    @classmethod
    def _record(cls, ctx: FunctionCtx, args: Values, positions: list[int], edges: Values, result: Any) -> Any:
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        node: Any = cls._backward_cls(cls._backward_cls.__name__, edges)
        node.cls, node.ctx, node.positions = cls, ctx, positions
        node.extra = tuple(args[i].shape for i in positions)
        if cls.jvp is not Function.jvp:
            node.inputs = [(args[i].shape, args[i].dtype, args[i].device) for i in positions]
        node.output_count = len(outputs)
        node.output_info = tuple((o.shape, o.dtype, o.device) if isinstance(o, Tensor) else None for o in outputs)
        inputs = {id(a) for a in args if isinstance(a, Tensor)}
        dirty = {id(t) for t in ctx._dirty}
        for i, out in enumerate(outputs):
            if not isinstance(out, Tensor) or any(out is n for n in ctx._non_differentiable):
                continue
            if not (out.dtype.is_floating_point or out.dtype.is_complex):
                continue
            if id(out) in dirty:
                check_history_writable(out)
                out._bump(cls.__name__)
                rebase_history(out, node, i)
            else:
                view_of = out if id(out) in inputs else out._base
                if view_of is not None:  # an input returned unchanged, or a view: the output is a new view
                    outputs[i] = out = out._bare_alias()
                out._set_history(node, i)
                if view_of is not None and any(
                    view_of is a or view_of is a._base for a in args if isinstance(a, Tensor)
                ):
                    _mark_as_view(out, view_of)
        produced = {id(o): i for i, o in enumerate(outputs) if isinstance(o, Tensor) and o.grad_fn is node}
        given, ctx._to_save = ctx._to_save, ()  # at once: a hook that raises leaves no cycle behind
        node.saved = [
            SavedTensor(t, id(t) in produced, produced.get(id(t), 0)) if isinstance(t, Tensor) else t for t in given
        ]
        ctx._node = node
        if not isinstance(result, (tuple, list)):
            return outputs[0]
        return tuple(outputs)


def _reverse_rule(cls: Any) -> Callable[..., Any]:
    """Return `backward`, or `vjp`, which is another name for it."""
    if cls.vjp is Function.vjp:
        return cls.backward
    if cls.backward is not Function.backward:
        raise RuntimeError(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one of them."
        )
    return cls.vjp


_signature = functools.lru_cache(maxsize=1024)(inspect.signature)


def _positional(cls: Any, args: Values, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of forward in order, with its defaults."""
    split = cls.setup_context is not Function.setup_context
    given = args if split else (None, *args)
    signature = _signature(cls.forward)
    try:
        signature.bind_partial(*given, **kwargs)  # reports surplus arguments before missing ones
    except TypeError as problem:
        raise TypeError(f"{cls.__name__}.forward() {problem}".replace("() multiple", "() got multiple")) from None
    bound = signature.bind(*given, **kwargs)
    bound.apply_defaults()
    return tuple(bound.args) if split else tuple(bound.args)[1:]


def _check_dirty(ctx: FunctionCtx, args: Values, result: Any) -> None:
    """Check that the tensors given to mark_dirty are inputs that forward returns."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    for t in ctx._dirty:
        is_input = any(t is a for a in args)
        if not any(t is out for out in outputs):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that are"
                " modified inplace must all be outputs of the Function."
            )
        if not is_input and t._base is not None:
            raise RuntimeError(
                "mark_dirty received a tensor that was not an input. Only inputs that forward changes in place are to be marked."
            )
        if not is_input:
            warnings.warn(
                "Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there is no need to pass"
                " it to mark_dirty().",
                stacklevel=4,
            )
        elif t._base is not None and len(outputs) > 1:
            raise RuntimeError(
                "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more"
                " than one Tensor. This is not supported by the current autograd engine. You should either make sure the input"
                " is not a view (using .clone() for example) or make your Function only return one Tensor (potentially splitting"
                " it into two Functions: one doing the inplace that returns a single Tensor and a second one that does the other"
                " operations)."
            )


def _mark_as_view(out: Tensor, of: Tensor) -> None:
    """Mark an output of a Function that shares memory with an input: changing either in place would bypass the Function's backward."""
    out._base = of if of._base is None else of._base
    meta = out._ensure_autograd()
    meta.creation, meta.view_version = "custom", out._storage.version


class InplaceFunction(Function):
    """Function with an option `inplace`; kept for programs that derive from it."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace


class VmapInfo(NamedTuple):
    """Facts about the batch that a Function's vmap method gets."""

    batch_size: int
    randomness: str


def _apply_batched(cls: Any, args: Values) -> Any:
    """Apply a Function inside vmap: by its own vmap method if it has one, else (generate_vmap_rule) one element at a time."""
    level = max((a._level for a in args if isinstance(a, BatchedTensor)), key=lambda one: one.depth)
    rule = None if cls.vmap is Function.vmap else cls.vmap
    if rule is None and not cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and implement the vmap"
            " staticmethod or set generate_vmap_rule=True."
        )
    if rule is None:
        return level.joined([cls.apply(*level.element(args, i)) for i in range(level.size)], cls.__name__)
    if cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overriden vmap"
            " staticmethod. Please set generate_vmap_rule=False or delete the overriden vmap staticmethod to avoid ambiguity."
        )
    return by_vmap_rule(rule, level, args)


def by_vmap_rule(rule: Callable[..., Any], level: Any, args: Values, kwargs: Any = None) -> Any:
    """Call a user's rule `rule(info, in_dims, *args)` with the values of this level's batched tensors, and wrap its results as batched
    tensors."""

    def dim(a: Any) -> Any:
        return tuple(map(dim, a)) if isinstance(a, (tuple, list)) else a._hidden if level.owns(a) else None

    def value(a: Any) -> Any:
        return type(a)(map(value, a)) if isinstance(a, (tuple, list)) else a._value if level.owns(a) else a

    info = VmapInfo(level.size, level.randomness)
    outputs, out_dims = rule(info, tuple(map(dim, args)), *map(value, args), **(kwargs or {}))
    if isinstance(outputs, Tensor):
        return outputs if out_dims is None else level.wrap(outputs, out_dims)
    each = out_dims if isinstance(out_dims, (tuple, list)) else (out_dims,) * len(outputs)
    return tuple(o if d is None else level.wrap(o, d) for o, d in zip(outputs, each))


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for backward: its result cannot be differentiated again."""

    def wrapper(ctx: Any, *grads: Any) -> Any:
        result = unrecorded(fn, ctx, *grads)
        if not grad_mode.enabled or not any(isinstance(g, Tensor) and g.requires_grad for g in grads):
            return result
        outputs = result if isinstance(result, tuple) else (result,)
        for out in outputs:
            if isinstance(out, Tensor):
                out._set_history(Error(), 0)
        return result

    return wrapper


class Error(Node):
    """The node of a gradient that cannot be differentiated again."""

    def __init__(self) -> None:
        super().__init__("Error", ())

    def apply(self, grads: list[Any]) -> tuple[Any, ...]:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


FunctionMeta = type(Function)
BackwardCFunction = FunctionCtx  # PyTorch's class of the nodes of a Function; here these are contexts
NestedIOFunction = absent_class(
    "NestedIOFunction", "NestedIOFunction: write a Function of plain tensors", NotImplementedError
)
