"""Pictures in other sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..builder import Builder, Value
from ..registry import aten, form
from .neural import many


def _resized(
    g: Builder,
    x: Value,
    mode: str,
    output_size: Any,
    scale_factors: Any,
    align_corners: Any,
    antialias: bool = False,
    exact: bool = False,
) -> Value:
    spatial = x.rank - 2
    where = "asymmetric" if mode == "nearest" else "align_corners" if align_corners else "half_pixel"
    extra: dict[str, Any] = {
        "coordinate_transformation_mode_s": where,
        "cubic_coeff_a_f": -0.75,
        "mode_s": mode,
        "nearest_mode_s": "floor",
    }
    if exact:
        extra.update(coordinate_transformation_mode_s="half_pixel", nearest_mode_s="round_prefer_ceil")
    if mode == "cubic" and antialias:
        extra["cubic_coeff_a_f"] = -0.5
    if antialias:
        if g.opset < 18:
            raise NotImplementedError("antialias needs opset 18 or later")
        extra["antialias_i"] = 1
    empty = g.constant(np.array([], np.float32)) if g.opset < 13 else None
    if output_size is not None:
        sizes = [*(g.size(x, d) for d in (0, 1)), *output_size]
        shape = (*x.shape[:2], *(n if isinstance(n, int) else None for n in output_size))
        return g.op("Resize", x, empty, empty, g.ints(sizes), **extra).known(x.dtype, shape)
    factors = [float(f) for f in many(scale_factors, spatial)]
    shape = (*x.shape[:2], *(math.floor(s * f) if isinstance(s, int) else None for s, f in zip(x.shape[2:], factors)))
    scales = g.constant(np.array([1.0, 1.0, *factors], np.float32))
    return g.op("Resize", x, empty, scales, **extra).known(x.dtype, shape)


@form(
    aten.upsample_nearest1d,
    aten.upsample_nearest2d,
    aten.upsample_nearest3d,
    aten._upsample_nearest_exact1d,
    aten._upsample_nearest_exact2d,
    aten._upsample_nearest_exact3d,
    since=11,
)
def upsample_nearest(
    g: Builder, self: Any = None, output_size: Any = None, scales: Any = None, scales_h: Any = None, scales_w: Any = None, scales_d: Any = None,
    input: Any = None, scale_factors: Any = None, name: str = "",
) -> Value:  # fmt: skip
    x = self if self is not None else input
    return _resized(g, x, "nearest", output_size, scale_factors, None, exact="exact" in name)


@form(
    aten.upsample_linear1d,
    aten.upsample_bilinear2d,
    aten.upsample_trilinear3d,
    aten.upsample_bicubic2d,
    aten._upsample_bilinear2d_aa,
    aten._upsample_bicubic2d_aa,
    since=11,
)
def upsample_linear(
    g: Builder, self: Any = None, output_size: Any = None, align_corners: bool = False, scales: Any = None, scales_h: Any = None,
    scales_w: Any = None, scales_d: Any = None, input: Any = None, scale_factors: Any = None, name: str = "",
) -> Value:  # fmt: skip
    x = self if self is not None else input
    mode = "cubic" if "cubic" in name else "linear"
    return _resized(g, x, mode, output_size, scale_factors, align_corners, antialias=name.endswith("_aa"))


@form(aten.grid_sampler, aten.grid_sampler_2d, aten.grid_sampler_3d, since=16)
def grid_sampler(
    g: Builder, input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    words = ("linear", "nearest", "cubic") if g.opset >= 20 else ("bilinear", "nearest", "bicubic")
    made = g.op(
        "GridSample", input, grid, mode_s=words[interpolation_mode], padding_mode_s=("zeros", "border", "reflection")[padding_mode],
        align_corners_i=int(bool(align_corners)),
    )  # fmt: skip
    return made.known(input.dtype, (*input.shape[:2], *grid.shape[1:-1]))


@form(aten.affine_grid_generator)
def affine_grid(g: Builder, theta: Value, size: Any, align_corners: bool) -> Value:
    if g.opset < 20:
        raise NotImplementedError("affine_grid needs opset 20 or later")
    made = g.op("AffineGrid", theta, g.ints(size), align_corners_i=int(align_corners))
    fixed = [n if isinstance(n, int) else None for n in size]
    return made.known(theta.dtype, (fixed[0], *fixed[2:], len(fixed) - 2))


@form(aten.col2im, since=18)
def col2im(
    g: Builder, self: Value, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Value:
    made = g.op(
        "Col2Im",
        self,
        g.ints(output_size),
        g.ints(kernel_size),
        dilations_i=dilation,
        pads_i=list(padding) * 2,
        strides_i=stride,
    )
    return made.known(self.dtype, (self.shape[0], self.shape[1] // math.prod(kernel_size), *output_size))
