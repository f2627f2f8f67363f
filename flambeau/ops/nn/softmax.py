"""softmax, log_softmax and softmin, with one fused kernel each for forward and backward."""

from __future__ import annotations

import warnings
from typing import Any

from ...core import modes
from ...core.dtype import dtype as dtype_type
from ...core.layout import wrap_dim
from ...core.tensor import Tensor
from ...core.typenames import type_name
from ...expr import functions as f
from ...kernels.library import softmax as kernels
from ..machinery.along import LineOperator
from ..machinery.arguments import as_dtype, is_int, need_tensor
from ..machinery.declare import composite, internal, primitive
from ..machinery.dtype_rules import unsupported
from ..machinery.formula import Pointwise, camel
from ..machinery.memory import like_first
from ..machinery.out import write_out
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor

_active = modes.active


def _declared(name: str, log_result: bool) -> Any:
    """Declare softmax or log_softmax of floating-point tensors along a dimension."""
    lines = LineOperator(kernels.softmax_rows, kernels.softmax_columns, 1, log_result=log_result)

    def along(input: Tensor, dim: int) -> NewTensor:
        d = wrap_dim(dim, len(input.shape))
        if not input.dtype.is_floating_point:
            last = "_lastdim" if d == max(len(input.shape), 1) - 1 else ""
            raise unsupported(f"{name}{last}_kernel_impl", input.dtype)
        return like_first(input)

    def backward(g: Tensor, out: Tensor, dim: int) -> Tensor:
        return (log_softmax_backward if log_result else softmax_backward)(g, out, dim, out.dtype)

    op = internal(
        along,
        name=f"{name}_along",
        shortcut=lines.known,
        grads={"input": backward},
        quirks=Quirks(label=camel(name) + "Backward0"),
        batching="along",
        aten=f"_{name}(input, dim, False)",
    )
    op.on("any")(lambda out, input, dim: lines.fill(out, dim, input))
    return op


_softmax, _log_softmax = _declared("softmax", False), _declared("log_softmax", True)
_softmax_unseen, _log_softmax_unseen = _softmax.unseen, _log_softmax.unseen  # without a mode: one call less


# -- backward: primitives with derivatives of their own ----------------------------------------------------------------

_backward, _log_backward = (
    LineOperator(kernels.softmax_backward_rows, kernels.softmax_backward_columns, 2, log_result=log).fill
    for log in (False, True)
)
_inner_term = Pointwise("softmax_inner", lambda v, g, total, weighted: v * (g - total) - g * weighted)
_log_inner_term = Pointwise("log_softmax_inner", lambda v, y, total: -v * f.exp(y) * total)
_exp_product = Pointwise("exp_product", lambda v, y: v * f.exp(y))


def _backward_layout(grad_output: Tensor, output: Tensor, dim: int, input_dtype: dtype_type) -> tuple[Any, ...]:
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


@composite(batching="along", autocast_cuda="float32")
def softmax(input: Tensor, dim: int, dtype: Any = None, *, out: Any = None) -> Tensor:
    """exp(input) divided by its sum along a dimension."""
    if type(dim) is not int or dtype is not None or not isinstance(input, Tensor):
        input = _prepare("softmax", input, dim, dtype)
    result = _softmax(input, dim) if _active else _softmax_unseen(input, dim)
    return result if out is None else write_out("softmax", out, result, exact=True)


@composite(batching="along", autocast_cuda="float32")
def log_softmax(input: Tensor, dim: int, dtype: Any = None, *, out: Any = None) -> Tensor:
    """The logarithm of softmax, without overflow."""
    if type(dim) is not int or dtype is not None or not isinstance(input, Tensor):
        input = _prepare("log_softmax", input, dim, dtype)
    result = _log_softmax(input, dim) if _active else _log_softmax_unseen(input, dim)
    return result if out is None else write_out("log_softmax", out, result, exact=True)


@composite(name="softmax", namespaces=("special",), method=False, batching="along", autocast_cuda="float32")
def special_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(input) divided by its sum along a dimension."""
    return softmax(input, dim, dtype)


@composite(name="log_softmax", namespaces=("special",), method=False, batching="along", autocast_cuda="float32")
def special_log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of softmax, without overflow."""
    return log_softmax(input, dim, dtype)


# -- nn.functional -----------------------------------------------------------------------------------------------------


def _implicit_dim(name: str, rank: int, level: int) -> int:
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=level + 1,
    )
    return 0 if rank == 0 or rank == 1 or rank == 3 else 1  # noqa: PLR1714  as compiled code says it


@composite(
    name="softmax",
    namespaces=("nn.functional",),
    method=False,
    autocast_cuda="float32",
    aten="softmax.int(input, dim, dtype)",
)
def functional_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype_type | None = None
) -> Tensor:
    """exp(input) divided by its sum along a dimension."""
    return softmax(input, _implicit_dim("softmax", len(input.shape), _stacklevel) if dim is None else dim, dtype)


@composite(
    name="log_softmax",
    namespaces=("nn.functional",),
    method=False,
    autocast_cuda="float32",
    aten="log_softmax.int(input, dim, dtype)",
)
def functional_log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype_type | None = None
) -> Tensor:
    """The logarithm of softmax, without overflow."""
    return log_softmax(
        input, _implicit_dim("log_softmax", len(input.shape), _stacklevel) if dim is None else dim, dtype
    )


@composite(namespaces=("nn.functional",), method=False, autocast_cuda="float32")
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype_type | None = None) -> Tensor:
    """Compute the softmax of the negated input."""
    return softmax(-input, _implicit_dim("softmin", len(input.shape), _stacklevel) if dim is None else dim, dtype)
