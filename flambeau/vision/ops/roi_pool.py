"""RoI pooling (Girshick, 2015) and its position-sensitive form (R-FCN, Dai et al., 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import flambeau
from flambeau import Tensor, nn
from flambeau.autograd import Function
from flambeau.kernels.library import regions as kernels

from ._operators import operator
from ._regions import Rows, limits, pair, rounded, rows_of
from .roi_align import _input_channels


def _bins(start: np.ndarray, length: np.ndarray, count: int, size: int, whole: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return where each bin starts and ends: (K, count). `whole`: bins are rounded before they are moved to the region."""
    step = (length / count).astype(start.dtype)[:, None]
    first, last = np.arange(count, dtype=start.dtype) * step, np.arange(1, count + 1, dtype=start.dtype) * step
    origin = start[:, None]
    if whole:
        return limits(np.floor(first) + origin, np.ceil(last) + origin, size)
    return limits(np.floor(first + origin), np.ceil(last + origin), size)


class _Plan:
    def __init__(self, name: str, input: Tensor, boxes: Any, size: Any, scale: float, ps: bool):
        rows = Rows(name, input, boxes, scale)
        self.ph, self.pw = pair(size)
        self.images, self.planes, self.h, self.w = input.shape
        if ps and self.planes % (self.ph * self.pw):
            raise RuntimeError("input channels must be a multiple of pooling height * pooling width")
        self.channels = self.planes // (self.ph * self.pw) if ps else self.planes
        self.rows, self.dtype = rows, rows.dtype
        self.places: Any = None  # of the largest elements, once they are known
        x0, y0, x1, y1 = rounded(rows.corners).T
        more = 0 if ps else 1  # a box's last element belongs to it, except in R-FCN
        width, height = np.maximum(x1 - x0 + more, 1), np.maximum(y1 - y0 + more, 1)
        self.y = _bins(y0, height, self.ph, self.h, not ps)
        self.x = _bins(x0, width, self.pw, self.w, not ps)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.rows.count, self.channels, self.ph, self.pw

    @property
    def tables(self) -> tuple[Any, ...]:
        return self.rows.image, *self.y, *self.x

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.rows.count, self.channels, self.h, self.w, self.ph, self.pw


class _MaxOfBins(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, plan: _Plan) -> Tensor:
        out = flambeau.empty(plan.shape, dtype=input.dtype)
        ctx.plan, ctx.places = plan, flambeau.empty(plan.shape, dtype=flambeau.int64)
        plan.places = ctx.places
        if out.numel():
            kernels.pool_largest(out, ctx.places, input.contiguous(), *plan.tables, *plan.sizes)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        plan = ctx.plan
        dx = flambeau.zeros((plan.images, plan.planes, plan.h, plan.w), dtype=plan.dtype)
        if g.numel():
            sizes = (*plan.sizes[:4], plan.ph * plan.pw)
            kernels.pool_largest_backward(dx, g.contiguous(), ctx.places, plan.rows.image, *sizes)
        return dx.to(g.dtype), None


class _AverageByPosition(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, plan: _Plan) -> Tensor:
        out = flambeau.empty(plan.shape, dtype=input.dtype)
        ctx.plan = plan
        if out.numel():
            kernels.pool_average_by_position(out, input.contiguous(), *plan.tables, *plan.sizes)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        plan = ctx.plan
        dx = flambeau.zeros((plan.images, plan.planes, plan.h, plan.w), dtype=plan.dtype)
        if g.numel():
            kernels.pool_average_by_position_backward(dx, g.contiguous(), *plan.tables, *plan.sizes)
        return dx.to(g.dtype), None


_SCHEMA = (
    "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)"
)


@operator(f"roi_pool{_SCHEMA}")
def _roi_pool(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int) -> tuple:
    plan = _Plan("roi_pool", input, rois, (pooled_height, pooled_width), spatial_scale, False)
    out = _MaxOfBins.apply(input, plan)
    return out, plan.places


@operator(f"ps_roi_pool{_SCHEMA}")
def _ps_roi_pool(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int) -> tuple:
    out = _AverageByPosition.apply(
        input, _Plan("ps_roi_pool", input, rois, (pooled_height, pooled_width), spatial_scale, True)
    )
    return out, _input_channels(out)


def roi_pool(
    input: Tensor, boxes: Tensor | Sequence[Tensor], output_size: int | Sequence[int], spatial_scale: float = 1.0
) -> Tensor:
    """Return the largest elements of the bins of each region of input (N, C, H, W): (K, C, h, w); boxes as for `roi_align`."""
    return _roi_pool(input, rows_of(boxes), float(spatial_scale), *pair(output_size))[0]


def ps_roi_pool(
    input: Tensor, boxes: Tensor | Sequence[Tensor], output_size: int | Sequence[int], spatial_scale: float = 1.0
) -> Tensor:
    """Return averages over the bins of each region, where bin (i, j) of output channel c reads input channel (c, i, j)."""
    return _ps_roi_pool(input, rows_of(boxes), float(spatial_scale), *pair(output_size))[0]


class RoIPool(nn.Module):
    """A layer that applies `roi_pool`."""

    _pool = staticmethod(roi_pool)

    def __init__(self, output_size: Any, spatial_scale: float):
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale

    def forward(self, input: Tensor, rois: Tensor | Sequence[Tensor]) -> Tensor:
        return self._pool(input, rois, self.output_size, self.spatial_scale)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(output_size={self.output_size}, spatial_scale={self.spatial_scale})"


class PSRoIPool(RoIPool):
    """A layer that applies `ps_roi_pool`."""

    _pool = staticmethod(ps_roi_pool)
