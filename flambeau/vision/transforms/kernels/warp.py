"""Core of geometric transforms: every warp is a grid of coordinates, and one sampling of the image there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.nn.functional import grid_sample

from . import formulas


def sample(image: Tensor, grid: Tensor, mode: str, fill: Any = None) -> Tensor:
    """Sample the image (..., C, H, W) at `grid` (1, H', W', 2); outside of it is `fill`, or zero."""
    own, lead = image.dtype, image.shape[:-3]
    batch = image.reshape(-1, *image.shape[-3:])
    values = batch.to(grid.dtype)
    if fill is not None:
        # A channel of ones becomes the share of each output pixel that was read inside.
        values = flambeau.cat([values, values.new_ones(len(values), 1, *values.shape[-2:])], 1)
    grid = grid.to(values.device).expand(len(values), *grid.shape[1:])
    out = grid_sample(values, grid, mode=mode, padding_mode="zeros", align_corners=False)
    if fill is not None:
        out = _fill_outside(out[:, :-1], out[:, -1:], fill, mode)
    if not own.is_floating_point:
        out = out.round().to(own)
    elif out.dtype != own:
        out = out.to(own)
    return out.reshape(*lead, *out.shape[1:])


def _fill_outside(out: Tensor, inside: Tensor, fill: Any, mode: str) -> Tensor:
    fills = flambeau.tensor(
        [float(f) for f in fill] if isinstance(fill, (tuple, list)) else [float(fill)], dtype=out.dtype
    )
    fills = fills.to(out.device).view(1, -1, 1, 1)
    if mode == "nearest":
        return flambeau.where(inside < 0.5, fills, out)
    return formulas.filled_where_outside(out, inside, fills)


def _grid_dtype(image: Tensor) -> Any:
    return image.dtype if image.is_floating_point() else flambeau.float32


def _output_positions(first_x: float, first_y: float, width: int, height: int, dtype: Any) -> tuple[Tensor, Tensor]:
    """Return x and y of the output pixels, from the given first ones in steps of one; they broadcast to (1, H, W, 2)."""
    across = flambeau.linspace(first_x, first_x + width - 1.0, steps=width, dtype=dtype)
    down = flambeau.linspace(first_y, first_y + height - 1.0, steps=height, dtype=dtype)
    return across.view(1, 1, width, 1), down.view(1, height, 1, 1)


def _matrix_columns(matrix: Sequence[float], width: int, height: int, dtype: Any) -> tuple[Tensor, ...]:
    """Return the coefficients of x, of y and the constants, each for both outputs, in units of half the image."""
    theta = flambeau.tensor(list(matrix), dtype=dtype).view(2, 3)
    halves = flambeau.tensor([0.5 * width, 0.5 * height], dtype=dtype)
    return tuple(theta[:, i] / halves for i in range(3))


def affine(
    image: Tensor, matrix: Sequence[float], mode: str, fill: Any = None, size: tuple[int, int] | None = None
) -> Tensor:
    """Warp by the inverse map `matrix` about the centre of the image; the output has `size` (width, height) or the same."""
    height, width = image.shape[-2:]
    out_w, out_h = size or (width, height)
    dtype = _grid_dtype(image)
    x, y = _output_positions(-out_w * 0.5 + 0.5, -out_h * 0.5 + 0.5, out_w, out_h, dtype)
    return sample(image, formulas.mapped(x, y, *_matrix_columns(matrix, width, height, dtype)), mode, fill)


def perspective(image: Tensor, coefficients: Sequence[float], mode: str, fill: Any = None) -> Tensor:
    height, width = image.shape[-2:]
    dtype = _grid_dtype(image)
    x, y = _output_positions(0.5, 0.5, width, height, dtype)
    a, b, c = _matrix_columns(coefficients[:6], width, height, dtype)
    g, h = flambeau.tensor(list(coefficients[6:]), dtype=dtype)
    return sample(image, formulas.projected(x, y, a, b, c, g, h), mode, fill)


def identity_grid(height: int, width: int, dtype: Any) -> Tensor:
    """Return the grid (1, H, W, 2) at which every pixel reads itself."""
    across, down = (flambeau.linspace((-n + 1) / n, (n - 1) / n, steps=n, dtype=dtype) for n in (width, height))
    grid = flambeau.empty(1, height, width, 2, dtype=dtype)
    grid[..., 0].copy_(across)
    grid[..., 1].copy_(down.unsqueeze(-1))
    return grid


def elastic(image: Tensor, displacement: Tensor, mode: str, fill: Any = None) -> Tensor:
    """Sample every pixel at its own position plus `displacement` (1, H, W, 2), in halves of the image."""
    height, width = image.shape[-2:]
    dtype = _grid_dtype(image)
    grid = identity_grid(height, width, dtype).add_(displacement.to(dtype))
    return sample(image, grid, mode, fill)
