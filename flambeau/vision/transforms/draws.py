"""Random draws of transforms: the same numbers in the same order as torchvision, from the same seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import flambeau
from flambeau import Tensor
from flambeau.core.generator import default_generator
from flambeau.core.tensor import empty
from flambeau.ops.random.random_fill import fill
from flambeau.ops.random.samplers import Integers, Uniform


def uniform(low: float, high: float) -> float:
    """Draw a number from the default generator."""
    return _uniform_tensor(low, high).item()


def _uniform_tensor(low: float, high: float) -> Tensor:
    number = empty((1,), flambeau.get_default_dtype())
    return fill(number, default_generator, _uniform(low, high))


@lru_cache(64)
def _uniform(low: float, high: float) -> Uniform:
    return Uniform(low, high)


@lru_cache(64)
def _logarithms(values: tuple[float, ...], dtype: Any) -> list[float]:
    """Return the logarithms of values, cached because a data loader needs the same ones for every image."""
    return flambeau.log(flambeau.tensor(values, dtype=dtype)).tolist()


def happens(p: float) -> bool:
    """Return True with probability p, which is compared in float32 as a tensor would be."""
    return uniform(0.0, 1.0) < np.float32(p)


def whole(low: int, high: int) -> int:
    """Draw an integer in low..high-1."""
    return fill(empty((1,), flambeau.int64), default_generator, Integers(low, high)).item()


def crop_corner(own: Sequence[int], size: Sequence[int]) -> tuple[int, int]:
    """Draw top and left of a window inside the image."""
    return whole(0, own[0] - size[0] + 1), whole(0, own[1] - size[1] + 1)


def resized_crop(own: Sequence[int], scale: Sequence[float], ratio: Sequence[float]) -> tuple[int, int, int, int]:
    """Draw a window of random area and shape, (top, left, height, width), in ten tries; else the largest central one that fits `ratio`."""
    height, width = own
    for w, h in _ten_boxes(height * width, scale, ratio):
        if 0 < w <= width and 0 < h <= height:
            return whole(0, height - h + 1), whole(0, width - w + 1), h, w
    own_ratio = float(width) / float(height)
    if own_ratio < min(ratio):
        w, h = width, int(round(width / min(ratio)))
    elif own_ratio > max(ratio):
        w, h = int(round(height * max(ratio))), height
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w


def _ten_boxes(area: int, scale: Sequence[float], ratio: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Draw ten boxes, one after the other: sides of a random part of an area, the first `ratio` times as long as the second."""
    log_ratio = _logarithms(tuple(ratio), flambeau.get_default_dtype())
    for _ in range(10):
        target = area * uniform(scale[0], scale[1])
        aspect = _uniform_tensor(*log_ratio).exp_().item()
        yield int(round(math.sqrt(target * aspect))), int(round(math.sqrt(target / aspect)))


def erasing(
    own: Sequence[int], scale: Sequence[float], ratio: Sequence[float], value: Sequence[float] | None
) -> tuple[int, int, int, int, Any] | None:
    """Draw (top, left, height, width, colour) of a box to erase, or None if none of ten tries fits."""
    channels, height, width = own
    for h, w in _ten_boxes(height * width, scale, ratio):
        if not (h < height and w < width):
            continue
        if value is None:
            color = flambeau.empty([channels, h, w], dtype=flambeau.float32).normal_()
        else:
            color = flambeau.tensor(value)[:, None, None]
        return whole(0, height - h + 1), whole(0, width - w + 1), h, w, color
    return None


def perspective_points(width: int, height: int, distortion: float) -> tuple[list[list[int]], list[list[int]]]:
    """Return the corners of the image, and random new ones: each moved inwards by up to half of the image times `distortion`."""
    dx, dy = int(distortion * (width // 2)), int(distortion * (height // 2))
    top_left = [whole(0, dx + 1), whole(0, dy + 1)]
    top_right = [whole(width - dx - 1, width), whole(0, dy + 1)]
    bottom_right = [whole(width - dx - 1, width), whole(height - dy - 1, height)]
    bottom_left = [whole(0, dx + 1), whole(height - dy - 1, height)]
    start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    return start, [top_left, top_right, bottom_right, bottom_left]


def affine(
    degrees: Sequence[float],
    translate: Sequence[float] | None,
    scale: Sequence[float] | None,
    shear: Sequence[float] | None,
    size: Sequence[int],
) -> tuple[float, tuple[int, int], float, tuple[float, float]]:
    """Draw (angle, translation, scale, shear) for an image of `size` (width, height)."""
    angle = uniform(float(degrees[0]), float(degrees[1]))
    moved = (0, 0)
    if translate is not None:
        far_x, far_y = float(translate[0] * size[0]), float(translate[1] * size[1])
        moved = (int(round(uniform(-far_x, far_x))), int(round(uniform(-far_y, far_y))))
    factor = 1.0 if scale is None else uniform(scale[0], scale[1])
    shear_x = shear_y = 0.0
    if shear is not None:
        shear_x = uniform(shear[0], shear[1])
        if len(shear) == 4:
            shear_y = uniform(shear[2], shear[3])
    return angle, moved, factor, (shear_x, shear_y)


def jitter(*ranges: Sequence[float] | None) -> tuple[flambeau.Tensor, list[float | None]]:
    """Draw the order of the four colour changes, and the factor of each (None if its range is None)."""
    order = flambeau.randperm(4)
    return order, [None if bounds is None else float(uniform(bounds[0], bounds[1])) for bounds in ranges]
