"""Remainders and floor division of float32 without a loop, so that they vectorise.

In float64 a - q * b is exact for a whole number q near a / b: one fma. A quotient beyond 2**51 takes more than one step;
five are enough for the largest quotient of two float32 numbers, 2**277."""

from __future__ import annotations

from ..core import dtype as dt
from ..expr.functions import abs_, cast, copysign, floor, fma, trunc, where
from ..expr.node import Expr
from .mathlib_core import INF, Format

_STEPS = 6


def fmod(a: Expr, b: Expr, f: Format) -> Expr:
    """Return the remainder of a division rounded towards zero: exact, with the sign of a."""
    size, divisor = abs_(cast(a, dt.float64)), abs_(cast(b, dt.float64))
    inverse = 1.0 / divisor
    left = size
    for _ in range(_STEPS):
        left = fma(-trunc(left * inverse), divisor, left)
    # the last quotient may have been one too large or one too small
    left = where(left < 0.0, left + divisor, left)
    left = where(left >= divisor, left - divisor, left)
    left = where((divisor == INF) & (size < INF), size, left)
    return copysign(cast(left, f.dtype), a)


def mod(a: Expr, b: Expr, f: Format) -> Expr:
    """Return the remainder of a division rounded down: it has the sign of b."""
    left = fmod(a, b, f)
    return where((left != 0.0) & ((left < 0.0) ^ (b < 0.0)), left + b, left)


def floordiv(a: Expr, b: Expr, f: Format) -> Expr:
    """The quotient rounded down, consistent with `mod`."""
    left = fmod(a, b, f)
    exact = a / b
    quotient = (a - left) / b
    quotient = where((left != 0.0) & ((b < 0.0) ^ (left < 0.0)), quotient - 1.0, quotient)
    whole = floor(quotient)
    whole = where(quotient - whole > 0.5, whole + 1.0, whole)
    whole = where(quotient == 0.0, copysign(f.number(0.0), exact), whole)
    return where(b == 0.0, exact, whole)
