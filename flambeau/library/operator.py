"""A user's operator: a record like any other (`ops.machinery.record`), whose kernels are Python functions; its derivative; and its public
face `flambeau.ops.<namespace>.<name>`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType
from typing import Any

from .. import ops
from ..autograd.function import Function
from ..core.graph import grad_mode
from ..core.modes import active, intercept
from ..core.overrides import FACE_CODES, discovers
from ..core.pytree import tree_flatten, tree_unflatten
from ..core.sharded import SpreadTensor
from ..core.tensor import Tensor
from ..ops.machinery.matching import bound
from ..ops.machinery.record import OPS, Op, register
from ..ops.machinery.schema import Schema
from . import absent

ANY_DEVICE = ("compositeimplicitautograd", "compositeexplicitautograd", "catchall", "default")


class Derivative:
    """Autograd's rule for a user's operator: it is one node (`own`), or the kernel's operators are followed until a rule is registered."""

    def __init__(self, op: Op, own: bool) -> None:
        self.own = own
        self.backward: Callable | None = None
        self.setup_context: Callable | None = None
        self.dispatch: dict[type, Callable] = {}  # what `register_torch_dispatch` said, by class
        self.function = _gradient_function(op, self)


class OperatorFace:
    """Public function of a user's operator, `flambeau.ops.<namespace>.<name>`; `op` is its record."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.namespace, self.__name__ = op.name.split("::")
        self.__module__ = f"torch.ops.{self.namespace}"
        self._unwatched = self.__wrapped__ = partial(call_operator, op)

    @property
    def as_node(self) -> bool:
        """Return whether a graph shows a call as one node: not if the only kernel is composed of other operators."""
        return set(self.op.kernels) != {"compositeimplicitautograd"}

    @property
    def overloadpacket(self) -> OperatorFace:
        return self

    @property
    def default(self) -> OperatorFace:
        """Return the only overload."""
        return self

    @property
    def _schema(self) -> Schema:
        return self.op.schema

    @property
    def tags(self) -> list[Any]:
        return list(self.op.tags)

    def name(self) -> str:
        return self.op.name

    def overloads(self) -> list[str]:
        return ["default"]

    def __repr__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if active:
            return intercept(self.op, self, args, kwargs)
        spread = next((a for a in args if isinstance(a, SpreadTensor)), None)
        if spread is not None and self.as_node:  # its kernels are for one rank's memory
            return spread._call_spread(self, args, kwargs)
        try:
            return call_operator(self.op, *args, **kwargs)
        except Exception:
            if not discovers(args, kwargs):
                raise
        return self(*args, **kwargs)


FACE_CODES.add(OperatorFace.__call__.__code__)


def call_operator(op: Op, /, *args: Any, **kwargs: Any) -> Any:
    """Call a user's operator, and record the call if it has a derivative of its own."""
    values = bound(op.schema, args, kwargs)
    leaves, shape = tree_flatten(values)
    needs_grad = grad_mode.enabled and any(isinstance(v, Tensor) and v.requires_grad for v in leaves)
    if needs_grad and "autograd" in op.kernels:
        return _run_kernel(op, op.kernels["autograd"], values)
    stops = op.impl.backward is not None or (op.impl.own and not op.writes)
    if not needs_grad or not stops:
        return run_operator(op, values)
    call = _Call(shape)
    outputs = op.impl.function.apply(call, *leaves)
    return tree_unflatten(list(outputs), call.output_shape)


def run_operator(op: Op, values: list) -> Any:
    """Run the kernel for the arguments' device, without autograd of its own."""
    tensors = [v for v in tree_flatten(values)[0] if isinstance(v, Tensor)]
    if any(t.device.type == "meta" for t in tensors):
        kernel = op.kernels.get("meta") or _for_any_device(op)
        if kernel is None:
            raise NotImplementedError(
                f"{op.name}: attempted to run this operator with Meta tensors, but there was no fake impl or Meta kernel"
                " registered."
            )
        return _run_kernel(op, kernel, values)
    where = next((t.device.type for t in tensors), "cpu")
    kernel = op.kernels.get(where) or _for_any_device(op)
    if kernel is None:
        raise NotImplementedError(
            f"Could not run '{op.name}' with arguments from the '{where.upper()}' backend: no kernel is registered for it"
            f" (there are kernels for {sorted(op.kernels)})."
        )
    result = _run_kernel(op, kernel, values)
    if op.impl.own:
        _note_changes(op, values)
        _require_fresh(op, tensors, [v for v in tree_flatten(result)[0] if isinstance(v, Tensor)])
    return result


def _for_any_device(op: Op) -> Callable | None:
    return next((op.kernels[key] for key in ANY_DEVICE if key in op.kernels), None)


def _run_kernel(op: Op, kernel: Callable, values: list) -> Any:
    plain, named = op.schema.as_call(values)
    return kernel(*plain, **named)


def _note_changes(op: Op, values: list) -> None:
    """Count in-place changes of written arguments: kernels may write to memory without autograd's notice (through NumPy)."""
    for argument, value in zip(op.schema.arguments, values):
        if argument.is_write:
            for t in tree_flatten(value)[0]:
                if isinstance(t, Tensor):
                    t._bump(op.name.split("::")[1])


def _require_fresh(op: Op, inputs: list[Tensor], outputs: list[Tensor]) -> None:
    seen = {id(t._storage) for t in inputs}
    for output in outputs:
        if id(output._storage) in seen:
            raise RuntimeError(
                f"{op.name.split('::')[1]}: The output of this custom operator (1) must not also be an input to this custom"
                " operator and (2) may not alias any inputs to this custom operator or other returns. The most common way to"
                " trigger this error is if we have y = custom_op(x) and y and x are the same Tensor. Please instead return a"
                " clone of the offending output tensor(s) (e.g. return x.clone()) or refactor the custom operator to not"
                " return y."
            )
        seen.add(id(output._storage))


class _Call:
    """Structure of one call, to rebuild nested arguments and (once it ran) results from flat lists."""

    def __init__(self, input_shape: Any) -> None:
        self.input_shape = input_shape
        self.output_shape: Any = None


def _gradient_function(op: Op, rules: Derivative) -> type[Function]:
    """Return an autograd.Function over all tensors of a call, also those in lists; the user's rules get the original arguments."""

    def forward(call: _Call, *leaves: Any) -> tuple:
        result = run_operator(op, tree_unflatten(list(leaves), call.input_shape))
        outputs, call.output_shape = tree_flatten(result)
        return tuple(outputs)

    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        call, *leaves = inputs
        ctx._call = call
        if rules.setup_context is None:
            return
        plain, named = op.schema.as_call(tree_unflatten(list(leaves), call.input_shape))
        extra = {"keyword_only_inputs": named} if named else {}
        with _NestedNeeds(ctx):
            rules.setup_context(ctx=ctx, inputs=plain, output=tree_unflatten(list(output), call.output_shape), **extra)

    def backward(ctx: Any, *grads: Any) -> tuple:
        if rules.backward is None:
            raise RuntimeError(
                f"Trying to backward through {op.function}.default but no autograd formula was registered. Please use"
                " register_autograd to add one."
            )
        with _NestedNeeds(ctx):
            structured = tree_unflatten(list(grads), ctx._call.output_shape)
            several = isinstance(structured, tuple)
            given = rules.backward(ctx, *structured) if several else rules.backward(ctx, structured)
        return (None, *_flat_gradients(op, ctx._call, given))

    name = f"GeneratedBackwardFor_{op.name.replace('::', '_')}_default"
    methods: dict[str, Callable[..., Any]] = {"forward": forward, "setup_context": setup_context, "backward": backward}
    return type(name, (Function,), {key: staticmethod(value) for key, value in methods.items()})


class _NestedNeeds:
    """Context manager for the user's rules: give `ctx.needs_input_grad` the structure of the arguments."""

    def __init__(self, ctx: Any) -> None:
        self.ctx = ctx

    def __enter__(self) -> None:
        self.flat = self.ctx.needs_input_grad
        self.ctx.needs_input_grad = tuple(tree_unflatten(list(self.flat[1:]), self.ctx._call.input_shape))

    def __exit__(self, *exc: Any) -> None:
        self.ctx.needs_input_grad = self.flat


def _flat_gradients(op: Op, call: _Call, given: Any) -> list:
    """Return a gradient for each leaf of the arguments; None for a list means None for each element of it."""
    grads = list(given) if isinstance(given, tuple) else [given]
    shapes = [tree_flatten(v)[1] for v in tree_unflatten([None] * call.input_shape.num_leaves, call.input_shape)]
    counted = op.schema.positional
    if len(grads) != len(counted):
        raise RuntimeError(
            f"expected the backward function of {op.function} to return {len(counted)} gradient(s), one for each argument, but"
            f" got {len(grads)}"
        )
    grads += [None] * (len(shapes) - len(grads))
    flat: list = []
    for grad, shape in zip(grads, shapes):
        flat += [None] * shape.num_leaves if grad is None else tree_flatten(grad)[0]
    return flat


class _Namespace(ModuleType):
    """`flambeau.ops.<namespace>`, with the operators of that namespace. `early` are kernels of operators that are not defined yet."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.early: dict[str, dict[str, Callable[..., Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        space = self.__name__.split(".")[-1]
        found = None if name.startswith("__") else absent.find(space, name)
        if found is None:
            raise AttributeError(f"'_OpNamespace' '{space}' object has no attribute '{name}'")
        return found


def absent_namespace(name: str) -> Any:
    """Return the namespace in which a library that was not loaded has operators, or None."""
    return None if name.startswith("__") or not absent.names_namespace(name) else _namespace(name)


def define_operator(schema: Schema, own_gradient: bool, tags: Iterable[Any] = ()) -> Op:
    """Register an operator under its name, which must be unique."""
    if schema.name.count("::") != 1:
        raise ValueError(f"expected a name of the form '<namespace>::<name>', but got {schema.name!r}")
    if schema.name in OPS:
        raise RuntimeError(
            f"Tried to register an operator ({schema}) with the same name and overload name multiple times."
        )
    kind = "primitive" if own_gradient else "composite"
    op = Op.of_schema(schema, kind, tags=tuple(tags), autocast="parts", batching="each" if own_gradient else None)
    op.impl = Derivative(op, own_gradient)
    op.function = face = OperatorFace(op)
    place = _namespace(face.namespace)
    setattr(place, face.__name__, face)
    op.kernels = place.early.pop(face.__name__, op.kernels)
    return register(op)


def _namespace(name: str) -> _Namespace:
    """Return the namespace of this name, made if it does not exist."""
    place = getattr(ops, name) if name == "aten" else vars(ops).get(name)  # that one is made when it is first used
    if place is None:
        place = _Namespace(f"torch.ops.{name}")
        setattr(ops, name, place)
    elif not isinstance(place, _Namespace):
        raise ValueError(f"the namespace {name!r} of operators is taken: it is a part of flambeau.ops")
    return place


def kernels_of(op: Any) -> dict[str, Callable[..., Any]]:
    """Return the kernels of an operator by device; for a name that is not defined yet, those that its definition will have."""
    if isinstance(op, str) and op.removesuffix(".default") not in OPS:
        space, _, name = op.removesuffix(".default").partition("::")
        return _namespace(space).early.setdefault(name, {})
    return find_operator(op).kernels


def forget_operator(name: str) -> None:
    face: Any = OPS.pop(name).function
    delattr(vars(ops)[face.namespace], face.__name__)


def find_operator(op: Any) -> Op:
    """Return the record of the operator given by a name, a CustomOpDef or the operator itself."""
    op = getattr(op, "_opoverload", op)
    if isinstance(op, OperatorFace):
        return op.op
    if not isinstance(op, str):
        raise ValueError(f"expected an operator or its name, but got {type(op).__name__}")
    found = OPS.get(op.removesuffix(".default"))
    if found is None or not isinstance(found.function, OperatorFace):
        raise RuntimeError(f"operator {op} does not exist")
    return found
