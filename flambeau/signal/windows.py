"""Window functions. With sym=True they are symmetric, for filters; with sym=False periodic, for spectra.

>>> hann(5)
tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..core.dtype import float32, float64
from ..core.layout import strided
from ..core.promotion import get_default_dtype
from ..core.tensor import Tensor
from ..ops.machinery.arguments import read_options
from ..ops.signal.windows import as_window, bessel, samples

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip


def _window(
    name: str, M: int, sym: bool, options: dict[str, Any], formula: Callable, *parameters: Any, alone: float = 1.0
) -> Tensor:
    """Return the window of a formula; `alone` is its only sample if M is 1."""
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if options.get("layout", strided) is not strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {options['layout']}")
    chosen = read_options(name, options)
    d = chosen.dtype or get_default_dtype()
    if d not in (float32, float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {d}")
    return as_window(np.array([alone]) if M == 1 else samples(M, not sym, formula, *parameters), chosen)


def _positive(what: str, value: float) -> None:
    if value <= 0:
        raise ValueError(f"{what} must be positive, got: {value} instead.")


def _cosines(n: np.ndarray, last: float, a: tuple[float, ...]) -> np.ndarray:
    total = np.zeros(len(n))
    for i, factor in enumerate(a):
        total += (-1) ** i * factor * np.cos(2 * math.pi * i * n / last)
    return total


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Return the Bartlett window, a triangle."""
    return _window("bartlett", M, sym, options, lambda n, last: 1 - np.abs(2 * n / last - 1))


def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, **options: Any) -> Tensor:
    """Return a sum of cosines with the coefficients `a`, signs alternating."""
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    coefficients = tuple(float(x) for x in a)
    if not coefficients:
        raise ValueError("Coefficients cannot be empty")
    return _window("general_cosine", M, sym, options, _cosines, coefficients)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """Return the general Hamming window: alpha - (1 - alpha) cos."""
    return general_cosine(M, a=[alpha, 1 - alpha], sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Return the Hamming window, a raised cosine that does not fall to zero."""
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Return the Hann window: one period of a raised cosine."""
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Return the Blackman window: two cosines, with smaller side lobes than Hann's window."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Return the Nuttall window: three cosines, with very small side lobes."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, **options)


def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Return the cosine window: half a period of a sine."""
    return _window("cosine", M, sym, options, lambda n, last: np.sin(math.pi * (n + 0.5) / (last + 1)))


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """Return a window that falls off exponentially on both sides of its center."""
    if M > 0:
        _positive("Tau", tau)
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")

    def formula(n: np.ndarray, last: float) -> np.ndarray:
        return np.exp(-np.abs(n - (last / 2 if center is None else center)) / tau)

    return _window("exponential", M, sym, options, formula, alone=math.exp(-abs(center or 0) / tau))


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """Return a Gaussian with the given standard deviation, counted in samples."""
    if M > 0:
        _positive("Standard deviation", std)
    return _window("gaussian", M, sym, options, lambda n, last: np.exp(-(((n - last / 2) / std) ** 2) / 2))


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:
    """Return Kaiser's window; a larger beta makes it narrower."""
    if M > 0 and beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _window("kaiser", M, sym, options, bessel, float(beta))
