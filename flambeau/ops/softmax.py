"""softmax, log_softmax and softmin, with one fused kernel each for forward and backward."""

from __future__ import annotations

import warnings
from typing import Any

from ..core.device import cpu
from ..core.dtype import dtype as dtype_type
from ..core.graph import Node, SavedTensor, gradient_edge, mode
from ..core.layout import wrap_dim
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, contiguous_strides, new_tensor, numel_of
from ..core.typenames import type_name
from ..expr import functions as f
from ..kernels.library import softmax as kernels
from .along import contiguous, split_at
from .arguments import as_dtype, is_int
from .declare import composite, primitive
from .formula import RETRY_MESSAGE, Pointwise, camel, type_word
from .reduction import require_tensor, write_exactly


class _Plan:
    """How softmax of one shape along one dimension is computed."""

    __slots__ = ("dim", "lines", "native", "kernel", "nbytes", "strides")

    dim: int
    lines: tuple[int, ...]  # outer, n and, unless it is 1, inner
    native: Any
    kernel: Any
    nbytes: int
    strides: tuple[int, ...]


class _Softmax:
    """softmax or log_softmax: a forward and a backward kernel with plans by shape."""

    def __init__(self, name: str, log_result: bool):
        self.name, self.log_result = name, log_result
        self.label = camel(name) + "Backward0"
        self.plans: dict[tuple, _Plan] = {}
        self.backward_plans: dict[tuple, _Plan] = {}

    def plan(self, x: Tensor, dim: int) -> _Plan:
        rank = len(x.shape)
        plan = _Plan()
        d = plan.dim = wrap_dim(dim, rank)
        if not x.dtype.is_floating_point:
            last = "_lastdim" if d == max(rank, 1) - 1 else ""
            raise NotImplementedError(f"\"{self.name}{last}_kernel_impl\" not implemented for '{type_word(x.dtype)}'")
        outer, n, inner = split_at(x.shape, d)
        plan.lines = (outer, n) if inner == 1 else (outer, n, inner)
        plan.nbytes = numel_of(x.shape) * x.dtype.itemsize
        plan.strides = contiguous_strides(x.shape)
        plan.kernel = plan.native = None
        return plan

    def forward(self, x: Tensor, dim: int) -> Tensor:
        plan = self.plans.get((x.dtype, x.shape, dim, x.device))
        if plan is None:
            plan = self._remember(self.plans, self.plan(x, dim), x, dim, 2)
        out = _empty_like(x, plan)
        source = x if x._contig else contiguous(x)
        native = plan.native
        if native is not None:
            native(out._storage.ptr, source._storage.ptr + source._offset * source.dtype.itemsize, *plan.lines)
        elif plan.kernel is not None:
            plan.kernel(out, source, *plan.lines, log_result=self.log_result)
        if x._meta is not None and mode.enabled:
            self.record(x, plan.dim, out)
        return out

    def backward(self, g: Tensor, y: Tensor, dim: int) -> Tensor:
        if g.shape != y.shape or g.dtype is not y.dtype:
            raise RuntimeError(
                f"{self.name}: the gradient must be like the output, {y.dtype} of shape {list(y.shape)}, but is"
                f" {g.dtype} of"
                f" shape {list(g.shape)}"
            )
        plan = self.backward_plans.get((y.dtype, y.shape, dim, y.device))
        if plan is None:
            plan = self._remember(self.backward_plans, self.plan(y, dim), y, dim, 3)
        out = _empty_like(y, plan)
        grad, output = (g if g._contig else contiguous(g)), (y if y._contig else contiguous(y))
        native = plan.native
        if native is not None:
            native(
                out._storage.ptr,
                grad._storage.ptr + grad._offset * grad.dtype.itemsize,
                output._storage.ptr + output._offset * output.dtype.itemsize,
                *plan.lines,
            )
        elif plan.kernel is not None:
            plan.kernel(out, grad, output, *plan.lines, log_result=self.log_result)
        return out

    def _remember(self, plans: dict[tuple, _Plan], plan: _Plan, x: Tensor, dim: int, buffers: int) -> _Plan:
        if plan.nbytes and x.device is cpu:
            plan.kernel = _KERNELS[buffers, len(plan.lines)]
            kinds = (x.dtype,) * buffers + (int,) * len(plan.lines)
            plan.native = plan.kernel.native(*kinds, log_result=self.log_result)
        if len(plans) >= _MAX_PLANS:
            plans.clear()
        plans[x.dtype, x.shape, dim, x.device] = plan
        return plan

    def record(self, x: Tensor, dim: int, out: Tensor) -> None:
        edge = gradient_edge(x)
        if edge is not None:
            node = _SoftmaxNode(self.label, (edge,))
            node.op, node.dim, node.saved = self, dim, SavedTensor(out, True)
            node.output_info = ((out.shape, out.dtype, out.device),)
            out._set_history(node)


_KERNELS = {
    (2, 2): kernels.softmax_rows,
    (2, 3): kernels.softmax_columns,
    (3, 2): kernels.softmax_backward_rows,
    (3, 3): kernels.softmax_backward_columns,
}
_MAX_PLANS = 4096


def _empty_like(x: Tensor, plan: _Plan) -> Tensor:
    return new_tensor(UntypedStorage(plan.nbytes, x.device), x.shape, plan.strides, 0, x.dtype, x.device, True)


class _SoftmaxNode(Node):
    __slots__ = ("op", "dim")

    op: _Softmax
    dim: int

    def apply(self, grads: list) -> tuple:
        (g,) = grads
        if g is None:
            return (None,)
        if self.saved is None:
            raise RuntimeError(RETRY_MESSAGE)
        out = self.saved.unpack(self)
        backward = log_softmax_backward if self.op.log_result else softmax_backward
        return (backward(g, out, self.dim, out.dtype),)


_softmax, _log_softmax = _Softmax("softmax", False), _Softmax("log_softmax", True)


# -- backward: primitives with derivatives of their own ----------------------------------------------------------------

_inner_term = Pointwise("softmax_inner", lambda v, g, total, weighted: v * (g - total) - g * weighted)
_log_inner_term = Pointwise("log_softmax_inner", lambda v, y, total: -v * f.exp(y) * total)
_exp_product = Pointwise("exp_product", lambda v, y: v * f.exp(y))


def _softmax_output_grad(v: Tensor, grad_output: Tensor, output: Tensor, dim: int) -> Tensor:
    total = (grad_output * output).sum(dim, True)
    weighted = (v * output).sum(dim, True)
    return _inner_term.call((v, grad_output, total, weighted))


@primitive(
    grads={
        "grad_output": lambda v, output, dim, input_dtype: softmax_backward(v, output, dim, input_dtype),
        "output": _softmax_output_grad,
    },
    name="_softmax_backward_data",
    label="SoftmaxBackwardDataBackward0",
    method=False,
)
def softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: dtype_type) -> Tensor:
    """The gradient of softmax: output * (grad - sum(grad * output))."""
    return _softmax.backward(grad_output, output, dim)


def _log_softmax_output_grad(v: Tensor, grad_output: Tensor, output: Tensor, dim: int) -> Tensor:
    return _log_inner_term.call((v, output, grad_output.sum(dim, True)))


@primitive(
    grads={
        "grad_output": lambda v, output, dim: v - _exp_product.call((v, output)).sum(dim, True),
        "output": _log_softmax_output_grad,
    },
    name="_log_softmax_backward_data",
    label="LogSoftmaxBackwardDataBackward0",
    method=False,
)
def log_softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: dtype_type) -> Tensor:
    """The gradient of log_softmax: grad - exp(output) * sum(grad)."""
    return _log_softmax.backward(grad_output, output, dim)


# -- forward -----------------------------------------------------------------------------------------------------------


def _refuse_half_to_float(half_to_float: bool, name: str) -> None:
    if half_to_float:
        raise RuntimeError(f"{name} with half to float conversion is not supported on CPU")


@composite(name="_softmax", method=False)
def raw_softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """softmax without a dtype argument."""
    _refuse_half_to_float(half_to_float, "softmax")
    return _softmax.forward(input, dim)


@composite(name="_log_softmax", method=False)
def raw_log_softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """log_softmax without a dtype argument."""
    _refuse_half_to_float(half_to_float, "log_softmax")
    return _log_softmax.forward(input, dim)


def _prepare(name: str, input: Tensor, dim: Any, dtype: Any) -> Tensor:
    require_tensor(name, input)
    if not is_int(dim):
        raise TypeError(f"{name}(): argument 'dim' (position 2) must be int, not {type_name(dim)}")
    return input if dtype is None else input.to(as_dtype(dtype, name))


@composite
def softmax(input: Tensor, dim: int, dtype: Any = None, *, out: Any = None) -> Tensor:
    """exp(input) divided by its sum along a dimension."""
    if type(dim) is not int or dtype is not None or not isinstance(input, Tensor):
        input = _prepare("softmax", input, dim, dtype)
    result = _softmax.forward(input, dim)
    return result if out is None else write_exactly("softmax", out, result)


@composite
def log_softmax(input: Tensor, dim: int, dtype: Any = None, *, out: Any = None) -> Tensor:
    """The logarithm of softmax, without overflow."""
    if type(dim) is not int or dtype is not None or not isinstance(input, Tensor):
        input = _prepare("log_softmax", input, dim, dtype)
    result = _log_softmax.forward(input, dim)
    return result if out is None else write_exactly("log_softmax", out, result)


@composite(name="softmax", namespaces=("special",), method=False)
def special_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(input) divided by its sum along a dimension."""
    return softmax(input, dim, dtype)


@composite(name="log_softmax", namespaces=("special",), method=False)
def special_log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of softmax, without overflow."""
    return log_softmax(input, dim, dtype)


# -- nn.functional -----------------------------------------------------------------------------------------------------


def _implicit_dim(name: str, rank: int, level: int) -> int:
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=level + 1,
    )
    return 0 if rank in (0, 1, 3) else 1


@composite(name="softmax", namespaces=("nn.functional",), method=False)
def functional_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(input) divided by its sum along a dimension."""
    return softmax(input, _implicit_dim("softmax", len(input.shape), _stacklevel) if dim is None else dim, dtype)


@composite(name="log_softmax", namespaces=("nn.functional",), method=False)
def functional_log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """The logarithm of softmax, without overflow."""
    return log_softmax(
        input, _implicit_dim("log_softmax", len(input.shape), _stacklevel) if dim is None else dim, dtype
    )


@composite(namespaces=("nn.functional",), method=False)
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax of the negated input."""
    return softmax(-input, _implicit_dim("softmin", len(input.shape), _stacklevel) if dim is None else dim, dtype)
