"""Helpers for pooling regions: reading boxes, and tables of the elements that each bin reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import flambeau
from flambeau import Tensor

from ._utils import check_roi_boxes_shape, convert_boxes_to_roi_format

_MOST_POINTS = 1 << 31


def pair(value: Any, name: str = "output_size") -> tuple[int, int]:
    """Return an int or a pair of ints as a pair; at least 1 each."""
    both = (value, value) if isinstance(value, int) else tuple(value)
    if len(both) != 2 or any(not isinstance(v, int) or v < 1 for v in both):
        raise ValueError(f"{name} should be a positive int or two of them, got {value}")
    return both[0], both[1]


def rows_of(boxes: Tensor | Sequence[Tensor]) -> Tensor:
    """Return regions as rows (K, 5) of image index and box, from such rows or from one (L, 4) tensor per image."""
    check_roi_boxes_shape(boxes)
    return boxes if isinstance(boxes, Tensor) else convert_boxes_to_roi_format(boxes)


class Rows:
    """Validated boxes of an operator: image numbers, and corners scaled to the feature map, as NumPy arrays."""

    def __init__(self, name: str, input: Tensor, boxes: Tensor | Sequence[Tensor], scale: float):
        rois = rows_of(boxes)
        if input.dim() != 4:
            raise RuntimeError(f"{name}: expected an input of shape (N, C, H, W), got {list(input.shape)}")
        if not input.is_floating_point():
            raise NotImplementedError(f"\"{name}\" not implemented for '{input.dtype}'")
        if input.dtype is not rois.dtype:
            raise RuntimeError(f"{name}: expected input and boxes of one dtype, got {input.dtype} and {rois.dtype}")
        wide = flambeau.float64 if input.dtype is flambeau.float64 else flambeau.float32
        values = rois.detach().to(wide).numpy()
        numbers = values[:, 0]
        if not ((numbers >= 0) & (numbers < input.shape[0])).all():
            raise IndexError(f"{name}: boxes name images {numbers.tolist()}, the input has {input.shape[0]}")
        self.dtype: Any = wide
        self.count = len(values)
        self.image = np.ascontiguousarray(numbers.astype(np.int64))
        self.corners = values[:, 1:] * values.dtype.type(scale)


class Points:
    """The interpolated points along one axis: `align_taps` for all regions."""

    def __init__(self, kernel: Any, start: np.ndarray, length: np.ndarray, size: int, bins: int, ratio: int):
        if size < 1:
            raise RuntimeError(f"the feature map must not be empty, got size {size}")
        count = np.full(len(start), ratio, np.int64)
        if ratio <= 0:
            wanted = np.ceil(length / bins)
            count = np.where(np.isfinite(wanted) & (wanted > 0), wanted, 0)
            if count.sum() * bins > _MOST_POINTS:
                raise RuntimeError(
                    f"boxes are too large to be sampled at every element: up to {count.max():.0f} per bin"
                )
            count = count.astype(np.int64)
        self.counts = count
        self.starts = np.concatenate([[0], np.cumsum(count * bins)]).astype(np.int64)
        total = max(int(self.starts[-1]), 1)
        self.taps, self.fractions = np.empty(total, np.int64), np.empty(total, start.dtype)
        step = (length / bins).astype(start.dtype)
        kernel(
            self.taps,
            self.fractions,
            np.ascontiguousarray(start),
            np.ascontiguousarray(step),
            self.starts,
            count,
            len(start),
            size,
            bins,
        )

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        return self.taps, self.fractions, self.starts, self.counts


def rounded(values: np.ndarray) -> np.ndarray:
    """Round to the nearest integer, halves away from zero; NaN and numbers beyond any image become a huge number."""
    values = np.nan_to_num(values, nan=0.0, posinf=1e9, neginf=-1e9).clip(-1e9, 1e9)
    whole = np.trunc(values)
    return whole + np.sign(values) * (np.abs(values - whole) >= 0.5)


def limits(first: np.ndarray, last: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return bin borders as integers inside the feature map."""
    inside = [np.clip(v, 0, size).astype(np.int64) for v in (first, last)]
    return np.ascontiguousarray(inside[0]), np.ascontiguousarray(inside[1])
