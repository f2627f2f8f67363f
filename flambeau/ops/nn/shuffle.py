"""Exchanging channels with pixels and with each other, and products of two inputs: pixel_shuffle, bilinear."""

from __future__ import annotations

from typing import Any

from ...core.layout import channels_last_strides, suggests_channels_last
from ...core.size import make_size
from ...core.tensor import Tensor, numel_of
from ..machinery.arguments import as_int
from ..machinery.declare import composite, internal
from ..machinery.inplace import raw_copy
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor

_BOTH: dict[str, Any] = {"namespaces": ("torch", "nn.functional"), "method": False}


def _check_pixels(name: str, input: Any, factor: Any, argument: str) -> int:
    factor = as_int(factor, name, argument, 2)
    if len(input.shape) < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, but got input with {len(input.shape)} dimension(s)"
        )
    if factor <= 0:
        raise RuntimeError(f"{name} expects a positive {argument}, but got {factor}")
    return factor


def _formatted(shape: tuple[int, ...], like: Tensor) -> tuple[Any, ...]:
    """Return the layout of a result of this shape in the memory format of `like`: these operators never return views."""
    if suggests_channels_last(like.shape, like._strides) and len(shape) == 4:
        return shape, like.dtype, like.device, channels_last_strides(shape)
    return shape, like.dtype, like.device


def _split(t: Tensor, start: int, *parts: tuple[int, ...]) -> Any:
    """Return t with its dimensions from `start` on split into several each."""
    shape, strides = list(t.shape[:start]), list(t._strides[:start])
    for sizes, step in zip(parts, t._strides[start:]):
        shape += sizes
        strides += [step * numel_of(sizes[i + 1 :]) for i in range(len(sizes))]
    return t._view(make_size(shape), tuple(strides), t._offset)


@internal(
    grads={"input": lambda g, factor: pixel_unshuffle(g, factor)},
    quirks=Quirks(label="PixelShuffleBackward0"),
    batching="folded",
)
def _to_pixels(input: Tensor, factor: int) -> NewTensor:
    """Rearrange channels into pixels."""
    *lead, channels, height, width = input.shape
    return _formatted((*lead, channels // (factor * factor), height * factor, width * factor), input)


@_to_pixels.on("any")
def _(out: Tensor, input: Tensor, factor: int) -> None:
    _exchange(out, input, out, input, factor)


@internal(
    grads={"input": lambda g, factor: pixel_shuffle(g, factor)},
    quirks=Quirks(label="PixelUnshuffleBackward0"),
    batching="folded",
)
def _to_channels(input: Tensor, factor: int) -> NewTensor:
    """Rearrange pixels into channels."""
    *lead, channels, height, width = input.shape
    return _formatted((*lead, channels * factor * factor, height // factor, width // factor), input)


@_to_channels.on("any")
def _(out: Tensor, input: Tensor, factor: int) -> None:
    _exchange(out, input, input, out, factor)


def _exchange(out: Tensor, source: Tensor, large: Tensor, small: Tensor, factor: int) -> None:
    """Copy between images (..., C, H * r, W * r) and their rearranged form (..., C * r * r, H, W), `out` being one of them."""
    start = len(large.shape) - 3
    channels, (height, width) = large.shape[start], small.shape[-2:]
    pixels = _split(large, start + 1, (height, factor), (width, factor))  # ..., C, H, r, W, r
    planes = _split(small, start, (channels, factor, factor), (height,), (width,))  # ..., C, r, r, H, W
    lead = range(start + 1)
    planes = planes.permute(*lead, start + 3, start + 1, start + 4, start + 2)
    raw_copy(*((pixels, planes) if out is large else (planes, pixels)))


@composite(**_BOTH)
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(..., C * r * r, H, W) rearranged to (..., C, H * r, W * r)."""
    factor = _check_pixels("pixel_shuffle", input, upscale_factor, "upscale_factor")
    if factor * factor >= 1 << 63:
        raise ValueError(f"upscale factor is too large, (upscale_factor)^2 overflowed: upscale_factor={factor}")
    if input.shape[-3] % (factor * factor):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but"
            f" input.size(-3)={input.shape[-3]} is not divisible by {factor * factor}"
        )
    return _to_pixels(input, factor)


@composite(**_BOTH)
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(..., C, H * r, W * r) rearranged to (..., C * r * r, H, W)."""
    factor = _check_pixels("pixel_unshuffle", input, downscale_factor, "downscale_factor")
    for name, dim in (("height", -2), ("width", -1)):
        if input.shape[dim] % factor:
            raise RuntimeError(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but input.size({dim})="
                f"{input.shape[dim]} is not divisible by {factor}"
            )
    return _to_channels(input, factor)


@internal(
    grads={"input": lambda g, groups, input_shape: channel_shuffle(g, input_shape[1] // groups)},
    quirks=Quirks(label="ChannelShuffleBackward0"),
    batching="folded",
)
def _mixed(input: Tensor, groups: int) -> NewTensor:
    """Channels interleaved: one of each group in turn."""
    return _formatted(input.shape, input)


@_mixed.on("any")
def _(out: Tensor, input: Tensor, groups: int) -> None:
    each, rest = input.shape[1] // groups, [(n,) for n in input.shape[2:]]
    raw_copy(_split(out, 1, (each, groups), *rest), _split(input, 1, (groups, each), *rest).transpose(1, 2))


@composite(**_BOTH, aliases=("native_channel_shuffle",))
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of (N, groups * C, ...) interleaved: one of each group in turn."""
    groups = as_int(groups, "channel_shuffle", "groups", 2)
    if len(input.shape) <= 2:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if input.shape[1] % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {input.shape[1]} channels and {groups} groups."
        )
    return _mixed(input, groups)


@composite(**_BOTH, autocast="", autocast_cuda="widest")
def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Tensor:
    """sum over i, j of input1[..., i] * weight[o, i, j] * input2[..., j] + bias[o]."""
    if len(input1.shape) != len(input2.shape):
        raise RuntimeError(
            f"bilinear(): input dimensions do not match: got {len(input1.shape)} and {len(input2.shape)}"
        )
    for d, (a, b) in enumerate(zip(input1.shape[:-1], input2.shape[:-1])):
        if a != b:
            raise RuntimeError(f"bilinear(): input batch dimensions do not match at dim {d}: got {a} and {b}")
    for name, t, d in (("input1", input1, 1), ("input2", input2, 2)):
        if t.shape[-1] != weight.shape[d]:
            raise RuntimeError(
                f"bilinear(): {name} size does not match weight size: got {t.shape[-1]} but expected {weight.shape[d]}"
            )
    out, first, second = weight.shape
    if bias is not None and bias.shape[0] != out:
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got {bias.shape[0]} but expected {out}")
    lead = input1.shape[:-1]
    rows = numel_of(lead)
    half = input1.reshape(rows, first).matmul(weight.transpose(0, 1).reshape(first, out * second))
    result = half.reshape(rows, out, second).matmul(input2.reshape(rows, second, 1)).reshape(*lead, out)
    return result if bias is None else result + bias
