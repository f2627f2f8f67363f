"""Pooling operators."""

from __future__ import annotations

import math
from typing import Any

import flambeau

from ...core.tensor import Tensor
from ...nn import functional as F  # noqa: N812
from .layers import padded, spread
from .table import Call, node, numbers


def _window(
    x: Tensor, kernel: list[int], strides: Any, dilations: Any, pads: Any, auto_pad: str, ceil_mode: int
) -> tuple:
    """Return strides, dilations, padding before and after (with what ceil_mode adds), and the sizes of the result."""
    strides, dilations, before, after = spread(kernel, x, strides, dilations, pads, auto_pad)
    sizes = []
    extra = []
    for i, (n, k, s, d) in enumerate(zip(x.shape[2:], kernel, strides, dilations)):
        room = n + before[i] + after[i] - d * (k - 1) - 1
        count = (-(-room // s) if ceil_mode else room // s) + 1
        if ceil_mode and (count - 1) * s >= n + before[i]:
            count -= 1
        sizes.append(count)
        extra.append(max((count - 1) * s + d * (k - 1) + 1 - (n + before[i] + after[i]), 0))
    return strides, dilations, before, after, extra, sizes


def _patches(x: Tensor, kernel: list[int], strides: list[int], dilations: list[int], sizes: list[int]) -> Tensor:
    """Return the windows as a last dimension: (N, C, *sizes, window)."""
    for i, (k, s, d, n) in enumerate(zip(kernel, strides, dilations, sizes)):
        places = flambeau.arange(n).unsqueeze(1) * s + flambeau.arange(k).unsqueeze(0) * d
        dim = 2 + i
        x = (
            x.index_select(dim, places.reshape(-1))
            .reshape(*x.shape[:dim], n, k, *x.shape[dim + 1 :])
            .movedim(dim + 1, -1)
        )
    return x.flatten(-len(kernel))


@node("MaxPool")
def max_pool(
    call: Call, x: Tensor, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Any = None, kernel_shape: Any = None, pads: Any = None,
    storage_order: int = 0, strides: Any = None,
) -> Any:  # fmt: skip
    kernel = list(kernel_shape)
    strides, dilations, before, after, extra, sizes = _window(x, kernel, strides, dilations, pads, auto_pad, ceil_mode)
    plain = call.outputs == 1 and before == after and all(2 * p <= k for p, k in zip(before, kernel)) and not any(extra)
    if plain and x.is_floating_point():
        function = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[len(kernel)]
        return function(x, kernel, strides, before, dilations)
    low = float("-inf") if x.is_floating_point() else flambeau.iinfo(x.dtype).min
    wide = _patches(padded(x, before, [a + e for a, e in zip(after, extra)], low), kernel, strides, dilations, sizes)
    values, found = wide.max(-1)
    if call.outputs == 1:
        return values
    spots = flambeau.arange(x.numel()).reshape(x.shape)
    if storage_order:
        spots = _column_major(x)
    numbered = _patches(
        padded(spots, before, [a + e for a, e in zip(after, extra)], 0), kernel, strides, dilations, sizes
    )
    return values, numbered.gather(-1, found.unsqueeze(-1)).squeeze(-1)


def _column_major(x: Tensor) -> Tensor:
    spatial = list(x.shape[2:])
    inner = flambeau.arange(math.prod(spatial)).reshape(spatial[::-1]).permute(list(range(len(spatial)))[::-1])
    outer = flambeau.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *([1] * len(spatial)))
    return outer * math.prod(spatial) + inner


@node("AveragePool")
def average_pool(
    call: Call, x: Tensor, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0, dilations: Any = None,
    kernel_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Tensor:  # fmt: skip
    kernel = list(kernel_shape)
    strides, dilations, before, after, extra, sizes = _window(x, kernel, strides, dilations, pads, auto_pad, ceil_mode)
    simple = (
        before == after and not any(extra) and set(dilations) == {1} and all(2 * p <= k for p, k in zip(before, kernel))
    )
    if simple and len(kernel) <= 3:
        function = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[len(kernel)]
        return function(x, kernel, strides, before, False, bool(count_include_pad))
    ones = flambeau.ones_like(x[:1, :1])
    ones = padded(ones, before, after, 1.0 if count_include_pad else 0.0)
    ones = padded(ones, [0] * len(kernel), extra)
    counts = _patches(ones, kernel, strides, dilations, sizes).sum(-1)
    wide = padded(x, before, [a + e for a, e in zip(after, extra)])
    return _patches(wide, kernel, strides, dilations, sizes).sum(-1) / counts


@node("LpPool")
def lp_pool(
    call: Call, x: Tensor, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Any = None, kernel_shape: Any = None, p: float = 2,
    pads: Any = None, strides: Any = None,
) -> Tensor:  # fmt: skip
    kernel = list(kernel_shape)
    strides, dilations, before, after, extra, sizes = _window(x, kernel, strides, dilations, pads, auto_pad, ceil_mode)
    wide = padded(x, before, [a + e for a, e in zip(after, extra)])
    return _patches(wide, kernel, strides, dilations, sizes).abs().pow(p).sum(-1).pow(1 / p)


@node("GlobalAveragePool")
def global_average_pool(call: Call, x: Tensor) -> Tensor:
    return x.mean(list(range(2, x.dim())), keepdim=True)


@node("GlobalMaxPool")
def global_max_pool(call: Call, x: Tensor) -> Tensor:
    return x.amax(list(range(2, x.dim())), keepdim=True)


@node("GlobalLpPool")
def global_lp_pool(call: Call, x: Tensor, p: float = 2) -> Tensor:
    return x.abs().pow(p).sum(list(range(2, x.dim())), keepdim=True).pow(1 / p)


@node("MaxUnpool")
def max_unpool(
    call: Call, x: Tensor, places: Tensor, output_shape: Any = None, kernel_shape: Any = None, pads: Any = None,
    strides: Any = None,
) -> Tensor:  # fmt: skip
    kernel = list(kernel_shape)
    n = len(kernel)
    steps, pads = list(strides or [1] * n), list(pads or [0] * 2 * n)
    small = [(s - 1) * st - pads[i] - pads[i + n] + k for i, (s, st, k) in enumerate(zip(x.shape[2:], steps, kernel))]
    sizes = numbers(output_shape)[2:] if output_shape is not None else small
    flat = x.new_zeros(x.shape[0] * x.shape[1] * math.prod(small)).index_put((places.reshape(-1),), x.reshape(-1))
    made = flat.reshape(*x.shape[:2], *small)
    return padded(made, [0] * n, [b - a for a, b in zip(small, sizes)])
