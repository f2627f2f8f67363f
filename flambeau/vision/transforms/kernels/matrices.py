"""Matrices of rotations, shears and projections, as lists of numbers.

An affine map is kept as six numbers (a, b, c, d, e, f): x' = a x + b y + c, y' = d x + e y + f. Images are warped with the *inverse* map,
which gives for every output pixel where to read; boxes and points move with the forward one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def affine_matrix(
    center: Sequence[float],
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Sequence[float],
    inverted: bool = True,
) -> list[float]:
    """Return translation * centre * rotation, shear and scale * centre^-1, or its inverse. Angles in degrees."""
    turn, shear_x, shear_y = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    cx, cy = center
    tx, ty = translate
    # Rotation after shear.
    a = math.cos(turn - shear_y) / math.cos(shear_y)
    b = -math.cos(turn - shear_y) * math.tan(shear_x) / math.cos(shear_y) - math.sin(turn)
    c = math.sin(turn - shear_y) / math.cos(shear_y)
    d = -math.sin(turn - shear_y) * math.tan(shear_x) / math.cos(shear_y) + math.cos(turn)
    if inverted:
        # The determinant of rotation and shear is 1, so its inverse is the adjugate.
        m = [d / scale, -b / scale, 0.0, -c / scale, a / scale, 0.0]
        m[2] += m[0] * (-cx - tx) + m[1] * (-cy - ty)
        m[5] += m[3] * (-cx - tx) + m[4] * (-cy - ty)
        m[2] += cx
        m[5] += cy
        return m
    m = [a * scale, b * scale, 0.0, c * scale, d * scale, 0.0]
    m[2] += m[0] * -cx + m[1] * -cy
    m[5] += m[3] * -cx + m[4] * -cy
    m[2] += cx + tx
    m[5] += cy + ty
    return m


def rotated_size(matrix: Sequence[float], width: int, height: int) -> tuple[int, int]:
    """Return (width, height) that hold the whole image after the map whose inverse about the centre is `matrix`."""
    across, down, shift = np.asarray(matrix, dtype=np.float32).reshape(2, 3).T
    half = np.array([0.5 * width, 0.5 * height], dtype=np.float32)
    x, y = np.array([[-1, -1, 1, 1], [-1, 1, 1, -1]], dtype=np.float32)[..., None] * half[:, None, None]
    points = (
        x * across + y * down + shift + half
    )  # no matrix product: a border on a pixel's edge depends on how it is rounded
    # Corners within a ten-thousandth of a pixel count as on it, so that right angles do not gain a row.
    finer, coarser = np.float32(1e4), np.float32(1e-4)
    high = np.ceil(np.trunc(points.max(0) * finer) * coarser)
    low = np.floor(np.trunc(points.min(0) * finer) * coarser)
    size = high - low
    return int(size[0]), int(size[1])


def perspective_coefficients(startpoints: Sequence[Sequence[int]], endpoints: Sequence[Sequence[int]]) -> list[float]:
    """Return the eight coefficients of the projection that reads at `startpoints` for the output at `endpoints`.

    (x', y') = ((a x + b y + c) / (g x + h y + 1), (d x + e y + f) / (g x + h y + 1)), by least squares over four corners."""
    if len(startpoints) != 4 or len(endpoints) != 4:
        raise ValueError(
            f"Please provide exactly four corners, got {len(startpoints)} startpoints and {len(endpoints)} endpoints."
        )
    rows, wanted = [], []
    for (x, y), (sx, sy) in zip(endpoints, startpoints):
        rows.append([x, y, 1, 0, 0, 0, -sx * x, -sx * y])
        rows.append([0, 0, 0, x, y, 1, -sy * x, -sy * y])
        wanted += [sx, sy]
    solution, *_ = np.linalg.lstsq(np.array(rows, dtype=np.float64), np.array(wanted, dtype=np.float64), rcond=None)
    return [float(value) for value in solution.astype(np.float32)]


def from_middle(center: Sequence[float] | None, height: int, width: int) -> list[float]:
    """Return a point of the image relative to its middle; None is the middle."""
    return [0.0, 0.0] if center is None else [c - s * 0.5 for c, s in zip(center, (width, height))]
