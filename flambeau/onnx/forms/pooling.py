"""Pooling."""

from __future__ import annotations

import math
from typing import Any

import flambeau

from ...ops.nn.windows import pooled_size
from ..builder import Absent, Builder, Value
from ..registry import aten, form
from .indexing import padded
from .neural import many
from .pointwise import mul


def _pooled(
    g: Builder, kind: str, x: Value, spatial: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, outputs: int = 1,
    **extra: Any,
) -> Any:  # fmt: skip
    unbatched = x.rank == spatial + 1
    if unbatched:
        x = g.unsqueeze(x, [0])
    kernel = many(kernel, spatial)
    stride = many(stride, spatial) if stride not in (None, []) else kernel
    padding, dilation = many(padding, spatial), many(dilation, spatial)
    if g.opset >= 10:
        extra["ceil_mode_i"] = int(ceil_mode)
        if kind == "MaxPool":
            extra["dilations_i"] = dilation
    elif ceil_mode or dilation != [1] * spatial:
        raise NotImplementedError("pooling with ceil_mode or dilation needs opset 10 or later")
    made = g.op(kind, x, kernel_shape_i=kernel, pads_i=padding * 2, strides_i=stride, outputs=outputs, **extra)
    shape = (*x.shape[:2], *[None] * spatial)  # the program tells the sizes
    outs = list(made) if outputs > 1 else [made]
    outs[0].known(x.dtype, shape)
    for o in outs[1:]:
        o.known(flambeau.int64, shape)
    outs = [g.squeeze(o, [0]) for o in outs] if unbatched else outs
    return tuple(outs) if outputs > 1 else outs[0]


@form(aten.max_pool1d, aten.max_pool2d, aten.max_pool3d)
def max_pool(
    g: Builder,
    self: Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    name: str = "",
) -> Value:
    return _pooled(g, "MaxPool", self, int(name[-2]), kernel_size, stride, padding, dilation, ceil_mode)


@form(aten.max_pool1d_with_indices, aten.max_pool2d_with_indices, aten.max_pool3d_with_indices)
def max_pool_with_indices(
    g: Builder,
    self: Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    name: str = "",
) -> Any:
    spatial = int(name.removesuffix("_with_indices")[-2])
    values, places = _pooled(g, "MaxPool", self, spatial, kernel_size, stride, padding, dilation, ceil_mode, outputs=2)
    sizes = [g.size(self, d - spatial) for d in range(spatial)]
    total: Any = 1
    for s in sizes:
        total = g.arithmetic("Mul", total, s)
    # ONNX counts through batch and channels, PyTorch within each.
    return values, g.op("Mod", places, g.number(total, flambeau.int64)).known(flambeau.int64, places.shape)


@form(aten.avg_pool2d, aten.avg_pool3d)
def avg_pool(
    g: Builder, self: Value, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None, name: str = "",
) -> Value:  # fmt: skip
    spatial = int(name[-2])
    if divisor_override:
        kernel = many(kernel_size, spatial)
        pads = [p for p in many(padding, spatial)[::-1] for _ in (0, 1)]
        if ceil_mode:  # zeros up to the end of the last window
            steps = many(stride or kernel, spatial)
            for i, (size, k, s, p) in enumerate(zip(self.shape[-spatial:], kernel, steps, many(padding, spatial))):
                if not isinstance(size, int):
                    raise NotImplementedError("avg_pool with a divisor_override and ceil_mode, of sizes that change")
                count = pooled_size(size, k, s, p, 1, True)
                pads[2 * (spatial - 1 - i) + 1] += max((count - 1) * s + k - size - 2 * p, 0)
        made = _pooled(
            g,
            "AveragePool",
            padded(g, self, pads),
            spatial,
            kernel,
            stride or kernel,
            0,
            1,
            False,
            count_include_pad_i=1,
        )
        return mul(g, made, math.prod(kernel) / divisor_override)
    if ceil_mode and g.opset < 19 and count_include_pad and any(many(padding, spatial)):
        # Older versions count what lies beyond the padding, too: padded first, there is nothing to count wrongly.
        self = padded(g, self, [p for p in many(padding, spatial)[::-1] for _ in (0, 1)])
        padding, count_include_pad = 0, False
    return _pooled(
        g,
        "AveragePool",
        self,
        spatial,
        kernel_size,
        stride,
        padding,
        1,
        ceil_mode,
        count_include_pad_i=int(count_include_pad),
    )


@form(aten.adaptive_avg_pool1d, aten.adaptive_avg_pool2d, aten.adaptive_avg_pool3d, aten._adaptive_avg_pool2d)
def adaptive_avg_pool(g: Builder, self: Value, output_size: Any, name: str = "") -> Value:
    return _adaptive(g, self, output_size, int(name[-2]), False)


@form(aten.adaptive_max_pool1d, aten.adaptive_max_pool2d, aten.adaptive_max_pool3d)
def adaptive_max_pool(g: Builder, self: Value, output_size: Any, name: str = "") -> Any:
    spatial = int(name[-2])
    sizes = self.shape[-spatial:]
    wanted = many(output_size, spatial)
    if all(isinstance(s, int) and s % n == 0 for s, n in zip(sizes, wanted)):
        kernel = [s // n for s, n in zip(sizes, wanted)]
        return max_pool_with_indices(g, self, kernel, kernel, name=f"aten::max_pool{spatial}d_with_indices")
    return _adaptive(g, self, output_size, spatial, True), Absent(
        "the places of the largest, where windows differ in size"
    )


def _adaptive(g: Builder, x: Value, wanted: Any, spatial: int, largest: bool) -> Value:
    unbatched = x.rank == spatial + 1
    if unbatched:
        x = g.unsqueeze(x, [0])
    wanted = [x.shape[2 + i] if n is None else n for i, n in enumerate(many(wanted, spatial))]
    sizes = x.shape[2:]
    if wanted == [1] * spatial:
        made = g.op("GlobalMaxPool" if largest else "GlobalAveragePool", x).known(x.dtype, (*x.shape[:2], *wanted))
    elif all(isinstance(s, int) for s in sizes) and all(s % n == 0 for s, n in zip(sizes, wanted)):
        kernel = [s // n for s, n in zip(sizes, wanted)]
        extra = {} if largest else {"count_include_pad_i": 1}
        made = _pooled(g, "MaxPool" if largest else "AveragePool", x, spatial, kernel, kernel, 0, 1, False, **extra)
    elif all(isinstance(s, int) for s in sizes):
        made = _uneven(g, x, [int(s) for s in sizes], wanted, largest)
    else:
        raise NotImplementedError("adaptive pooling of sizes that change, to sizes other than 1")
    return g.squeeze(made, [0]) if unbatched else made


def _uneven(g: Builder, x: Value, sizes: list[int], wanted: list[int], largest: bool) -> Value:
    """Windows of different sizes, one dimension after the other."""
    for i, (size, n) in enumerate(zip(sizes, wanted)):
        dim = 2 + i
        parts = [
            g.reduce(
                "ReduceMax" if largest else "ReduceMean",
                g.slice(x, [dim], [k * size // n], [-(-(k + 1) * size // n)]),
                [dim],
                True,
            )
            for k in range(n)
        ]
        x = g.op("Concat", *parts, axis_i=dim).known(x.dtype, [n if d == dim else s for d, s in enumerate(x.shape)])
    return x
