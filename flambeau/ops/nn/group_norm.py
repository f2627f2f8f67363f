"""Normalising groups of channels: the recorded operator behind group_norm and native_group_norm."""

from __future__ import annotations

from typing import Any

from ...core.dtype import opmath
from ...core.graph import grad_mode
from ...core.tensor import Tensor, empty, numel_of
from ...kernels.library import group_norm as kernels
from ..machinery.declare import internal
from ..machinery.memory import bare, is_computed, is_last, new_like, without_gaps
from ..machinery.primitive import Saved
from .max_pool import in_format_of
from .windows import need_dtype


def _geometry(shape: tuple[int, ...], groups: int) -> tuple[int, int, int, int]:
    return shape[0], groups, shape[1] // groups, numel_of(shape[2:])


def _composed(g: Any, input: Any, weight: Any, bias: Any, groups: int, eps: float) -> tuple:
    """The gradients out of differentiable operators, for second derivatives. g are the three outputs' gradients."""
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
    g: tuple, input: Any, weight: Any, bias: Any, groups: int, eps: float, mean: Tensor, scale: Tensor, needs: dict
) -> tuple:
    if grad_mode.enabled or g[1] is not None or g[2] is not None:
        return _composed(g, input, weight, bias, groups, eps)
    kept = opmath(input.dtype)
    batch, _, channels, space = _geometry(input.shape, groups)
    input = without_gaps(input)
    last = is_last(input)
    dx = (new_like(input, input.shape) if last else empty(input.shape, input.dtype)) if needs["input"] else None
    dots, sums = empty((batch, groups * channels), kept), empty((batch, groups * channels), kept)
    if not input.numel():
        zeros = [None if t is None else t.new_zeros(t.shape) for t in (weight, bias)]
        return input.new_zeros(input.shape), *zeros
    factor = None if weight is None else bare(weight)
    if last:
        kernels.group_norm_last_backward(
            dx, dots, sums, in_format_of(input, g[0]._bare_alias()), input._bare_alias(), mean, scale, factor,
            empty(dots.shape, kept), empty(dots.shape, kept), batch, groups, channels, space,
        )  # fmt: skip
    else:
        kernels.group_norm_backward(
            dx, dots, sums, bare(g[0]), bare(input), mean, scale, factor, batch, groups, channels, space
        )
    dw = dots.sum(0).to(weight.dtype) if needs["weight"] else None
    db = sums.sum(0).to(bias.dtype) if needs["bias"] else None
    return dx, dw, db


@internal(grads={("input", "weight", "bias"): _backward}, label="NativeGroupNormBackward0")
def group_norm_apply(input: Any, weight: Any, bias: Any, groups: int, eps: float) -> Any:
    """The normalised input, and the mean and 1/std of every sample's groups."""
    need_dtype("GroupNormKernelImpl", input)
    kept = opmath(input.dtype)
    batch, _, channels, space = _geometry(input.shape, groups)
    input = without_gaps(input)
    last = is_last(input)
    out = new_like(input, input.shape) if last else empty(input.shape, input.dtype, input.device)
    mean, rstd = empty((batch, groups), kept, input.device), empty((batch, groups), kept, input.device)
    if not is_computed(input):
        return Saved((out, mean, rstd), mean=mean._bare_alias(), scale=rstd._bare_alias())
    factor, shift = None if weight is None else bare(weight), None if bias is None else bare(bias)
    if input.numel() and last:
        work = [empty((batch, input.shape[1]), kept) for _ in range(2)]
        kernels.group_norm_last(
            out, mean, rstd, input._bare_alias(), factor, shift, *work, batch, groups, channels, space, eps
        )
    elif input.numel():
        kernels.group_norm(out, mean, rstd, bare(input), factor, shift, batch, groups, channels, space, eps)
    stored = input.dtype if weight is None else weight.dtype
    # Kept apart from the outputs, the first of which may be changed in place (by a ReLU, say).
    return Saved((out, mean.to(stored), rstd.to(stored)), mean=mean._bare_alias(), scale=rstd._bare_alias())
