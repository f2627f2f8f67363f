"""Building blocks of the mathematical functions: number formats, polynomials, splitting and composing exponents.

Lowered functions use primitive operations only (arithmetic, fma, rounding, comparisons, selection, bits), so that loops over them vectorise
on every target. Constants in the formulas take the dtype of the other operand; `Format.number` is for operations on two constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..core import dtype as dt
from ..expr.functions import bitcast, cast, const, fma, where
from ..expr.node import Expr

INF, NAN = math.inf, math.nan
LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Format:
    """Constants of an IEEE format that the formulas need."""

    dtype: dt.dtype
    integer: dt.dtype  # of the same size
    mantissa: int  # explicit bits
    bias: int
    smallest_normal: float
    sqrt_half_bits: int

    @property
    def is_double(self) -> bool:
        return self.mantissa == 52

    @property
    def round_to_integer(self) -> float:
        """Return the number whose addition leaves the nearest integer in the low bits of the mantissa."""
        return 1.5 * 2.0**self.mantissa

    def number(self, value: float) -> Expr:
        return cast(const(float(value)), self.dtype)

    def bits(self, x: Expr) -> Expr:
        return bitcast(x, self.integer)

    def from_bits(self, i: Expr) -> Expr:
        return bitcast(i, self.dtype)

    def power_of_two(self, biased_exponent: Expr) -> Expr:
        """Return 2**(n - bias) from an integer n; higher bits of n are shifted out."""
        return self.from_bits(biased_exponent << self.mantissa)


FLOAT32 = Format(dt.float32, dt.int32, 23, 127, 2.0**-126, 0x3F3504F3)
FLOAT64 = Format(dt.float64, dt.int64, 52, 1023, 2.0**-1022, 0x3FE6A09E667F3BCD)
FORMATS = {dt.float32: FLOAT32, dt.float64: FLOAT64}


def polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """Evaluate a polynomial by Horner's rule, lowest power first in the table."""
    result: Any = const(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, c)
    return result


def at_most(x: Expr, high: float) -> Expr:
    return where(x > high, high, x)


def clamp(x: Expr, low: float, high: float) -> Expr:
    """Clamp x, by one machine instruction per bound; nan stays nan."""
    x = where(x > high, high, x)
    return where(x < low, low, x)


def with_sign_of(magnitude: Expr, x: Expr, f: Format) -> Expr:
    sign = f.bits(x) & (-1 << (f.mantissa + f.integer.itemsize * 8 - f.mantissa - 1))
    return f.from_bits(f.bits(magnitude) | sign)


def flip_sign(x: Expr, odd: Expr, f: Format) -> Expr:
    """Return -x where the lowest bit of the integer `odd` is set, else x."""
    return f.from_bits(f.bits(x) ^ (odd << (f.integer.itemsize * 8 - 1)))


def nearest_integer(x: Expr, scale: float, f: Format) -> tuple[Expr, Expr]:
    """Return round(x * scale), as an integer in the low bits of a word and as a float, if it fits the mantissa."""
    shifted = fma(x, scale, f.round_to_integer)
    return f.bits(shifted), shifted - f.round_to_integer


def split_exponent(x: Expr, f: Format, may_be_denormal: bool = True) -> tuple[Expr, Expr]:
    """Positive x = 2**e * (1 + t) with sqrt(1/2) <= 1 + t < sqrt(2); returns (e as a float, t).
    For other x, e carries what log must return: -inf for 0, inf for inf, nan for negative numbers and nan."""
    normal, bias = x, f.number(f.bias)
    if may_be_denormal:
        is_denormal, scale = x < f.smallest_normal, f.mantissa + 2
        normal = where(is_denormal, x * 2.0**scale, x)
        bias = where(is_denormal, f.number(f.bias + scale), bias)
    bits = f.bits(normal)
    # Moving the word up by 1 - sqrt(1/2) makes the exponent field change at sqrt(1/2) instead of 1.
    exponent = (bits + ((f.bias << f.mantissa) - f.sqrt_half_bits)) >> f.mantissa
    t = f.from_bits(bits - ((exponent - f.bias) << f.mantissa)) - 1.0
    e = where(x < INF, exponent_as_float(exponent, f) - bias, x)
    return where(x > 0.0, e, where(x == 0.0, f.number(-INF), f.number(NAN))), t


def exponent_as_float(exponent: Expr, f: Format) -> Expr:
    """Return a small non-negative integer as a float; 64-bit conversions are not vector instructions everywhere."""
    if not f.is_double:
        return cast(exponent, f.dtype)
    return f.from_bits(exponent | 0x4330000000000000) - 2.0**52
