"""RoIAlign (He et al., 2017) and its position-sensitive form (Light-Head R-CNN, 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.autograd import Function
from flambeau.kernels.library import regions as kernels

from ._operators import operator
from ._regions import Points, Rows, pair, rows_of


class _Plan:
    """Plan of a call: the points of the images that each bin averages."""

    def __init__(
        self, name: str, input: Tensor, boxes: Any, size: Any, scale: float, ratio: int, aligned: bool, ps: bool
    ):
        rows = Rows(name, input, boxes, scale)
        (self.ph, self.pw), self.ps = pair(size), ps
        self.images, self.planes, self.h, self.w = input.shape
        if ps and self.planes % (self.ph * self.pw):
            raise RuntimeError("input channels must be a multiple of pooling height * pooling width")
        self.channels = self.planes // (self.ph * self.pw) if ps else self.planes
        self.rows, self.dtype = rows, rows.dtype
        corners = rows.corners - rows.corners.dtype.type(0.5 if aligned or ps else 0.0)
        x0, y0, x1, y1 = corners.T
        width, height = x1 - x0, y1 - y0
        if not aligned and not ps:  # the first version of RoIAlign: no region is smaller than one element
            width, height = width.clip(min=1), height.clip(min=1)
        self.y = Points(kernels.align_taps, y0, height, self.h, self.ph, ratio)
        self.x = Points(kernels.align_taps, x0, width, self.w, self.pw, ratio)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.rows.count, self.channels, self.planes, self.h, self.w, self.ph, self.pw

    def forward(self, input: Tensor) -> Tensor:
        out = flambeau.empty((self.rows.count, self.channels, self.ph, self.pw), dtype=input.dtype)
        if out.numel():
            tables = (self.rows.image, *self.y.tables, *self.x.tables)
            kernels.align_regions(out, input.contiguous(), *tables, *self.sizes, by_position=self.ps)
        return out

    def backward(self, g: Tensor) -> Tensor:
        dx = flambeau.zeros((self.images, self.planes, self.h, self.w), dtype=self.dtype)
        if g.numel():
            tables = (self.rows.image, *self.y.tables, *self.x.tables)
            kernels.align_regions_backward(dx, g.contiguous(), *tables, *self.sizes, by_position=self.ps)
        return dx.to(g.dtype)


class _Align(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, plan: _Plan) -> Tensor:
        ctx.plan = plan
        return plan.forward(input)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return _AlignBackward.apply(g, ctx.plan), None


class _AlignBackward(Function):
    """Autograd function of the transpose of RoIAlign, a linear map; its derivative is RoIAlign again."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, plan: _Plan) -> Tensor:
        ctx.plan = plan
        return plan.backward(g)

    @staticmethod
    def backward(ctx: Any, gg: Tensor) -> Any:
        return _Align.apply(gg, ctx.plan), None


def _regions_like(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, *more: Any
) -> Tensor:
    return input.new_empty((rois.shape[0], input.shape[1], pooled_height, pooled_width))


@operator(
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned)"
    " -> Tensor",
    meta=_regions_like,
)
def _roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    size = (pooled_height, pooled_width)
    return _Align.apply(input, _Plan("roi_align", input, rois, size, spatial_scale, sampling_ratio, aligned, False))


@operator(
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio)"
    " -> (Tensor, Tensor)"
)
def _ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Tensor, Tensor]:
    size = (pooled_height, pooled_width)
    out = _Align.apply(input, _Plan("ps_roi_align", input, rois, size, spatial_scale, sampling_ratio, False, True))
    return out, _input_channels(out)


def _input_channels(out: Tensor) -> Tensor:
    """Return the input channel that each element of a position-sensitive pooling read."""
    count = math.prod(out.shape[1:])
    return flambeau.arange(count, dtype=flambeau.int32).reshape(out.shape[1:]).expand(out.shape).contiguous()


def roi_align(
    input: Tensor,
    boxes: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """Return each region of input (N, C, H, W) as averages of bilinearly interpolated points: (K, C, h, w).

    `boxes` is (K, 5), image number first, or a list of (L, 4) per image; `sampling_ratio` points per bin and axis, one per element if not
    positive; `aligned` moves boxes by half an element, so that points are at pixel centres.
    """
    height, width = pair(output_size)
    return _roi_align(input, rows_of(boxes), float(spatial_scale), height, width, sampling_ratio, aligned)


def ps_roi_align(
    input: Tensor,
    boxes: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> Tensor:
    """Apply `roi_align` where bin (i, j) of output channel c reads input channel (c, i, j)."""
    height, width = pair(output_size)
    return _ps_roi_align(input, rows_of(boxes), float(spatial_scale), height, width, sampling_ratio)[0]


class RoIAlign(nn.Module):
    """A layer that applies `roi_align`."""

    def __init__(self, output_size: Any, spatial_scale: float, sampling_ratio: int, aligned: bool = False):
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale
        self.sampling_ratio, self.aligned = sampling_ratio, aligned

    def forward(self, input: Tensor, rois: Tensor | Sequence[Tensor]) -> Tensor:
        return roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(output_size={self.output_size}, spatial_scale={self.spatial_scale}, "
            f"sampling_ratio={self.sampling_ratio}, aligned={self.aligned})"
        )


class PSRoIAlign(nn.Module):
    """A layer that applies `ps_roi_align`."""

    def __init__(self, output_size: Any, spatial_scale: float, sampling_ratio: int):
        super().__init__()
        self.output_size, self.spatial_scale, self.sampling_ratio = output_size, spatial_scale, sampling_ratio

    def forward(self, input: Tensor, rois: Tensor | Sequence[Tensor]) -> Tensor:
        return ps_roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(output_size={self.output_size}, spatial_scale={self.spatial_scale}, "
            f"sampling_ratio={self.sampling_ratio})"
        )
