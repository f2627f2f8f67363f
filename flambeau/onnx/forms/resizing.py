"""Resizing and resampling of feature maps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..builder import Builder, Value
from ..registry import aten, form

_MODES = ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "trilinear3d", "bicubic2d")
_EXACT = ("nearest_exact1d", "nearest_exact2d", "nearest_exact3d")


@form(
    *(getattr(aten, f"upsample_{mode}") for mode in _MODES),
    *(getattr(aten, f"_upsample_{mode}") for mode in _EXACT),
    since=11,
)
def upsample(
    g: Builder, self: Any = None, output_size: Any = None, align_corners: bool = False, scales: Any = None, scales_d: Any = None,
    scales_h: Any = None, scales_w: Any = None, input: Any = None, scale_factors: Any = None, name: str = "",
) -> Value:  # fmt: skip
    x = self if self is not None else input
    factors = scale_factors or [s for s in (scales, scales_d, scales_h, scales_w) if s is not None]
    mode = next(word for word in ("nearest", "cubic", "linear") if word in name)
    where = "asymmetric" if mode == "nearest" and "exact" not in name else "half_pixel"
    where = "align_corners" if align_corners else where
    extra: dict[str, Any] = {"mode_s": mode, "coordinate_transformation_mode_s": where}
    extra["nearest_mode_s"] = "round_prefer_ceil" if "exact" in name else "floor"
    extra["cubic_coeff_a_f"] = -0.75
    empty = g.constant(np.array([], np.float32)) if g.opset < 13 else None
    wanted: list[Value | None]
    if factors:
        wanted = [g.constant(np.array([1.0, 1.0, *factors], np.float32))]
        sizes = [math.floor(s * f) if isinstance(s, int) else None for s, f in zip(x.shape[2:], factors)]
    else:
        wanted = [empty, g.ints([*(g.size(x, d) for d in (0, 1)), *output_size])]
        sizes = [n if isinstance(n, int) else None for n in output_size]
    return g.op("Resize", x, empty, *wanted, **extra).known(x.dtype, (*x.shape[:2], *sizes))


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


@form(aten.affine_grid_generator, since=20)
def affine_grid(g: Builder, theta: Value, size: Any, align_corners: bool) -> Value:
    made = g.op("AffineGrid", theta, g.ints(size), align_corners_i=int(align_corners))
    fixed = [n if isinstance(n, int) else None for n in size]
    return made.known(theta.dtype, (fixed[0], *fixed[2:], len(fixed) - 2))
