"""Normalisation of groups of channels: the recorded operator behind group_norm and native_group_norm."""

from __future__ import annotations

from typing import Any

from ...core.dtype import opmath
from ...core.graph import grad_mode
from ...core.tensor import Tensor, empty, numel_of
from ...kernels.library import group_norm as kernels
from ..machinery.declare import internal
from ..machinery.inplace import raw_copy
from ..machinery.memory import dense, is_last, layout_like, without_gaps
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensors
from ..machinery.together import Wanted, gradients_of, in_place_of, wanted_of
from .max_pool import in_format_of
from .windows import need_dtype

_GAIN = -0.1  # milliseconds for a million bytes that are channels last (measured: it is a loss)


def _geometry(shape: tuple[int, ...], groups: int) -> tuple[int, int, int, int]:
    return shape[0], groups, shape[1] // groups, numel_of(shape[2:])


def _composed(g: Any, input: Any, weight: Any, bias: Any, groups: int, eps: float) -> tuple[Any, ...]:
    """Return the gradients by differentiable operators, for second derivatives. g are the three outputs' gradients."""
    batch, _, channels, space = _geometry(input.shape, groups)
    x = input.reshape(batch, groups, channels, space)
    centred = x - x.mean((2, 3), keepdim=True)
    rstd = ((centred * centred).mean((2, 3), keepdim=True) + eps).rsqrt()
    hat = centred * rstd
    dx: Any = None
    dw = db = None
    if g[0] is not None:
        plain = g[0].reshape(batch, groups, channels, space)
        scaled = plain if weight is None else plain * weight.reshape(groups, channels, 1)
        dx = rstd * (scaled - scaled.mean((2, 3), keepdim=True) - hat * (scaled * hat).mean((2, 3), keepdim=True))
        dw = None if weight is None else (plain * hat).sum((0, 3)).reshape(-1)
        db = None if bias is None else plain.sum((0, 3)).reshape(-1)
    count = channels * space
    if g[1] is not None:
        dx = (0 if dx is None else dx) + g[1].reshape(batch, groups, 1, 1) / count
    if g[2] is not None:
        dx = (0 if dx is None else dx) - g[2].reshape(batch, groups, 1, 1) * rstd * rstd * hat / count
    return dx.reshape(input.shape), dw, db


def _backward(
    g: Any,
    input: Any,
    weight: Any,
    bias: Any,
    groups: int,
    eps: float,
    mean: Tensor,
    scale: Tensor,
    needs: dict[str, bool],
) -> Any:
    g = g if isinstance(g, tuple) else (g, None, None)
    if grad_mode.enabled or g[1] is not None or g[2] is not None:
        return _composed(g, input, weight, bias, groups, eps)
    wanted = (needs["input"], needs["weight"], needs["bias"])
    return in_place_of(wanted, group_norm_grads(g[0], input, weight, bias, mean, scale, groups, wanted))


@internal(channels_last=lambda **arguments: _GAIN, returns=tuple, sums=True, batching="each")
def group_norm_grads(
    g: Tensor,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    scale: Tensor,
    groups: int,
    wanted: Wanted,
) -> NewTensors:
    """The gradients of group_norm_apply with respect to input, weight and bias, as far as wanted."""
    layouts = [layout_like(input)] if wanted[0] else []
    return layouts + gradients_of(wanted[1:], weight, bias)


@group_norm_grads.op.as_aten
def _(recorder: Any, g: Tensor, input: Tensor, weight: Any, bias: Any, mean: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    scale, groups, wanted = rest
    sizes = (input.shape[0], input.shape[1], numel_of(input.shape[2:]), groups)
    backward = recorder.aten.native_group_norm_backward.default
    return tuple(wanted_of(backward(g, input, mean, scale, weight, *sizes, wanted), wanted))


@group_norm_grads.on("any")
def _(
    out: list[Tensor], g: Tensor, input: Any, weight: Any, bias: Any, mean: Tensor, scale: Tensor, groups: int,
    wanted: Wanted,
) -> None:  # fmt: skip
    batch, _, channels, space = _geometry(input.shape, groups)
    dx, dw, db = in_place_of(wanted, out)
    input, factor = without_gaps(input), None if weight is None else dense(weight)
    shape, kept, where = (batch, groups * channels), mean.dtype, mean.device
    dots, sums = empty(shape, kept, where), empty(shape, kept, where)
    if is_last(input):
        work = empty(shape, kept, where), empty(shape, kept, where)
        kernels.group_norm_last_backward(
            dx, dots, sums, in_format_of(input, g._bare_alias()), input, mean, scale, factor, *work,
            batch, groups, channels, space,
        )  # fmt: skip
    else:
        kernels.group_norm_backward(
            dx, dots, sums, dense(g), dense(input), mean, scale, factor, batch, groups, channels, space
        )
    for total, parts in ((dw, dots), (db, sums)):
        if total is not None:
            raw_copy(total, parts.sum(0))


@internal(
    channels_last=lambda **arguments: _GAIN,
    saves=("mean", "scale"),
    grads={("input", "weight", "bias"): _backward},
    quirks=Quirks(label="NativeGroupNormBackward0", saved_as_input=True),
    sharding="batch",
    runs_empty=True,
)
def group_norm_apply(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float, statistics: bool
) -> NewTensors:
    """The normalised input and, with `statistics`, the mean and 1/std of every sample's groups. The derivative has saved copies of these,
    since the results may be changed in place, for example by a ReLU."""
    need_dtype("GroupNormKernelImpl", input)
    shape, where = (input.shape[0], groups), input.device
    shown = (shape, input.dtype if weight is None else weight.dtype, where)
    kept = (shape, opmath(input.dtype), where)
    return [layout_like(input), *((shown, shown) if statistics else ()), kept, kept]


@group_norm_apply.op.as_aten
def _(recorder: Any, input: Tensor, weight: Any, bias: Any, groups: int, eps: float, statistics: bool) -> Any:
    sizes = (input.shape[0], input.shape[1], numel_of(input.shape[2:]), groups)
    found = recorder.aten.native_group_norm.default(input, weight, bias, *sizes, eps)
    return tuple(found) if statistics else found[0]


@group_norm_apply.on("any")
def _(out: list[Tensor], input: Any, weight: Any, bias: Any, groups: int, eps: float, statistics: bool) -> None:
    batch, _, channels, space = _geometry(input.shape, groups)
    mean, rstd = out[-2:]
    if 0 not in input.shape:
        factor, shift = None if weight is None else dense(weight), None if bias is None else dense(bias)
        input = without_gaps(input)
        if is_last(input):
            work = [empty((batch, input.shape[1]), mean.dtype, mean.device) for _ in range(2)]
            kernels.group_norm_last(
                out[0], mean, rstd, input, factor, shift, *work, batch, groups, channels, space, eps
            )
        else:
            kernels.group_norm(out[0], mean, rstd, dense(input), factor, shift, batch, groups, channels, space, eps)
    if statistics:
        raw_copy(out[1], mean)
        raw_copy(out[2], rstd)
