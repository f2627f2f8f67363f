"""linear: a product with a transposed weight and a bias, with the gradients of all three."""

from __future__ import annotations

from typing import Any

from ...core import modes
from ...core.graph import grad_mode
from ...core.tensor import Tensor
from ..machinery import work
from ..machinery.arguments import need_tensors
from ..machinery.declare import composite, internal
from ..machinery.inplace import raw_copy
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from ..reduce.sums import sum_
from .matmul import batched, check_device, matmul, multiply, numel, same_dtype, same_dtype_with_bias, shortcut_of


def _linear_input_grad(g: Tensor, weight: Tensor) -> Tensor:
    return g.matmul(weight.conj() if weight.dtype.is_complex else weight)


def _linear_weight_grad(g: Tensor, input: Tensor) -> Tensor:
    input = input.conj() if input.dtype.is_complex else input
    count = numel(g.shape[:-1])
    rows = g.reshape(count, g.shape[-1])
    return rows.mT.mm(input.reshape(count, input.shape[-1])) if len(g.shape) != 1 else g.outer(input)


def _linear_parameter_grads(g: Tensor, input: Tensor, bias_shape: Any) -> tuple[Any, ...]:
    """Return the gradients of bias and weight: together if a library sums rows while it multiplies, and they are not differentiated again."""
    if not _fused or g.device.type not in _fused or grad_mode.enabled or not type(g) is type(input) is Tensor:
        return g.sum_to_size(bias_shape), _linear_weight_grad(g, input)
    count = numel(g.shape[:-1])
    return linear_grads(g.reshape(count, g.shape[-1]), input.reshape(count, input.shape[-1]))[::-1]


@internal(returns=tuple, batching="each", flops=work.mm, beside=True)
def linear_weight_grads(g: Tensor, input: Tensor) -> NewTensors:
    """The gradient of a linear layer's weight: g.T @ input."""
    return [((g.shape[1], input.shape[1]), g.dtype, g.device)]


@linear_weight_grads.on("any")
def _(out: list[Tensor], g: Tensor, input: Tensor) -> None:
    raw_copy(out[0], g._bare_alias().mT.mm(input._bare_alias()))


@internal(
    returns=tuple,
    sums=True,
    batching="each",
    aten="mm",
    flops=work.mm,
    summed=("g", linear_weight_grads, sum_),
    beside=True,
)
def linear_grads(g: Tensor, input: Tensor) -> NewTensors:
    """The gradients of a linear layer's weight and bias, from that of its result and the input, both as matrices: g.T @ input, and the
    sum of g's rows."""
    return [((g.shape[1], input.shape[1]), g.dtype, g.device), ((g.shape[1],), g.dtype, g.device)]


_fused = linear_grads.op.kernels  # of devices whose library does both


@internal(
    shortcut=shortcut_of("linear"),
    grads={
        "bias": lambda g, bias_shape: g.sum_to_size(bias_shape),
        "input": _linear_input_grad,
        "weight": _linear_weight_grad,
        ("bias", "weight"): _linear_parameter_grads,
    },
    quirks=Quirks(label="AddmmBackward0"),
    aten="addmm",
    flops=work.linear,
    sharding="...k,nk,+n->...n",
)
def linear_matrix(input: Tensor, weight: Tensor, bias: Tensor | None) -> NewTensor:
    """input @ weight.T + bias for a weight of two dimensions, batch dimensions folded into rows."""
    _check_linear(input, weight, bias)
    check_device(input, weight, bias)
    return (*input.shape[:-1], weight.shape[0]), input.dtype, input.device


@linear_matrix.op.as_aten
def _(recorder: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    aten, rank = recorder.aten, len(input.shape)
    if rank != 2 and not input.is_contiguous():
        product = recorder.again(matmul if weight.requires_grad else batched, (input, aten.t.default(weight)), {})
        return product if bias is None else aten.add.Tensor(product, bias)
    rows = input if rank == 2 else aten.view.default(input, [numel(input.shape[:-1]), input.shape[-1]])
    turned = aten.t.default(weight)
    product = aten.mm.default(rows, turned) if bias is None else aten.addmm.default(bias, rows, turned)
    return product if rank == 2 else aten.view.default(product, [*input.shape[:-1], weight.shape[0]])


@linear_matrix.on("cpu")
def _(out: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    k, m = input.shape[-1], weight.shape[0]
    rows = input if len(input.shape) == 2 else input.reshape(numel(input.shape[:-1]), k)
    result = out if len(input.shape) == 2 else out._view((rows.shape[0], m), (m, 1), 0)
    multiply("linear", out, input, weight, bias, (result, rows, weight.t()))


@composite(method=False, namespaces=("nn.functional",), out="exact", autocast="lower", sharding="...k,nk,+n->...n")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias"""
    if not isinstance(input, Tensor) or not isinstance(weight, Tensor):
        need_tensors("linear", input=input, weight=weight)
    if len(weight.shape) == 1 and bias is None:
        return input.matmul(weight)
    if len(weight.shape) != 2:
        raise RuntimeError(f"mat2 must be a matrix, got {len(weight.shape)}-D tensor")
    if bias is None or (isinstance(bias, Tensor) and bias.shape == (weight.shape[0],) and _is_dense(bias)):
        return linear_matrix(input, weight, bias)
    need_tensors("linear", input=input, weight=weight, bias=bias)
    _check_linear(input, weight, bias)
    return linear_matrix(input, weight, None) + bias.expand((*input.shape[:-1], weight.shape[0]))


def _is_dense(t: Tensor) -> bool:
    return t.is_contiguous() if modes.active else t._contig  # a tensor that only a mode knows may have no memory


def _check_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Raise PyTorch's errors about shapes and dtypes that do not fit together."""
    if not input.shape:
        raise RuntimeError("both arguments to linear need to be at least 1D, but they are 0D and 2D")
    if input.shape[-1] != weight.shape[1]:
        rows, cols = numel(input.shape[:-1]), input.shape[-1]
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{cols} and {weight.shape[1]}x{weight.shape[0]})"
        )
    if bias is None:
        same_dtype(input, weight)
    else:
        same_dtype_with_bias(bias, input, weight)
