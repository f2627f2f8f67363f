"""Normalisation of layers, groups and neighbouring channels, and by root mean squares."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...core.dtype import opmath
from ...core.graph import grad_mode
from ...core.modes import active as _active
from ...core.numeric_limits import finfo
from ...core.tensor import Tensor, empty, numel_of
from ...expr.functions import rsqrt
from ...kernels.library import layer_norm as row_kernels
from ..machinery.aten_form import aten_only
from ..machinery.declare import composite, internal
from ..machinery.dtype_rules import check_parameter_dtypes, unsupported
from ..machinery.memory import bare, dense
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from ..machinery.rows import Rows
from ..machinery.together import Wanted, gradients_of, in_place_of, together
from ..shape.rearrange import constant_pad_nd
from .group_norm import group_norm_apply, group_norm_grads

_BOTH = ("nn.functional", "torch")


def _packed(t: Any) -> Any:
    """Return an optional parameter in the form kernels read."""
    return t if t is None or t._contig else bare(t)


def _need_float(name: str, t: Tensor) -> None:
    if not t.dtype.is_floating_point:
        raise unsupported(name, t.dtype)


# -- layer norm -----------------------------------------------------------------------------------------------------------


@lru_cache(1024)
def _rows(shape: tuple[int, ...], inner: int) -> tuple[int, int]:
    n = numel_of(shape[len(shape) - inner :])
    return (numel_of(shape) // n if n else 0), n


def _form(input: Any, weight: Any, bias: Any, inner: int, eps: float) -> Rows:
    """Return the formulas of layer_norm over each row."""
    n = _rows(tuple(input.shape), inner)[1]
    form = Rows(input, n)
    x = form.operand(input)
    mean = form.sum(x) / n
    rstd = rsqrt(form.sum((x - mean) * (x - mean)) / n + eps)
    y = (x - mean) * rstd
    y = y if weight is None else y * form.operand(weight, "c")
    form.store(0, y if bias is None else y + form.operand(bias, "c"))
    form.store(1, mean, "r")
    form.store(2, rstd, "r")
    return form


def _gradients_form(
    g: Any, input: Any, weight: Any, bias: Any, mean: Any, rstd: Any, inner: int, wanted: Wanted
) -> Rows:
    """Return the formulas of layer_norm's gradients over each row; those of weight and bias are sums of columns."""
    n = _rows(tuple(input.shape), inner)[1]
    form = Rows(input, n)
    slope, x, m, r = form.operand(g), form.operand(input), form.operand(mean, "r"), form.operand(rstd, "r")
    scaled = slope if weight is None else slope * form.operand(weight, "c")
    plain, moment = form.sum(scaled) / n, form.sum(scaled * (x - m)) * r / n
    found = ((scaled - plain - (x - m) * r * moment) * r, slope * (x - m) * r, slope)
    for position, k in enumerate(k for k in range(3) if wanted[k]):
        form.store(position, found[k], "c" if k else "e")
    return form


def _layer_norm_backward(
    g: Tensor,
    input: Tensor,
    weight: Any,
    bias: Any,
    inner: int,
    eps: float,
    mean: Tensor,
    rstd: Tensor,
    needs: dict[str, bool],
) -> Any:
    if grad_mode.enabled:
        return together(*_layer_norm_composed(g, input, weight, bias, inner, eps))
    wanted = (needs["input"], needs["weight"], needs["bias"])
    return in_place_of(tuple(wanted), layer_norm_grads(g, input, weight, bias, mean, rstd, inner, wanted))


@internal(
    returns=tuple,
    sums=True,
    batching="each",
    loads=("g", "input"),
    stores=(0,),
    rows=_gradients_form,
    aten="native_layer_norm_backward(g, input, last(input, inner), mean, rstd, weight, bias, list(wanted))",
)
def layer_norm_grads(
    g: Tensor,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    inner: int,
    wanted: Wanted,
) -> NewTensors:
    """The gradients of layer_norm_rows with respect to input, weight and bias, as far as wanted."""
    return gradients_of(wanted, input, weight, bias)


@layer_norm_grads.on("any")
def _(
    out: list[Tensor], g: Tensor, input: Tensor, weight: Any, bias: Any, mean: Tensor, rstd: Tensor, inner: int,
    wanted: Wanted,
) -> None:  # fmt: skip
    rows, n = _rows(input.shape, inner)
    dx, dw, db = in_place_of(wanted, out)
    chunks = min(rows, 32)
    partial = empty((chunks, 2, n), mean.dtype, mean.device) if wanted[1] or wanted[2] else None
    row_kernels.layer_norm_backward(dx, partial, dense(g), dense(input), mean, rstd, _packed(weight), rows, n, chunks)
    if partial is not None:
        row_kernels.add_pairs(dw, db, partial, chunks, n)


def _layer_norm_composed(g: Tensor, input: Tensor, weight: Any, bias: Any, inner: int, eps: float) -> tuple[Any, ...]:
    """Compute layer_norm's gradients from differentiable operators, for second derivatives."""
    dims = list(range(len(input.shape) - inner, len(input.shape)))
    outer = list(range(len(input.shape) - inner))
    centred = input - input.mean(dims, keepdim=True)
    rstd = ((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()
    hat = centred * rstd
    scaled = g if weight is None else g * weight
    dx = rstd * (scaled - scaled.mean(dims, keepdim=True) - hat * (scaled * hat).mean(dims, keepdim=True))
    dw = None if weight is None else ((g * hat).sum(outer) if outer else g * hat)
    db = None if bias is None else (g.sum(outer) if outer else g)
    return dx, dw, db


@internal(
    saves=("mean", "rstd"),
    grads={("input", "weight", "bias"): _layer_norm_backward},
    quirks=Quirks(label="NativeLayerNormBackward0", saved_as_input=True),
    sharding="leading",
    loads=("input",),
    stores=(0,),
    rows=_form,
    aten="native_layer_norm(input, last(input, inner), weight, bias, eps)[0]",
)
def layer_norm_rows(input: Tensor, weight: Tensor | None, bias: Tensor | None, inner: int, eps: float) -> NewTensor:
    """Normalise over the last `inner` dimensions; saves mean and rstd."""
    _need_float("LayerNormKernelImpl", input)
    kept, where = opmath(input.dtype), input.device
    statistics = ((_rows(input.shape, inner)[0],), kept, where)
    return [(input.shape, input.dtype, where), statistics, statistics]


@layer_norm_rows.on("any")
def _(out: list[Tensor], input: Tensor, weight: Any, bias: Any, inner: int, eps: float) -> None:
    rows, n = _rows(input.shape, inner)
    row_kernels.layer_norm(*out, dense(input), _packed(weight), _packed(bias), rows, n, float(eps))


@internal(sharding="leading", loads=("input",), stores=(0,), rows=_form)
def layer_norm_result(input: Tensor, weight: Tensor | None, bias: Tensor | None, inner: int, eps: float) -> NewTensor:
    """Normalise as layer_norm_rows does, without saving anything for a derivative."""
    _need_float("LayerNormKernelImpl", input)
    return input.shape, input.dtype, input.device


@layer_norm_result.on("any")
def _(out: Tensor, input: Tensor, weight: Any, bias: Any, inner: int, eps: float) -> None:
    rows, n = _rows(input.shape, inner)
    row_kernels.layer_norm(out, None, None, dense(input), _packed(weight), _packed(bias), rows, n, float(eps))


def _check_normalized(input: Tensor, normalized_shape: Any, weight: Any, bias: Any) -> tuple[int, ...]:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape:
        raise RuntimeError(
            f"Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got normalized_shape = {list(shape)}"
        )
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != shape:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape {list(t.shape)} and normalized_shape = {list(shape)}"
            )
    if len(input.shape) < len(shape) or tuple(input.shape[len(input.shape) - len(shape) :]) != shape:
        stars = ", ".join(["*", *map(str, shape)])
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [{stars}], but got input of size{list(input.shape)}"
        )
    return shape


@composite(
    method=False,
    namespaces=_BOTH,
    autocast_cuda="float32",
    aten="layer_norm(input, normalized_shape, weight, bias, eps, False)",
)
def layer_norm(input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Normalise over the last dimensions, then scale and shift."""
    shape = _check_normalized(input, normalized_shape, weight, bias)
    check_parameter_dtypes(input, weight, bias)
    if not grad_mode.enabled and not _active:
        return layer_norm_result(input, weight, bias, len(shape), eps)
    return layer_norm_rows(input, weight, bias, len(shape), eps)


@composite(
    method=False,
    autocast_cuda="float32",
    aten_backward="native_layer_norm_backward(grad, input, normalized_shape, result1, result2, weight, bias, needs(input, weight, bias))",
)
def native_layer_norm(input: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Tensor, ...]:
    """layer_norm together with the mean and 1/std it used."""
    shape = _check_normalized(input, normalized_shape, weight, bias)
    dims = list(range(len(input.shape) - len(shape), len(input.shape)))
    kept = input.dtype if weight is None else weight.dtype
    wide = input.detach().to(opmath(input.dtype))
    mean = wide.mean(dims, keepdim=True)
    rstd = (wide.var(dims, correction=0, keepdim=True) + eps).rsqrt()
    return layer_norm(input, shape, weight, bias, eps), mean.to(kept), rstd.to(kept)


@aten_only("native_layer_norm_backward")
def _native_layer_norm_backward(
    grad: Tensor, input: Tensor, shape: list[int], mean: Tensor, rstd: Tensor, weight: Any, bias: Any, wanted: list[Any]
) -> tuple[Any, ...]:
    size = numel_of(_check_normalized(input, shape, weight, bias))
    if grad.shape != input.shape or not mean.numel() * size == rstd.numel() * size == input.numel():
        raise RuntimeError(f"gradient and statistics do not fit an input of sizes {list(input.shape)}")
    given = (grad, input, weight, bias, dense(mean).reshape(-1), dense(rstd).reshape(-1))
    return tuple(in_place_of(tuple(wanted), layer_norm_grads(*given, len(shape), tuple(wanted))))


@composite(method=False, namespaces=_BOTH)
def rms_norm(input: Tensor, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Tensor:
    """Divide by the root mean square of the last dimensions, then scale."""
    shape = _check_normalized(input, normalized_shape, weight, None)
    dims = list(range(len(input.shape) - len(shape), len(input.shape)))
    if not (input.dtype.is_floating_point or input.dtype.is_complex):
        raise unsupported("rms_norm", input.dtype)
    computed = opmath(input.dtype)
    if eps is None:
        eps = finfo(computed).eps
    wide = input.to(computed)
    result = wide * ((wide * wide).mean(dims, keepdim=True) + eps).rsqrt()
    return (result if weight is None else result * weight).to(input.dtype)


# -- groups and neighbours ------------------------------------------------------------------------------------------------


@composite(
    method=False,
    namespaces=("nn.functional",),
    autocast_cuda="float32",
    aten="group_norm(input, num_groups, weight, bias, eps, False)",
)
def group_norm(input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Normalise groups of channels of every sample."""
    if len(input.shape) >= 2:
        per_group = input.shape[0] * input.shape[1] // num_groups  # ZeroDivisionError for no groups, as PyTorch
        if per_group * numel_of(input.shape[2:]) == 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {list(input.shape)}"
            )
    return _group_norm(input, num_groups, weight, bias, eps)


@composite(method=False, namespaces=("torch",), name="group_norm", autocast_cuda="float32")
def torch_group_norm(
    input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Tensor:
    """Normalise groups of channels of every sample, even of one element."""
    return _group_norm(input, num_groups, weight, bias, eps)


def _group_norm(input: Tensor, num_groups: int, weight: Any, bias: Any, eps: float) -> Tensor:
    if len(input.shape) < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {len(input.shape)}")
    channels = input.shape[1]
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if channels % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape {list(input.shape)} and num_groups={num_groups}"
        )
    check_parameter_dtypes(input, weight, bias)
    _check_channels(input, channels, weight, bias)
    return group_norm_apply(input, weight, bias, num_groups, float(eps), False)


def _check_channels(input: Tensor, channels: int, weight: Any, bias: Any) -> None:
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and (len(t.shape) != 1 or t.numel() != channels):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, but got {name} of shape {list(t.shape)} and input of shape {list(input.shape)}"
            )


@composite(
    method=False,
    aten_backward="native_group_norm_backward(grads, input, result1, result2, weight, N, C, HxW, group, needs(input, weight, bias))",
)
def native_group_norm(
    input: Tensor, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """group_norm together with the mean and 1/std of every group."""
    if input.numel() != N * C * HxW or group <= 0 or C % group:
        raise RuntimeError(
            f"Expected input of {N} * {C} * {HxW} elements in groups that divide {C}, but got {list(input.shape)} and {group}"
        )
    _check_channels(input, C, weight, bias)
    out, mean, rstd = group_norm_apply(input.reshape(N, C, HxW), weight, bias, group, float(eps), True)
    return out.reshape(input.shape), mean, rstd


@aten_only("native_group_norm_backward")
def _native_group_norm_backward(
    grad: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, weight: Any, N: int, C: int, HxW: int, group: int, wanted: list[Any]
) -> tuple[Any, ...]:  # fmt: skip
    shape = (N, C, HxW)
    if not mean.numel() == rstd.numel() == N * group:
        raise RuntimeError(
            f"Expected statistics of {N} * {group} groups, but got {list(mean.shape)} and {list(rstd.shape)}"
        )
    _check_channels(input, C, weight, None)
    given = (grad.reshape(shape), input.reshape(shape), weight, weight, mean, rstd, group, tuple(wanted))
    dx, dw, db = in_place_of(tuple(wanted), group_norm_grads(*given))
    return None if dx is None else dx.reshape(input.shape), dw, db


@composite(method=False, namespaces=("nn.functional",))
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Divide by a power of the mean square of neighbouring channels."""
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    if input.numel() == 0:
        return input
    if size <= 0:
        window = f"kH: {size} kW: 1" if input.dim() == 3 else f"kT: {size} kH: 1 kW: 1"
        raise RuntimeError(f"kernel size should be greater than zero, but got {window}")
    squares = constant_pad_nd((input * input).movedim(1, -1), [size // 2, (size - 1) // 2])
    total = squares.unfold(-1, size, 1).sum(-1)
    average = total / size if input.is_floating_point() or input.is_complex() else total // size
    return input / (average.movedim(-1, 1) * alpha + k) ** beta
