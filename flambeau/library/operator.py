"""A registered operator: its schema, a kernel per device, a rule for meta tensors, a derivative; and where to find it by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from .. import ops
from ..autograd.function import Function
from ..core.graph import grad_mode
from ..core.pytree import tree_flatten, tree_unflatten
from ..core.tensor import Tensor
from ..ops.machinery.schema import Schema

OPERATORS: dict[str, Operator] = {}
ANY_DEVICE = ("compositeimplicitautograd", "compositeexplicitautograd", "catchall", "default")


class Operator:
    """What `flambeau.ops.<namespace>.<name>` is."""

    def __init__(self, schema: Schema, own_gradient: bool, tags: Iterable[Any] = ()) -> None:
        self.schema = schema
        self.tags = list(tags)
        self.own_gradient = own_gradient  # whether autograd stops at the operator, or follows what its kernel does
        self.kernels: dict[str, Callable] = {}
        self.fake: Callable | None = None
        self.backward: Callable | None = None
        self.setup_context: Callable | None = None
        self.namespace, self.__name__ = schema.name.split("::")
        self.__module__ = f"torch.ops.{self.namespace}"
        self._function = _gradient_function(self)

    @property
    def default(self) -> Operator:
        """The one overload there is."""
        return self

    @property
    def _schema(self) -> Schema:
        return self.schema

    def name(self) -> str:
        return self.schema.name

    def overloads(self) -> list[str]:
        return ["default"]

    def __repr__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        values = self.schema.bind(args, kwargs)
        leaves, shape = tree_flatten(values)
        needs_grad = grad_mode.enabled and any(isinstance(v, Tensor) and v.requires_grad for v in leaves)
        if needs_grad and "autograd" in self.kernels:
            return self._run_kernel(self.kernels["autograd"], values)
        stops = self.backward is not None or (self.own_gradient and not self.schema.is_mutable)
        if not needs_grad or not stops:
            return self.run(values)
        call = _Call(shape)
        outputs = self._function.apply(call, *leaves)
        return tree_unflatten(list(outputs), call.output_shape)

    def run(self, values: list) -> Any:
        """The kernel for the arguments' device, without autograd of its own."""
        tensors = [v for v in tree_flatten(values)[0] if isinstance(v, Tensor)]
        if any(t.device.type == "meta" for t in tensors):
            kernel = self.fake or self.kernels.get("meta") or self._for_any_device()
            if kernel is None:
                raise NotImplementedError(
                    f"{self.schema.name}: attempted to run this operator with Meta tensors, but there was no fake impl or"
                    " Meta kernel registered."
                )
            return self._run_kernel(kernel, values)
        where = next((t.device.type for t in tensors), "cpu")
        kernel = self.kernels.get(where) or self._for_any_device()
        if kernel is None:
            raise NotImplementedError(
                f"Could not run '{self.schema.name}' with arguments from the '{where.upper()}' backend: no kernel is"
                f" registered for it (there are kernels for {sorted(self.kernels)})."
            )
        result = self._run_kernel(kernel, values)
        if self.own_gradient:
            self._note_changes(values)
            _require_fresh(self, tensors, [v for v in tree_flatten(result)[0] if isinstance(v, Tensor)])
        return result

    def _for_any_device(self) -> Callable | None:
        return next((self.kernels[key] for key in ANY_DEVICE if key in self.kernels), None)

    def _run_kernel(self, kernel: Callable, values: list) -> Any:
        named = {a.name: v for a, v in zip(self.schema.arguments, values) if a.keyword_only}
        plain = [v for a, v in zip(self.schema.arguments, values) if not a.keyword_only]
        return kernel(*plain, **named)

    def _note_changes(self, values: list) -> None:
        """Kernels may write to memory behind autograd's back (through NumPy): count their in-place changes."""
        for argument, value in zip(self.schema.arguments, values):
            if argument.mutated:
                for t in tree_flatten(value)[0]:
                    if isinstance(t, Tensor):
                        t._bump(self.__name__)


def _require_fresh(operator: Operator, inputs: list[Tensor], outputs: list[Tensor]) -> None:
    seen = {id(t._storage) for t in inputs}
    for output in outputs:
        if id(output._storage) in seen:
            raise RuntimeError(
                f"{operator.__name__}: The output of this custom operator (1) must not also be an input to this custom"
                " operator and (2) may not alias any inputs to this custom operator or other returns. The most common way to"
                " trigger this error is if we have y = custom_op(x) and y and x are the same Tensor. Please instead return a"
                " clone of the offending output tensor(s) (e.g. return x.clone()) or refactor the custom operator to not"
                " return y."
            )
        seen.add(id(output._storage))


class _Call:
    """How the flat lists of one call are to be put together: of inputs, and, once it ran, of outputs."""

    def __init__(self, input_shape: Any) -> None:
        self.input_shape = input_shape
        self.output_shape: Any = None


def _gradient_function(operator: Operator) -> type[Function]:
    """An autograd.Function over all tensors of a call, also those in lists; the user's rules see the arguments as they were."""

    def forward(call: _Call, *leaves: Any) -> tuple:
        result = operator.run(tree_unflatten(list(leaves), call.input_shape))
        outputs, call.output_shape = tree_flatten(result)
        return tuple(outputs)

    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        call, *leaves = inputs
        ctx._call = call
        if operator.setup_context is None:
            return
        values = tree_unflatten(list(leaves), call.input_shape)
        named = {a.name: v for a, v in zip(operator.schema.arguments, values) if a.keyword_only}
        plain = tuple(v for a, v in zip(operator.schema.arguments, values) if not a.keyword_only)
        extra = {"keyword_only_inputs": named} if named else {}
        with _NestedNeeds(ctx):
            operator.setup_context(
                ctx=ctx, inputs=plain, output=tree_unflatten(list(output), call.output_shape), **extra
            )

    def backward(ctx: Any, *grads: Any) -> tuple:
        if operator.backward is None:
            raise RuntimeError(
                f"Trying to backward through {operator}.default but no autograd formula was registered. Please use"
                " register_autograd to add one."
            )
        with _NestedNeeds(ctx):
            structured = tree_unflatten(list(grads), ctx._call.output_shape)
            several = isinstance(structured, tuple)
            given = operator.backward(ctx, *structured) if several else operator.backward(ctx, structured)
        return (None, *_flat_gradients(operator, ctx._call, given))

    name = f"GeneratedBackwardFor_{operator.namespace}_{operator.__name__}_default"
    methods: dict[str, Callable[..., Any]] = {"forward": forward, "setup_context": setup_context, "backward": backward}
    return type(name, (Function,), {key: staticmethod(value) for key, value in methods.items()})


class _NestedNeeds:
    """While the user's rules run, `ctx.needs_input_grad` has the shape of the arguments."""

    def __init__(self, ctx: Any) -> None:
        self.ctx = ctx

    def __enter__(self) -> None:
        self.flat = self.ctx.needs_input_grad
        self.ctx.needs_input_grad = tuple(tree_unflatten(list(self.flat[1:]), self.ctx._call.input_shape))

    def __exit__(self, *exc: Any) -> None:
        self.ctx.needs_input_grad = self.flat


def _flat_gradients(operator: Operator, call: _Call, given: Any) -> list:
    """One gradient for each leaf of the arguments; None for a list stands for None for all in it."""
    grads = list(given) if isinstance(given, tuple) else [given]
    shapes = [tree_flatten(v)[1] for v in tree_unflatten([None] * call.input_shape.num_leaves, call.input_shape)]
    counted = [a for a in operator.schema.arguments if not a.keyword_only]
    if len(grads) != len(counted):
        raise RuntimeError(
            f"expected the backward function of {operator} to return {len(counted)} gradient(s), one for each argument, but"
            f" got {len(grads)}"
        )
    grads += [None] * (len(shapes) - len(grads))
    flat: list = []
    for grad, shape in zip(grads, shapes):
        flat += [None] * shape.num_leaves if grad is None else tree_flatten(grad)[0]
    return flat


class _Namespace(ModuleType):
    """`flambeau.ops.<namespace>`, where operators of that namespace are found."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"'_OpNamespace' '{self.__name__.split('.')[-1]}' object has no attribute '{name}'")


def define_operator(schema: Schema, own_gradient: bool, tags: Iterable[Any] = ()) -> Operator:
    """Register an operator under its name; there may be one of a name."""
    if schema.name.count("::") != 1:
        raise ValueError(f"expected a name of the form '<namespace>::<name>', but got {schema.name!r}")
    if schema.name in OPERATORS:
        raise RuntimeError(
            f"Tried to register an operator ({schema}) with the same name and overload name multiple times."
        )
    operator = Operator(schema, own_gradient, tags)
    place = vars(ops).get(operator.namespace)
    if place is None:
        place = _Namespace(f"torch.ops.{operator.namespace}")
        setattr(ops, operator.namespace, place)
    elif not isinstance(place, _Namespace):
        raise ValueError(
            f"the namespace {operator.namespace!r} of {schema.name!r} is taken: it is a part of flambeau.ops"
        )
    setattr(place, operator.__name__, operator)
    OPERATORS[schema.name] = operator
    return operator


def forget_operator(name: str) -> None:
    operator = OPERATORS.pop(name)
    delattr(vars(ops)[operator.namespace], operator.__name__)


def find_operator(op: Any) -> Operator:
    """The operator meant by a name, a CustomOpDef or the operator itself."""
    if isinstance(op, Operator):
        return op
    if isinstance(getattr(op, "_opoverload", None), Operator):
        return op._opoverload
    if not isinstance(op, str):
        raise ValueError(f"expected an operator or its name, but got {type(op).__name__}")
    if op.removesuffix(".default") not in OPERATORS:
        raise RuntimeError(f"operator {op} does not exist")
    return OPERATORS[op.removesuffix(".default")]
