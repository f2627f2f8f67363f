"""softmax, log_softmax and softmin, with one fused kernel each for forward and backward."""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

from ...core.dtype import dtype as dtype_type
from ...core.graph import GONE, RETRY_MESSAGE, Node, SavedTensor, declare_saved, grad_mode, gradient_edge, named_class
from ...core.layout import wrap_dim
from ...core.tensor import Tensor
from ...core.typenames import type_name
from ...expr import functions as f
from ...kernels.library import softmax as kernels
from ..machinery.along import LineOperator
from ..machinery.arguments import as_dtype, is_int, need_tensor
from ..machinery.declare import composite, primitive
from ..machinery.dtype_rules import unsupported
from ..machinery.formula import Pointwise, camel
from ..machinery.inplace import write_out
from ..machinery.quirks import Quirks


class _Softmax:
    """softmax or log_softmax: its kernels, and how it is recorded. Written by hand because it is small and called often."""

    def __init__(self, name: str, log_result: bool):
        self.name, self.log_result = name, log_result
        self.label = camel(name) + "Backward0"
        self.lines = LineOperator(kernels.softmax_rows, kernels.softmax_columns, 1, log_result=log_result)
        self.run = self.lines.one

    def forward(self, x: Tensor, dim: int) -> Tensor:
        if not x.dtype.is_floating_point:
            self.refuse(x.dtype, dim, len(x.shape))
        out = self.run(x, dim)
        if (x._autograd is not None or x._base is not None) and grad_mode.enabled:
            self.record(x, dim, out)
        return out

    def refuse(self, d: dtype_type, dim: int, rank: int) -> NoReturn:
        last = "_lastdim" if wrap_dim(dim, rank) == max(rank, 1) - 1 else ""
        raise unsupported(f"{self.name}{last}_kernel_impl", d)

    def layout(self, input: Tensor, dim: int, dtype: Any = None, *, out: Any = None) -> tuple:
        d = input.dtype if dtype is None else as_dtype(dtype, self.name)
        if not d.is_floating_point:
            self.refuse(d, dim, len(input.shape))
        wrap_dim(dim, len(input.shape))
        return input.shape, d, input.device

    def fill(self, result: Tensor, input: Tensor, dim: int, dtype: Any = None, *, out: Any = None) -> None:
        self.lines.fill(result, dim, input.to(result.dtype))

    def record(self, x: Tensor, dim: int, out: Tensor) -> None:
        edge = gradient_edge(x)
        if edge is not None:
            node = named_class(_SoftmaxNode, self.label)(self.label, (edge,))
            node.op, node.dim, node.saved = self, dim, SavedTensor(out, True)
            node.output_info = ((out.shape, out.dtype, out.device),)
            out._set_history(node)


declare_saved("dim", "result")


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

    def saved_fields(self, hookable: bool = False) -> dict[str, Any]:
        return {"dim": self.dim, "result": GONE if self.saved is None else self.saved}


_softmax, _log_softmax = _Softmax("softmax", False), _Softmax("log_softmax", True)


# -- backward: primitives with derivatives of their own ----------------------------------------------------------------

_backward, _log_backward = (
    LineOperator(kernels.softmax_backward_rows, kernels.softmax_backward_columns, 2, log_result=log).fill
    for log in (False, True)
)
_inner_term = Pointwise("softmax_inner", lambda v, g, total, weighted: v * (g - total) - g * weighted)
_log_inner_term = Pointwise("log_softmax_inner", lambda v, y, total: -v * f.exp(y) * total)
_exp_product = Pointwise("exp_product", lambda v, y: v * f.exp(y))


def _backward_layout(grad_output: Tensor, output: Tensor, dim: int, input_dtype: dtype_type) -> tuple:
    if grad_output.shape != output.shape or grad_output.dtype is not output.dtype:
        raise RuntimeError(
            f"softmax: the gradient must be like the output, {output.dtype} of shape {list(output.shape)}, but is"
            f" {grad_output.dtype} of shape {list(grad_output.shape)}"
        )
    return output.shape, output.dtype, output.device


def _softmax_output_grad(v: Tensor, grad_output: Tensor, output: Tensor, dim: int) -> Tensor:
    total = (grad_output * output).sum(dim, True)
    weighted = (v * output).sum(dim, True)
    return _inner_term.call((v, grad_output, total, weighted))


@primitive(
    layout=_backward_layout,
    grads={
        "grad_output": lambda v, output, dim, input_dtype: softmax_backward(v, output, dim, input_dtype),
        "output": _softmax_output_grad,
    },
    name="_softmax_backward_data",
    quirks=Quirks(label="SoftmaxBackwardDataBackward0"),
    method=False,
    batching="along",
)
def softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: dtype_type) -> Tensor:
    """The gradient of softmax: output * (grad - sum(grad * output))."""


@softmax_backward.on("any")
def _(out: Tensor, grad_output: Tensor, output: Tensor, dim: int, input_dtype: dtype_type) -> None:
    _backward(out, dim, grad_output, output)


def _log_softmax_output_grad(v: Tensor, grad_output: Tensor, output: Tensor, dim: int) -> Tensor:
    return _log_inner_term.call((v, output, grad_output.sum(dim, True)))


@primitive(
    layout=_backward_layout,
    grads={
        "grad_output": lambda v, output, dim: v - _exp_product.call((v, output)).sum(dim, True),
        "output": _log_softmax_output_grad,
    },
    name="_log_softmax_backward_data",
    quirks=Quirks(label="LogSoftmaxBackwardDataBackward0"),
    method=False,
    batching="along",
)
def log_softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: dtype_type) -> Tensor:
    """The gradient of log_softmax: grad - exp(output) * sum(grad)."""


@log_softmax_backward.on("any")
def _(out: Tensor, grad_output: Tensor, output: Tensor, dim: int, input_dtype: dtype_type) -> None:
    _log_backward(out, dim, grad_output, output)


# -- forward -----------------------------------------------------------------------------------------------------------


def _refuse_half_to_float(half_to_float: bool, name: str) -> None:
    if half_to_float:
        raise RuntimeError(f"{name} with half to float conversion is not supported on CPU")


@composite(name="_softmax", method=False, batching="along")
def raw_softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """softmax without a dtype argument."""
    _refuse_half_to_float(half_to_float, "softmax")
    return softmax(input, dim)


@composite(name="_log_softmax", method=False, batching="along")
def raw_log_softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """log_softmax without a dtype argument."""
    _refuse_half_to_float(half_to_float, "log_softmax")
    return log_softmax(input, dim)


def _prepare(name: str, input: Tensor, dim: Any, dtype: Any) -> Tensor:
    need_tensor(name, input)
    if not is_int(dim):
        raise TypeError(f"{name}(): argument 'dim' (position 2) must be int, not {type_name(dim)}")
    return input if dtype is None else input.to(as_dtype(dtype, name))


@composite(kind="primitive", layout=_softmax.layout, batching="along")
def softmax(input: Tensor, dim: int, dtype: Any = None, *, out: Any = None) -> Tensor:
    """exp(input) divided by its sum along a dimension."""
    if type(dim) is not int or dtype is not None or not isinstance(input, Tensor):
        input = _prepare("softmax", input, dim, dtype)
    result = _softmax.forward(input, dim)
    return result if out is None else write_out("softmax", out, result, exact=True)


softmax.op.on("any")(_softmax.fill)


@composite(kind="primitive", layout=_log_softmax.layout, batching="along")
def log_softmax(input: Tensor, dim: int, dtype: Any = None, *, out: Any = None) -> Tensor:
    """The logarithm of softmax, without overflow."""
    if type(dim) is not int or dtype is not None or not isinstance(input, Tensor):
        input = _prepare("log_softmax", input, dim, dtype)
    result = _log_softmax.forward(input, dim)
    return result if out is None else write_out("log_softmax", out, result, exact=True)


log_softmax.op.on("any")(_log_softmax.fill)


@composite(name="softmax", namespaces=("special",), method=False, batching="along")
def special_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(input) divided by its sum along a dimension."""
    return softmax(input, dim, dtype)


@composite(name="log_softmax", namespaces=("special",), method=False, batching="along")
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
