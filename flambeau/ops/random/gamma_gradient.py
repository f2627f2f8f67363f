"""Derivatives of gamma and Dirichlet samples with respect to their parameters, by implicit differentiation.

A sample x with distribution function F(x; a) keeps its quantile when a changes, so dx/da = -(dF/da) / (dF/dx). For most
parameters F is a power series that is quick to differentiate (`kernels.library.gamma_gradient`). For the others dF/da is
an integral from x to the nearer end of the distribution; with the distance from x on a logarithmic scale as variable,
its integrand is smooth and of one sign, and double-exponential quadrature (Takahasi and Mori) gives nearly all digits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...core import dtype as dt
from ...core.tensor import empty, from_array
from ...kernels.library.gamma_gradient import beta_series, gamma_series
from ..machinery.plan import NATIVE

_STEP = 0.04
_TAU = np.arange(-3.4, 3.4 + _STEP / 2, _STEP)
_NODES = np.exp(0.5 * np.pi * np.sinh(_TAU))
_WEIGHTS = _STEP * 0.5 * np.pi * np.cosh(_TAU) * _NODES
_CHUNK = 4096


def _integrate(integrand: Callable[[np.ndarray, slice], np.ndarray], size: int) -> np.ndarray:
    """Return the integral over y from 0 to infinity for each of `size` parameters; `integrand(y, which)` broadcasts."""
    total = np.empty(size)
    with np.errstate(all="ignore"):
        for start in range(0, size, _CHUNK):
            which = slice(start, start + _CHUNK)
            values = np.nan_to_num(
                integrand(_NODES[:, None], which) * _WEIGHTS[:, None], nan=0.0, posinf=0.0, neginf=0.0
            )
            total[which] = values.sum(0)
    return total


def digamma(x: np.ndarray) -> np.ndarray:
    """Return the derivative of the logarithm of the gamma function, for positive x."""
    shifted, result = x.copy(), np.zeros_like(x)
    for _ in range(8):
        small = shifted < 8
        result -= np.where(small, 1 / shifted, 0.0)
        shifted += small
    square = 1 / (shifted * shifted)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    return result + np.log(shifted) - 0.5 / shifted - series


def _by_series(
    series: Callable[..., None],
    quadrature: Callable[..., np.ndarray],
    arguments: tuple[np.ndarray, ...],
    like: np.ndarray,
) -> np.ndarray:
    """Return the series where it is accurate, quadrature elsewhere, in the dtype of `like`."""
    shape = np.broadcast_shapes(*(a.shape for a in arguments))
    flat = [np.ascontiguousarray(np.broadcast_to(a, shape), np.float64).reshape(-1) for a in arguments]
    size = flat[0].size
    if not NATIVE or not size:
        return quadrature(*flat).reshape(shape).astype(like.dtype)
    out, doubtful = empty((size,), dt.float64), empty((size,), dt.uint8)
    series(out, doubtful, *(from_array(a) for a in flat), size)
    result, where = out._array(), np.flatnonzero(doubtful._array())
    if where.size:
        result[where] = quadrature(*(a[where] for a in flat))
    return result.reshape(shape).astype(like.dtype)


def gamma_gradient(alpha: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return d x / d alpha for samples x of gamma distributions with shape parameter alpha and scale 1."""
    return _by_series(gamma_series, _gamma_by_quadrature, (alpha, x), x)


def dirichlet_gradient(x: np.ndarray, alpha: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return (d x / d alpha) / (1 - x) for samples x of beta distributions with parameters alpha and total - alpha: the change of all
    components of a Dirichlet sample, in proportion to their distance from the corner of x."""
    return _by_series(beta_series, _beta_by_quadrature, (x, alpha, total), x)


def _gamma_by_quadrature(a: np.ndarray, v: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        offset = digamma(a) - np.log(v)
    # Nearer to 0, integrate over t = x exp(-y), else over t = x exp(y), whose integrand ends abruptly if x is tiny.
    lower = (offset > 0) | ((a < 1) & (v < 1))

    def integrand(y: np.ndarray, which: slice) -> np.ndarray:
        below = lower[which]
        sign = np.where(below, 1.0, -1.0)
        exponent = -v[which] * np.expm1(-sign * y) - sign * a[which] * y
        return np.exp(exponent) * (y + sign * offset[which])

    return v * _integrate(integrand, v.size)


def _beta_by_quadrature(v: np.ndarray, a: np.ndarray, s: np.ndarray) -> np.ndarray:
    b = s - a
    with np.errstate(all="ignore"):
        offset = digamma(a) - digamma(s)
        lower = np.log(v) < offset

    def integrand(y: np.ndarray, which: slice) -> np.ndarray:
        value, p, q, shift = v[which], a[which], b[which], offset[which]
        decay = np.exp(-y)
        below = np.exp(-p * y + (q - 1) * (np.log1p(-value * decay) - np.log1p(-value))) * (shift + y - np.log(value))
        t = np.log1p(-(1 - value) * decay)
        above = np.exp(-q * y + (p - 1) * (t - np.log(value))) * (t - shift)
        return np.where(lower[which], value / (1 - value) * below, above)

    return _integrate(integrand, v.size)
