"""Arithmetic that reproduces, bit for bit, what PyTorch's CPU kernels compute for random numbers.

Three things make those bits: float32 logarithm, sine and cosine are Cephes' single-precision polynomials evaluated with
fused multiply-adds; other kernels use the C library's double-precision functions; and the compiler fuses `a * b + c`.
NumPy has none of the three, so they are rebuilt here from operations that are exact or correctly rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau.core.bfloat16 import bits_to_float32, float32_to_bits
from flambeau.core.dtype import bfloat16, dtype, float16, float32, float64

TWO_PI_32 = float(np.float32(2 * math.pi))

_CHUNK = 1 << 13  # elements handled at a time, so that the many temporaries stay in the cache
_SPLITTER = 134217729.0  # 2**27 + 1: halves a float64 into two 26-bit parts
_FLOAT32_TAIL = np.uint64(0x1FFFFFFF)  # the float64 mantissa bits that float32 lacks
_FLOAT32_TIE = np.uint64(0x10000000)  # their value half-way between two float32 numbers


# -- narrowing --------------------------------------------------------------------------------------------------------


def narrow(values: np.ndarray[Any, Any], to: dtype) -> np.ndarray[Any, Any]:
    """Return floating values as dtype `to`; half-width types are converted through float32, as in PyTorch."""
    if to is float64:
        return values.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        single = values.astype(np.float32, copy=False)
        if to is float32:
            return single
        if to is float16:
            return single.astype(np.float16)
    if to is bfloat16:
        return float32_to_bits(single)
    raise TypeError(f"expected a floating dtype, but got {to}")


def widen(values: np.ndarray[Any, Any], of: dtype) -> np.ndarray[Any, Any]:
    """Return flat values of a floating dtype in the type of arithmetic: float64, or float32 for all narrower ones."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if of is bfloat16:
        return bits_to_float32(flat)
    return flat.astype(np.float64 if of is float64 else np.float32, copy=False)


def narrow_certified(
    approximate: np.ndarray[Any, Any], tolerance: np.ndarray[Any, Any], exact: Callable[..., Any], to: dtype
) -> np.ndarray[Any, Any]:
    """Apply `narrow` to values known only to within `tolerance`.

    Where the uncertainty could change the float32 result, `exact(indices)` computes the values; that is rare, so a fast approximation serves
    almost everywhere and the result is the same as if `exact` had been used throughout.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        single = approximate.astype(np.float32)
        unsure = (approximate + tolerance).astype(np.float32) != (approximate - tolerance).astype(np.float32)
        if unsure.any():
            where = np.flatnonzero(unsure)
            single[where] = exact(where).astype(np.float32)
    return narrow(single, to)


# -- the C library's functions ----------------------------------------------------------------------------------------


def libm(function: Callable[[float], float], values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Apply `function` of the `math` module to an array: the C library's bits, which NumPy's own loops do not have."""
    return np.fromiter(map(function, values.tolist()), np.float64, values.size)


def log(value: float) -> float:
    """Return `math.log`, with a value at 0, as in C."""
    return math.log(value) if value > 0.0 else (-math.inf if value == 0.0 else math.nan)


def exp(value: float) -> float:
    """Return `math.exp`, which overflows to infinity, as in C."""
    return math.inf if value > 709.782712893384 else math.exp(value)


# -- fused multiply-add -----------------------------------------------------------------------------------------------


def fma32(a: np.ndarray[Any, Any], b: float, c: float) -> np.ndarray[Any, Any]:
    """Return a * b + c rounded once to float32; `a` holds float32 values, `b` and `c` are float32 numbers."""
    product = a.astype(np.float64)
    product *= b  # exact: 24 + 24 bits fit
    if c == 0.0:
        product += c  # turns -0.0 into +0.0, as the fused operation does
        return product.astype(np.float32)
    total = product + c
    # The sum may have been rounded to a tie between two float32 numbers; step off the tie towards the true value.
    ties = (total.view(np.uint64) & _FLOAT32_TAIL) == _FLOAT32_TIE
    if ties.any():
        total[ties] = _adjust_tie(product[ties], c, total[ties])
    return total.astype(np.float32)


def _adjust_tie(a: np.ndarray[Any, Any], b: float, total: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return `total`, the rounded a + b, moved by one unit towards the exact sum."""
    error = _sum_error(a, b, total)
    return np.where(error == 0, total, np.nextafter(total, np.copysign(np.inf, error)))


def _sum_error(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any] | float, total: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    shifted = total - a
    return (a - (total - shifted)) + (b - shifted)


def _split(a: np.ndarray[Any, Any] | float) -> tuple[Any, Any]:
    scaled = a * _SPLITTER
    high = scaled - (scaled - a)
    return high, a - high


def fma64(a: np.ndarray[Any, Any], b: float, c: float) -> np.ndarray[Any, Any]:
    """Return a * b + c rounded once to float64."""
    if c == 0.0:
        return a * b + 0.0
    if not (math.isfinite(b) and math.isfinite(c)):
        with np.errstate(invalid="ignore"):
            return a * b + c
    shift = math.frexp(max(abs(b), abs(c)))[1]  # scaled to about 1, so that no intermediate over- or underflows
    b, c = math.ldexp(b, -shift), math.ldexp(c, -shift)
    out = np.empty(a.size)
    for start in range(0, a.size, _CHUNK):
        out[start : start + _CHUNK] = _fma64_scaled(a[start : start + _CHUNK], b, c)
    return np.ldexp(out, shift, out=out)


def _fma64_scaled(a: np.ndarray[Any, Any], b: float, c: float) -> np.ndarray[Any, Any]:
    """Compute a * b + c with one rounding, by error-free transformations and a last sum rounded to odd (Boldo and Melquiond)."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    product_error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    inner = product_error + c
    inner_error = _sum_error(product_error, c, inner)
    outer = product + inner
    outer_error = _sum_error(product, inner, outer)
    tail = inner_error + outer_error
    inexact = _sum_error(inner_error, outer_error, tail)
    # If the tail was inexact and came out even, take the neighbour on the other side of the truth, which is odd.
    fix = inexact != 0
    fix &= (tail.view(np.uint64) & np.uint64(1)) == 0
    if fix.any():
        tail[fix] = np.nextafter(tail[fix], np.copysign(np.inf, inexact[fix]))
    outer += tail
    return outer


# -- Cephes' single-precision functions with fused multiply-adds ------------------------------------------------------
#
# float32 numbers are carried in float64 arrays: their products are exact there, so `a * b + c` followed by rounding to
# float32 is the fused operation. The sum could be rounded twice; over all 2**24 arguments that the callers can pass
# (uniform float32 samples) no step ever lands on such a tie, which was checked exhaustively.

_LOG_COEFFICIENTS = np.array(
    [
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    ],
    np.float32,
).astype(np.float64)
_LN2_LOW, _LN2_HIGH = float(np.float32(-2.12194440e-4)), 0.693359375
_SQRT_HALF_BITS = 0x3F3504F3

_FOUR_OVER_PI = np.float32(1.27323954473516)
_MINUS_PI_QUARTER = np.array([-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8], np.float32).astype(
    np.float64
)
_COS_COEFFICIENTS = np.array([2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2], np.float32).astype(
    np.float64
)
_SIN_COEFFICIENTS = np.array([-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1], np.float32).astype(np.float64)


class _Rounder:
    """Rounding of float64 arrays of one length to float32 precision in place, without allocating."""

    __slots__ = ("_single",)

    def __init__(self, n: int) -> None:
        self._single = np.empty(n, np.float32)

    def __call__(self, values: np.ndarray[Any, Any]) -> None:
        self._single[...] = values
        values[...] = self._single

    def polynomial(self, x: np.ndarray[Any, Any], coefficients: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Evaluate a polynomial by Horner's rule, each step fused."""
        value = x * coefficients[0]
        value += coefficients[1]
        self(value)
        for coefficient in coefficients[2:]:
            value *= x
            value += coefficient
            self(value)
        return value


def log32(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the natural logarithm of positive normal float32 numbers, as float32."""
    round32 = _Rounder(x.size)
    bits = x.view(np.int32) - np.int32(_SQRT_HALF_BITS)
    exponent = (bits >> np.int32(23)).astype(np.float64)
    bits &= np.int32(0x7FFFFF)
    bits += np.int32(_SQRT_HALF_BITS)
    fraction = bits.view(np.float32).astype(np.float64)  # in [sqrt(1/2), sqrt(2))
    fraction -= 1.0
    square = fraction * fraction
    round32(square)
    value = round32.polynomial(fraction, _LOG_COEFFICIENTS)
    value *= fraction
    round32(value)
    value *= square
    low = exponent * _LN2_LOW
    round32(low)
    value += low
    round32(value)
    square *= 0.5
    value -= square
    round32(value)
    value += fraction
    round32(value)
    exponent *= _LN2_HIGH
    value += exponent
    return value.astype(np.float32)


def sincos32(x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return sine and cosine of non-negative float32 numbers, as float32."""
    round32 = _Rounder(x.size)
    octant = (x * _FOUR_OVER_PI).astype(np.int32)
    octant += np.int32(1)
    octant &= np.int32(-2)
    offset = octant.astype(np.float64)
    angle = x.astype(np.float64)
    for part in _MINUS_PI_QUARTER:
        angle += offset * part
        round32(angle)
    square = angle * angle
    round32(square)
    cosine = _cosine_kernel(square, round32)
    sine = _sine_kernel(angle, square, round32)
    # In the second and fourth octant pairs the two kernels change places; the signs follow the octant.
    swap = (octant & np.int32(2)) != 0
    sine, cosine = np.where(swap, cosine, sine), np.where(swap, sine, cosine)
    sine.view(np.int32)[...] ^= (octant & np.int32(4)) << np.int32(29)
    cosine.view(np.int32)[...] ^= (~(octant - np.int32(2)) & np.int32(4)) << np.int32(29)
    return sine, cosine


def _cosine_kernel(square: np.ndarray[Any, Any], round32: _Rounder) -> np.ndarray[Any, Any]:
    value = round32.polynomial(square, _COS_COEFFICIENTS)
    value *= square
    round32(value)
    value *= square
    value -= 0.5 * square
    round32(value)
    value += 1.0
    return value.astype(np.float32)


def _sine_kernel(angle: np.ndarray[Any, Any], square: np.ndarray[Any, Any], round32: _Rounder) -> np.ndarray[Any, Any]:
    value = round32.polynomial(square, _SIN_COEFFICIENTS)
    value *= square
    round32(value)
    value *= angle
    value += angle
    return value.astype(np.float32)
