"""Reductions: from a declaration (what is mapped, how it combines, what happens at the end) to a function on tensors.

As for pointwise operators, a call looks up a *plan* by dtype, shape, strides and dimensions; a plan is made once.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.compiled import reduce_kernel
from ...core import dtype as dt
from ...core import modes
from ...core.aliases import Values
from ...core.batched import BatchedTensor
from ...core.caching import remember
from ...core.device import device
from ...core.dtype import dtype, opmath
from ...core.graph import (
    GONE,
    RETRY_MESSAGE,
    AutogradState,
    Node,
    SavedTensor,
    declare_saved,
    grad_mode,
    gradient_edge,
    named_class,
)
from ...core.layout import expand_strides, wrap_dim
from ...core.raw_memory import move_bytes
from ...core.sharded import ShardedOperand
from ...core.size import Size, make_size
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, contiguous_strides, copy_of_array, numel_of
from ...expr import Expr, arg, as_expr, const, substitute
from ...expr.node import cast
from ...kernels import emit_numpy
from ...kernels.geometry import plan_reduction
from .arguments import as_ints, is_int
from .dtype_rules import number_dtype
from .formula import camel
from .parameters import parameter_names
from .plan import compiles
from .record import Op
from .watched import PrivateCall

_new_object = object.__new__
_active, _deciding, _intercept, _watching = modes.active, modes.deciding, modes.intercept, modes.watching
_MAX_RANK = 64

Rule = Callable[["Reduction", dtype, "dtype | None"], tuple[dtype, dtype, dtype]]


# -- dimensions --------------------------------------------------------------------------------------------------------


def plain_dim(dim: Any, name: str = "reduction") -> Any:
    """Return a dim argument in the form used in a plan's key: None, an int or a tuple of ints. 1.0 and True, which would find the plan for 1,
    are refused."""
    if type(dim) is int or dim is None:
        return dim
    return int(dim) if is_int(dim) else as_ints(dim, name, "dim", 2)


def reduced_dims(dim: Any, ndim: int, name: str = "reduction") -> tuple[int, ...]:
    """Return the dimensions to reduce, wrapped and in the order given; None and () mean all."""
    dim = plain_dim(dim, name)
    if dim is None or dim == ():
        return tuple(range(ndim))
    if ndim > _MAX_RANK:
        raise RuntimeError(f"only tensors with up to {_MAX_RANK} dims are supported")
    if isinstance(dim, int):
        d = wrap_dim(dim, ndim)
        return (d,) if ndim else ()
    wrapped = [wrap_dim(d, ndim) for d in dim]
    if len(set(wrapped)) != len(wrapped):
        repeated = next(d for d in wrapped if wrapped.count(d) > 1)
        raise RuntimeError(f"dim {repeated} appears multiple times in the list of dims")
    return tuple(wrapped) if ndim else ()


def reduced_shape(shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    if keepdim:
        return tuple(1 if i in dims else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in dims)


def restored(g: Tensor, ndim: int, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    """Return a reduced tensor with its reduced dimensions restored, of size one."""
    if keepdim or not g.shape:
        return g
    for d in sorted(dims):
        g = g.unsqueeze(d)
    return g


def spread(g: Tensor, shape: Size, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    """Expand a reduced tensor to the shape it was reduced from."""
    if (grad_mode.enabled and g._autograd is not None) or type(g) is BatchedTensor or (_active and _deciding()):
        return restored(g, len(shape), dims, keepdim).expand(shape)
    strides, position = [], 0
    for i in range(len(shape)):
        if i in dims:
            strides.append(0)
            position += keepdim
        else:
            strides.append(g._strides[position])
            position += 1
    return g._view(shape, tuple(strides), g._offset)


# -- dtype rules: (dtype of the elements, of the accumulator, of the result) -------------------------------------------


def widen_integers(op: Reduction, d: dtype, requested: dtype | None) -> tuple[dtype, dtype, dtype]:
    """Return the dtypes of a reduction that accumulates integers and bools in int64."""
    d = requested or (dt.int64 if d.category < 2 else d)
    return d, d, d


def same_dtype(op: Reduction, d: dtype, requested: dtype | None) -> tuple[dtype, dtype, dtype]:
    d = requested or d
    return d, d, d


def to_bool(op: Reduction, d: dtype, requested: dtype | None) -> tuple[dtype, dtype, dtype]:
    return d, dt.bool_, dt.uint8 if d is dt.uint8 else dt.bool_


def to_index(op: Reduction, d: dtype, requested: dtype | None) -> tuple[dtype, dtype, dtype]:
    return d, d, dt.int64


def counting(op: Reduction, d: dtype, requested: dtype | None) -> tuple[dtype, dtype, dtype]:
    return d, dt.int64, dt.int64


def real_result(op: Reduction, d: dtype, requested: dtype | None) -> tuple[dtype, dtype, dtype]:
    """Return the dtypes of a reduction of magnitudes: complex elements, a real result."""
    d = requested or d
    return d, d.to_real(), d.to_real()


# -- plans -------------------------------------------------------------------------------------------------------------


class ReductionPlan:
    """Plan of a reduction for one combination of operands and dimensions."""

    __slots__ = ("fn", "geometry", "shape", "strides", "nbytes", "dtype", "device", "dims", "reference")

    fn: Any
    geometry: bytes
    shape: Size
    strides: tuple[int, ...]
    nbytes: int
    dtype: dtype
    device: device
    dims: tuple[int, ...]
    reference: tuple[Any, ...] | None  # arguments of emit_numpy.reduce: 8-bit floats, nothing to reduce, no compiler

    def new(self) -> Tensor:
        out = _new_object(Tensor)
        out._storage = UntypedStorage(self.nbytes, self.device)
        out.shape = self.shape
        out._strides = self.strides
        out._offset = 0
        out.dtype = self.dtype
        out.device = self.device
        out._contig = True
        out._autograd = out._base = None
        return out

    def run(self, out: Tensor, operands: Values) -> None:
        if self.fn is not None:
            values = [x._storage.ptr + x._offset * x.dtype.itemsize if isinstance(x, Tensor) else x for x in operands]
            self.fn(self.geometry, out._storage.ptr, *values)
        elif self.reference is not None and self.nbytes:
            root, combine, final, in_dtypes, acc, shape = self.reference
            nothing = 0 in shape  # then there is no memory to read
            arrays = [
                np.asarray(x)
                if not isinstance(x, Tensor)
                else np.empty(shape, x.dtype.numpy)
                if nothing
                else np.broadcast_to(x._array(), shape)
                for x in operands
            ]
            axes = self.dims if shape else None
            result = emit_numpy.reduce(root, combine, final, arrays, in_dtypes, self.dtype, acc, axes)
            made = copy_of_array(result, self.dtype)
            move_bytes(out._storage.ptr, out.device, made._storage.ptr, made.device, self.nbytes)


def mean_of(total: Expr, count: Expr) -> Expr:
    """The last step of a mean (see `Reduction.final`)."""
    return total / count


class Reduction:
    """A reduction of one tensor, or of several that broadcast to the first one's shape, with numbers as parameters.

    `formula` maps elements (and parameters), `combine` names how mapped elements join (see kernels.reduction), `final`
    is applied to the result and the number of elements."""

    def __init__(
        self,
        name: str,
        formula: Callable[..., Any],
        combine: str,
        final: Callable[..., Any] | None = None,
        rule: Rule = same_dtype,
        grad: Callable[..., Any] | None = None,
        labels: Any = None,  # of the whole tensor, and along dimensions
        check: Callable[..., Any] | None = None,
    ):
        self.name, self.formula, self.combine, self.final = name, formula, combine, final
        self.rule, self.grad, self.check = rule, grad, check
        self.labels = labels or (camel(name) + "Backward0",)
        self.reads = parameter_names(grad)[1:] if grad else ()
        self.plans: dict[tuple[Any, ...], ReductionPlan] = {}
        self.traced: dict[tuple[Any, ...], tuple[Expr, Expr | None]] = {}  # the formulas by dtypes

    def call(self, a: Tensor, dim: Any = None, keepdim: bool = False, requested: dtype | None = None) -> Tensor:
        """Call `reduce` for other operators, so that modes see it."""
        if _active and _watching():
            return _intercept(self.op, self.private, (a, dim, keepdim, requested), {})
        try:
            return self.reduce(a, dim, keepdim, requested)
        except ShardedOperand as problem:
            instead = problem.instead(self.private, (a, dim, keepdim, requested), {})
        return instead()

    @functools.cached_property
    def op(self) -> Op:
        """Return the operator's record: that of its declaration, or one for a reduction that is only a part of operators."""
        op = Op(
            self.name, "reduction", self.reduce, (), None, None, False, self.grad is not None, self, source=self.formula
        )
        op.function = PrivateCall(op, self.reduce)
        return op

    @functools.cached_property
    def private(self) -> PrivateCall:
        """Return the form of `call` that modes intercept."""
        return PrivateCall(self.op, self.reduce)

    def reduce(self, a: Tensor, dim: Any = None, keepdim: bool = False, requested: dtype | None = None) -> Tensor:
        """Reduce one tensor; `dim` is None, an int or a tuple."""
        plan = self.plans.get((a.dtype, a.shape, a._strides, dim, keepdim, requested, a.device))
        if plan is None:
            plan = self.make_plan((a,), dim, keepdim, requested)
        out = _new_object(Tensor)
        storage = out._storage = UntypedStorage(plan.nbytes, plan.device)
        out.shape = plan.shape
        out._strides = plan.strides
        out._offset = 0
        out.dtype = plan.dtype
        out.device = plan.device
        out._contig = True
        out._autograd = out._base = None
        fn = plan.fn
        if fn is not None:
            fn(plan.geometry, storage.ptr, a._storage.ptr + a._offset * a.dtype.itemsize)
        else:
            plan.run(out, (a,))
        if (a._autograd is not None or a._base is not None) and grad_mode.enabled and self.grad is not None:
            self.record(a, plan.dims, keepdim, dim is not None, out)
        return out

    def over(self, operands: Values, dim: Any = None, keepdim: bool = False, requested: dtype | None = None) -> Tensor:
        """Reduce a formula of several operands: tensors that broadcast to the first, and numbers. Records nothing."""
        if _active and _watching():
            return _intercept(
                self.several.op, self.several, (*operands,), {"dim": dim, "keepdim": keepdim, "requested": requested}
            )
        return self._reduce_together(operands, dim, keepdim, requested)

    @functools.cached_property
    def several(self) -> PrivateCall:
        """Return the form of `over` that modes intercept."""
        op = Op(self.name, "primitive", self._over, (), None, None, False, False, self, source=self.formula)
        op.function = PrivateCall(op, self._over)
        return op.function

    def _over(self, *operands: Any, dim: Any, keepdim: bool, requested: dtype | None) -> Tensor:
        return self._reduce_together(operands, dim, keepdim, requested)

    def _reduce_together(self, operands: Values, dim: Any, keepdim: bool, requested: dtype | None) -> Tensor:
        described = tuple([(x.dtype, x.shape, x._strides) if isinstance(x, Tensor) else type(x) for x in operands])
        plan = self.plans.get((described, dim, keepdim, requested, operands[0].device))
        if plan is None:
            plan = self.make_plan(operands, dim, keepdim, requested)
        out = plan.new()
        plan.run(out, operands)
        return out

    # -- planning ---------------------------------------------------------------------------------------------------
    def make_plan(self, operands: Values, dim: Any, keepdim: bool, requested: dtype | None) -> ReductionPlan:
        a = operands[0]
        if len(operands) == 1:
            key: tuple[Any, ...] = (a.dtype, a.shape, a._strides, dim, keepdim, requested, a.device)
        else:
            described = tuple([(x.dtype, x.shape, x._strides) if isinstance(x, Tensor) else type(x) for x in operands])
            key = (described, dim, keepdim, requested, a.device)
        plan = ReductionPlan()
        # all and any over no dimensions leave every element; other reductions take an empty list as all dimensions
        nothing = self.combine in ("all", "any") and dim == ()
        plan.dims = () if nothing else reduced_dims(dim, len(a.shape), self.name)
        if self.check is not None:
            self.check(self, a, dim, plan.dims, requested)
        compute, acc, plan.dtype = self.rule(self, a.dtype, requested)
        plan.device = a.device
        plan.shape = make_size(reduced_shape(a.shape, plan.dims, keepdim))
        plan.strides = contiguous_strides(plan.shape)
        plan.nbytes = numel_of(plan.shape) * plan.dtype.itemsize
        plan.fn, plan.geometry, plan.reference = None, b"", None
        if a.device.type != "meta" and plan.nbytes:
            self._compile(plan, operands, compute, acc)
        return remember(self.plans, key, plan)

    def _compile(self, plan: ReductionPlan, operands: Values, compute: dtype, acc: dtype) -> None:
        shape = operands[0].shape
        in_dtypes = tuple([x.dtype if isinstance(x, Tensor) else number_dtype(x) for x in operands])
        known = self.traced.get((in_dtypes, compute))
        if known is None:
            known = self.traced[in_dtypes, compute] = self.trace(in_dtypes, compute), self._final()
        root, final = known
        if 0 in shape or not compiles(plan.device, *in_dtypes, compute, acc):
            count = float(np.prod([shape[d] for d in plan.dims], dtype=np.float64))
            if final is not None:
                (final,) = substitute((final,), lambda x: const(count) if x is arg(1) else None)
            plan.reference = (root, self.combine, final, in_dtypes, acc, shape)
            return
        tensors = [x for x in operands if isinstance(x, Tensor)]
        strides = [expand_strides(x.shape, x._strides, shape) for x in tensors]
        planned = plan_reduction(
            shape, [spread_strides(plan, shape), *strides], plan.dims, self.combine.startswith("arg")
        )
        steps = iter(planned.kinds)
        kinds = "".join(
            next(steps) if isinstance(x, Tensor) else ("d" if isinstance(x, float) else "l") for x in operands
        )
        plan.fn = reduce_kernel(
            root, self.combine, final, in_dtypes, plan.dtype, acc, planned.kept_rank, planned.reduced_rank,
            planned.inner, kinds, plan.device,
        )  # fmt: skip
        plan.geometry = array("q", planned.geometry).tobytes()
        fixed = getattr(plan.fn, "fixed", None)  # a launch prepared for its geometry
        if fixed is not None:
            plan.fn = fixed(plan.geometry)

    def trace(self, in_dtypes: tuple[dtype, ...], compute: dtype) -> Expr:
        """Return the mapped formula, its operands cast to the compute dtype."""
        math_type = opmath(compute)
        real_type = math_type.to_real()
        symbols: list[Any] = []
        for i, d in enumerate(in_dtypes):
            wanted = math_type if i == 0 or d.is_complex else real_type
            symbols.append(arg(i) if opmath(d) is wanted else cast(arg(i), wanted))
        return as_expr(self.formula(*symbols))

    def _final(self) -> Expr | None:
        return None if self.final is None else as_expr(self.final(arg(0), arg(1)))

    # -- derivative -------------------------------------------------------------------------------------------------
    def record(self, a: Tensor, dims: tuple[int, ...], keepdim: bool, has_dim: bool, out: Tensor) -> None:
        if out.dtype.category < 2:
            return
        edge = gradient_edge(a)
        if edge is None:
            return
        label = self.labels[-1] if has_dim else self.labels[0]
        node = named_class(ReductionNode, label)(label, (edge,))
        node.op, node.shape, node.dims, node.keepdim, node.dtype = self, a.shape, dims, keepdim, a.dtype
        node.output_info = ((out.shape, out.dtype, out.device),)
        saved: dict[str, SavedTensor] = {}
        if "input" in self.reads:
            saved["input"] = SavedTensor(a, False)
        if "out" in self.reads:
            saved["out"] = SavedTensor(out, True)
        node.saved = saved
        meta = out._autograd
        if meta is None:
            meta = out._autograd = AutogradState()
        meta.grad_fn = node


def spread_strides(plan: ReductionPlan, shape: tuple[int, ...]) -> list[int]:
    """Return the output's strides over all of the input's dimensions."""
    whole = len(plan.shape) == len(shape)
    strides, position = [], 0
    for i in range(len(shape)):
        if i in plan.dims:
            strides.append(0)
            position += whole
        else:
            strides.append(plan.strides[position])
            position += 1
    return strides


declare_saved("self", "result", "self_sym_sizes", "dim", "keepdim")


class ReductionNode(Node):
    """The recorded call of a reduction."""

    __slots__ = ("op", "shape", "dims", "keepdim", "dtype")

    op: Reduction
    shape: Size
    dims: tuple[int, ...]
    keepdim: bool
    dtype: dtype

    def apply(self, grads: list[Any]) -> tuple[Any, ...]:
        (g,) = grads
        if g is None:
            return (None,)
        saved = self.saved
        if saved is None:
            raise RuntimeError(RETRY_MESSAGE)
        assert self.op.grad is not None
        result = self.op.grad(g, *[saved[r].unpack(self) if r in saved else getattr(self, r) for r in self.op.reads])
        if result.dtype is not self.dtype:
            result = (result.real if result.dtype.is_complex and not self.dtype.is_complex else result).to(self.dtype)
        return (result,)

    def saved_fields(self, hookable: bool = False) -> dict[str, Any]:
        fields: dict[str, Any] = {"self_sym_sizes": self.shape}
        if self.label == self.op.labels[-1]:
            fields.update(dim=self.dims, keepdim=self.keepdim)
        for read in set(self.op.reads) & {"input", "out"}:
            fields["self" if read == "input" else "result"] = GONE if self.saved is None else self.saved[read]
        return fields
