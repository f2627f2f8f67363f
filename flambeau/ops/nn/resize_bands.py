"""Interpolation along one dimension as bands: the inputs of each output, and their weights.

`scale` is the distance of neighbouring outputs, in inputs. Positions are computed in the precision PyTorch uses (`real`):
float32 unless the data are float64, since a last bit decides which input is the nearest."""

from __future__ import annotations

from typing import Any

import numpy as np

from .band import Band, outlined


def spacing(size: int, out: int, align_corners: bool, factor: float | None, real: Any) -> Any:
    """Return the distance between the inputs that neighbouring outputs sample."""
    if align_corners:
        return real(size - 1) / real(out - 1) if out > 1 else real(0)
    return real(1.0 / factor) if factor is not None and factor > 0 else real(size) / real(out)


@outlined(512)
def nearest_band(size: int, out: int, factor: float | None, exact: bool, whole: bool) -> Band:
    """Return the band that picks the nearest input. `whole`: lines are copied or doubled, whatever the factor says."""
    place = np.arange(out, dtype=np.float32)
    scale = spacing(size, out, False, factor, np.float32)
    if exact:
        index = np.floor((place + np.float32(0.5)) * scale)
    elif whole and out in (size, 2 * size):
        index = np.arange(out) // (out // size)
    else:
        index = np.floor(place * scale)
    first = np.minimum(index.astype(np.int64), size - 1)
    return Band(size, first, np.ones(out), np.ones((out, 1)))


def _sources(size: int, out: int, align_corners: bool, factor: float | None, real: Any) -> np.ndarray:
    """Return the position among the inputs that each output samples."""
    place = np.arange(out).astype(real)
    scale = spacing(size, out, align_corners, factor, real)
    if align_corners:
        return place * scale
    # Rounded once, as a fused multiply-add does it.
    return (np.float64(scale) * (place + real(0.5)) - 0.5).astype(real)


@outlined(512)
def linear_band(size: int, out: int, align_corners: bool, factor: float | None, real: Any) -> Band:
    if size == out:
        first, share = np.arange(out), np.zeros(out, real)
    else:
        source = np.maximum(_sources(size, out, align_corners, factor, real), real(0))
        first = np.minimum(source.astype(np.int64), size - 1)
        share = np.clip(source - first.astype(real), real(0), real(1))
    return Band(size, first, np.full(out, 2), np.stack([1 - share, share], 1).astype(np.float64))


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Evaluate Keys' cubic convolution kernel."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


@outlined(512)
def cubic_band(size: int, out: int, align_corners: bool, factor: float | None, real: Any) -> Band:
    source = _sources(size, out, align_corners, factor, real)
    below = np.minimum(np.floor(source).astype(np.int64), size - 1)
    share = np.clip(source - below.astype(real), real(0), real(1)).astype(np.float64)
    weights = np.stack([_cubic(share + 1 - k, -0.75) for k in range(4)], 1)
    return Band(size, below - 1, np.full(out, 4), weights)


# -- filters that grow with the scale (antialias) -------------------------------------------------------------------------


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0.0)


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


_FILTERS: dict[str, tuple[Any, float]] = {  # and how far each reaches
    "bilinear": (_triangle, 1.0),
    "bicubic": (lambda x: _cubic(x, -0.5), 2.0),
    "lanczos": (_lanczos, 3.0),
}


@outlined(1024)  # random crops of images meet every size up to theirs
def smooth_band(size: int, out: int, align_corners: bool, factor: float | None, kind: str, real: Any) -> Band:
    """Return the band in which every output is the weighted average of all inputs that its share of the line covers."""
    if size == out:  # PyTorch leaves such a dimension alone, whatever the factor says
        return Band(size, np.arange(out), np.ones(out), np.ones((out, 1)))
    shape, reach = _FILTERS[kind]
    scale = spacing(size, out, align_corners, factor, real)
    grown = max(scale, real(1))
    centre = scale * (np.arange(out).astype(real) + real(0.5))
    support = real(reach) * grown
    first = np.maximum((centre - support + real(0.5)).astype(np.int64), 0)
    count = np.maximum(np.minimum((centre + support + real(0.5)).astype(np.int64), size) - first, 0)
    taps = np.arange(int(count.max(initial=1)))
    distance = (taps[None, :] + first[:, None] - centre[:, None].astype(np.float64) + 0.5) / float(grown)
    weights = np.where(taps[None, :] < count[:, None], shape(distance), 0.0)
    total = weights.sum(1, keepdims=True)
    return Band(size, first, count, weights / np.where(total == 0, 1, total))
