"""Window functions for spectra: the weight of each sample of a frame."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.dtype import float64
from ...core.layout import strided
from ...core.promotion import get_default_dtype
from ...core.tensor import Tensor, copy_of_array
from ..creation.filled import finish
from ..creation.ranges import arange
from ..machinery.arguments import Options, as_int, as_number, read_options
from ..machinery.declare import composite
from ..shape.joining import cat

# Formulas take the positions n of the samples and the last position. Those of tensors are computed in the window's own dtype, numbers
# included, step by step as in PyTorch, whose rounding is part of its answers; those of arrays in double precision.


def raised_cosine(n: Tensor, last: float, alpha: float, beta: float) -> Tensor:
    factor, depth, middle = (n.new_tensor(v) for v in (2 * math.pi / last, -beta, alpha))
    return n.mul(factor).cos().mul(depth).add(middle)


def two_cosines(n: Tensor, last: float) -> Tensor:
    factor, small, middle = (n.new_tensor(v) for v in (math.pi / last, 0.08, 0.42))
    angle = n.mul(factor)
    return angle.mul(4).cos().mul(small).sub(angle.mul(2).cos().mul(0.5)).add(middle)


def rise_and_fall(n: Tensor, last: float) -> Tensor:
    rising = n.mul(n.new_tensor(2 / last))
    return cat([rising[: int(last) // 2 + 1], rising[int(last) // 2 + 1 :].mul(-1).add(2)])


def bessel(n: np.ndarray, last: float, beta: float) -> np.ndarray:
    position = (n - last / 2) / (last / 2)
    return np.i0(beta * np.sqrt(np.maximum(0, 1 - position * position))) / np.i0(beta)


def samples(length: int, periodic: bool, formula: Callable[..., Any], *parameters: Any) -> np.ndarray:
    """Return a window of `length` samples; a periodic one is a symmetric one that is one sample longer, without its last."""
    if length <= 1:
        return np.ones(length)
    return formula(np.arange(length, dtype=np.float64), float(length if periodic else length - 1), *parameters)


def as_window(values: np.ndarray, options: Options) -> Tensor:
    d = options.dtype or get_default_dtype()
    result = copy_of_array(values, float64).to(d)
    return finish(result if options.device is None else result.to(options.device), options.requires_grad)


def _window(
    name: str, length: Any, periodic: bool, options: dict[str, Any], formula: Callable[..., Any], *rest: Any
) -> Tensor:
    length = as_int(length, name, "window_length", 1)
    if options.get("layout", strided) not in (strided, None):
        raise RuntimeError(f"{name} is not implemented for sparse types, got: {options['layout']}")
    chosen = read_options(name, options)
    if chosen.dtype is not None and chosen.dtype.category != 2:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {chosen.dtype.scalar_type}")
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    if formula is bessel or length <= 1:
        return as_window(samples(length, periodic, formula, *rest), chosen)
    n = arange(length, dtype=chosen.dtype or get_default_dtype(), device=chosen.device)
    return finish(formula(n, float(length if periodic else length - 1), *rest), chosen.requires_grad)


@composite(kind="creation", method=False)
def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """The Hann window: one period of a raised cosine."""
    return _window("hann_window", window_length, periodic, options, raised_cosine, 0.5, 0.5)


@composite(kind="creation", method=False)
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any
) -> Tensor:
    """The Hamming window: a raised cosine that does not go down to zero."""
    alpha, beta = (float(as_number(v, "hamming_window", "alpha", 3)) for v in (alpha, beta))
    return _window("hamming_window", window_length, periodic, options, raised_cosine, alpha, beta)


@composite(kind="creation", method=False)
def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """The Blackman window: two cosines, with smaller side lobes than Hann's window."""
    return _window("blackman_window", window_length, periodic, options, two_cosines)


@composite(kind="creation", method=False)
def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """The Bartlett window, a triangle."""
    return _window("bartlett_window", window_length, periodic, options, rise_and_fall)


@composite(kind="creation", method=False)
def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Tensor:
    """Kaiser's window; a larger beta makes it narrower."""
    return _window("kaiser_window", window_length, periodic, options, bessel, float(beta))
