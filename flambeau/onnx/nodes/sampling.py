"""Resize, in all its variants: one dimension after the other, as a product with a small matrix of weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau

from ...core.tensor import Tensor
from ..dtypes import tensor_of


def resized(
    x: Tensor, scales: Any, sizes: Any, roi: Any, axes: Any, where: str, mode: str, nearest_mode: str, cubic: float, exclude: int, outside: float,
    antialias: int, policy: str,
) -> Tensor:  # fmt: skip
    dims = list(range(x.dim())) if axes is None else [a % x.dim() for a in axes]
    if sizes is not None:
        factors = [n / x.shape[d] for d, n in zip(dims, sizes)]
        if policy != "stretch":
            one = min(factors) if policy == "not_larger" else max(factors)
            factors = [one] * len(dims)
            sizes = [math.floor(x.shape[d] * one + 0.5) for d in dims]
    else:
        factors = list(scales)
        sizes = [math.floor(x.shape[d] * f) for d, f in zip(dims, factors)]
    for i, (d, n, f) in enumerate(zip(dims, sizes, factors)):
        region = (roi[i], roi[i + len(dims)]) if roi is not None else (0.0, 1.0)
        if n == x.shape[d] and f == 1 and where != "tf_crop_and_resize":
            continue
        matrix, lost = _weights(x.shape[d], n, f, region, where, mode, nearest_mode, cubic, exclude, antialias)
        moved = x.movedim(d, -1)
        made = moved.to(flambeau.float32 if not x.is_floating_point() else x.dtype) @ tensor_of(matrix.T).to(
            x.dtype if x.is_floating_point() else flambeau.float32
        )
        if lost.any():
            made = flambeau.where(tensor_of(lost), flambeau.full_like(made, outside), made)
        x = made.movedim(-1, d).to(x.dtype)
    return x


def _input_coordinate(i: int, n_in: int, n_out: int, factor: float, region: tuple[float, float], where: str) -> float:
    """Return the coordinate in the input that output element `i` is read from, by ONNX's coordinate transformation mode."""
    if where == "align_corners":
        return i * (n_in - 1) / (n_out - 1) if n_out != 1 else 0.0
    if where == "asymmetric":
        return i / factor
    if where == "pytorch_half_pixel":
        return (i + 0.5) / factor - 0.5 if n_out > 1 else 0.0
    if where == "tf_half_pixel_for_nn":
        return (i + 0.5) / factor
    if where == "tf_crop_and_resize":
        start, end = region
        if n_out > 1:
            return start * (n_in - 1) + i * (end - start) * (n_in - 1) / (n_out - 1)
        return 0.5 * (start + end) * (n_in - 1)
    if where == "half_pixel_symmetric":
        adjusted = n_out / (factor * n_in)
        return n_in / 2 * (1 - adjusted) + (i + 0.5) / factor - 0.5
    return (i + 0.5) / factor - 0.5


def _cubic_kernel(t: np.ndarray, mode: str, a: float) -> np.ndarray:
    t = np.abs(t)
    if mode == "linear":
        return np.maximum(1 - t, 0)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


def _nearest(at: float, rule: str) -> int:
    if at == math.floor(at):
        return int(at)
    if rule == "round_prefer_floor":
        return math.ceil(at - 0.5)
    if rule == "round_prefer_ceil":
        return math.floor(at + 0.5)
    return math.floor(at) if rule == "floor" else math.ceil(at)


def _weights(
    n_in: int, n_out: int, factor: float, region: tuple[float, float], where: str, mode: str, rule: str, a: float,
    exclude: int, antialias: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the matrix that maps n_in elements to n_out, and which of the n_out lie outside of the input."""
    made = np.zeros((n_out, n_in))
    lost = np.zeros(n_out, bool)
    shrink = min(factor, 1.0) if antialias else 1.0
    reach = (1 if mode == "linear" else 2) / shrink
    for i in range(n_out):
        at = _input_coordinate(i, n_in, n_out, factor, region, where)
        lost[i] = where == "tf_crop_and_resize" and not 0 <= at <= n_in - 1
        if mode == "nearest":
            made[i, min(max(_nearest(at, rule), 0), n_in - 1)] = 1
            continue
        low = math.floor(at - reach) + 1 if shrink < 1 else math.floor(at) - (0 if mode == "linear" else 1)
        high = math.ceil(at + reach) if shrink < 1 else low + (2 if mode == "linear" else 4)
        places = np.arange(low, high)
        weights = _cubic_kernel((places - at) * shrink, mode, a)
        if exclude or shrink < 1:
            weights = np.where((places < 0) | (places >= n_in), 0 if exclude else weights, weights)
        if exclude or shrink < 1:
            weights = weights / weights.sum()
        np.add.at(made[i], places.clip(0, n_in - 1), weights)
    return made, lost
