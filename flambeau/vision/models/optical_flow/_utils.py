"""Sampling at pixel coordinates, coordinate grids, and upsampling of flows."""

from __future__ import annotations

import flambeau
from flambeau import Tensor
from flambeau.nn import functional as F


def grid_sample(
    img: Tensor, absolute_grid: Tensor, mode: str = "bilinear", align_corners: bool | None = None
) -> Tensor:
    """`functional.grid_sample` at coordinates (x, y) in pixels."""
    h, w = img.shape[-2:]
    x, y = absolute_grid.split([1, 1], dim=-1)
    x = 2 * x / (w - 1) - 1
    if h > 1:  # a single row, as in stereo matching, has no vertical coordinate to scale
        y = 2 * y / (h - 1) - 1
    return F.grid_sample(img, flambeau.cat([x, y], dim=-1), mode=mode, align_corners=align_corners)


def make_coords_grid(batch_size: int, h: int, w: int, device: str = "cpu") -> Tensor:
    """Return the coordinates (x, y) of every pixel: (batch_size, 2, h, w)."""
    rows, columns = flambeau.meshgrid(
        flambeau.arange(h, device=device), flambeau.arange(w, device=device), indexing="ij"
    )
    return flambeau.stack([columns, rows], dim=0).float()[None].repeat(batch_size, 1, 1, 1)


def upsample_flow(flow: Tensor, up_mask: Tensor | None = None, factor: int = 8) -> Tensor:
    """Return a flow at `factor` times the resolution: interpolated, or, with `up_mask`, by weighted sums of the nine neighbours."""
    batch, channels, h, w = flow.shape
    if up_mask is None:
        return factor * F.interpolate(flow, size=(h * factor, w * factor), mode="bilinear", align_corners=True)
    weights = flambeau.softmax(up_mask.view(batch, 1, 9, factor, factor, h, w), dim=2)
    neighbours = F.unfold(factor * flow, kernel_size=3, padding=1).view(batch, channels, 9, 1, 1, h, w)
    fine = flambeau.sum(weights * neighbours, dim=2)  # (B, C, factor, factor, h, w)
    return fine.permute(0, 1, 4, 2, 5, 3).reshape(batch, channels, h * factor, w * factor)
