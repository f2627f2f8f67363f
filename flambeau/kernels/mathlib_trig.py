"""Trigonometric functions and their inverses as polynomials."""

from __future__ import annotations

import math

from ..core import dtype as dt
from ..expr.functions import abs_, cast, fma, sqrt, where
from ..expr.node import Expr
from .mathlib_core import FLOAT64, NAN, Format, flip_sign, polynomial, with_sign_of

# 2/pi as a sum of two doubles, for numbers below each bound. A float32 x >= 2**50 is a multiple of 2**27, so the first
# 25 bits of 2/pi only add multiples of 4 to x * 2/pi, that is whole turns: they are left out, and what remains is small
# enough for its integer part to be exact again. The same twice more reaches the largest float32. The bounds are chosen
# so that x times the second number stays below 0.045.
_TWO_OVER_PI = (
    (2.0**50, 0.6366197723675814, -3.935735335036497e-17),
    (2.0**77, -4.119769120791653e-09, 2.8376220177865265e-25),
    (2.0**102, 7.166494911215068e-17, -2.1442872565786008e-33),
    (math.inf, -5.434184107743751e-25, 3.8858987075186823e-41),
)

# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2 / 2) / r**4 in r**2 on |r| < 0.86: relative errors 2**-27.0 and 2**-31.9,
# and for tan, evaluated in double precision, 2**-32.2 and 2**-36.7.
_SIN = (-0.16666646301746368, 0.008331664837896824, -0.00019452118431217968)
_COS = (0.04166663438081741, -0.0013886765809729695, 2.4371722247451544e-05)
_TAN_SIN = (-0.1666666716337204, 0.00833337102085352, -0.0001984878326766193, 2.7829214559460524e-06)
_TAN_COS = (0.0416666679084301, -0.0013888964895159006, 2.4815406504785642e-05, -2.8193576895318984e-07)

# (asin(s) - s) / s**3 in s**2 on s <= 1/2: 2**-31.7 / 2**-59.8.
_ASIN = {
    False: (
        0.16666659712791443, 0.07500521093606949, 0.04451363533735275, 0.03183605149388313, 0.014329236000776291,
        0.0376729853451252,
    ),
    True: (
        0.16666666666666763, 0.0749999999997013, 0.0446428571752528, 0.03038194267696732, 0.022372215856366832,
        0.017351596420104604, 0.013981007179547426, 0.011397388476637517, 0.010788772774786796, 0.003674306020461532,
        0.02178536838457269, -0.02110908385363458, 0.032697284809293375,
    ),
}  # fmt: skip
# (atan(t) - t) / t**3 in t**2 on t <= 1: 2**-28.6 / 2**-59.7.
_ATAN = {
    False: (
        -0.33333301544189453, 0.1999862641096115, -0.14265091717243195, 0.10956702381372452, -0.08416806906461716,
        0.05818846821784973, -0.031409669667482376, 0.011039827950298786, -0.0018217518227174878,
    ),
    True: (
        -0.3333333333333329, 0.19999999999991552, -0.1428571428510212, 0.11111111088476787, -0.0909090858562158,
        0.07692300195372179, -0.06666588026116377, 0.058817442636550685, -0.052595723122691326, 0.04745451120314931,
        -0.0428794134783279, 0.03824602916987315, -0.03285119084644658, 0.02624635486024332, -0.01872091520489417,
        0.011410647412102688, -0.005673755523841737, 0.002181216357425453, -0.0006027603495556726,
        0.0001058968984874527, -8.847151297860384e-06,
    ),
}  # fmt: skip
# pi/2 as a sum of two numbers.
_HALF_PI = {False: (1.5707963705062866, -4.3711390001862426e-08), True: (1.5707963267948966, 6.123233995736766e-17)}


def _quarter_turns(x: Expr) -> tuple[Expr, Expr]:
    """float32 x = n pi/2 + r: n modulo 2**32 (int32) and r (float64, |r| < 0.86), right for every finite x."""
    a = abs_(x)
    d = cast(x, dt.float64)
    high, low = (FLOAT64.number(v) for v in _TWO_OVER_PI[-1][1:])
    for bound, h, m in reversed(_TWO_OVER_PI[:-1]):
        high, low = where(a < bound, h, high), where(a < bound, m, low)
    shifted = fma(d, high, FLOAT64.round_to_integer)
    n = shifted - FLOAT64.round_to_integer
    turns = fma(d, low, fma(d, high, -n))
    return cast(FLOAT64.bits(shifted), dt.int32), turns * (math.pi / 2)


def _sine_and_cosine(r: Expr) -> tuple[Expr, Expr]:
    z = r * r
    return fma(r * z, polynomial(z, _SIN), r), fma(z * z, polynomial(z, _COS), fma(z, -0.5, 1.0))


def sin(x: Expr, f: Format) -> Expr:
    n, r = _quarter_turns(x)
    s, c = _sine_and_cosine(cast(r, f.dtype))
    value = flip_sign(where((n & 1) == 0, s, c), n >> 1, f)
    return where(x == 0.0, x, value)  # the sign of zero


def cos(x: Expr, f: Format) -> Expr:
    n, r = _quarter_turns(x)
    s, c = _sine_and_cosine(cast(r, f.dtype))
    return flip_sign(where((n & 1) == 0, c, s), (n + 1) >> 1, f)


def tan(x: Expr, f: Format) -> Expr:
    """tan(x) as a quotient in double precision: three roundings in float32 would be too many."""
    n, r = _quarter_turns(x)
    z = r * r
    s = fma(r * z, polynomial(z, _TAN_SIN), r)
    c = fma(z * z, polynomial(z, _TAN_COS), fma(z, -0.5, 1.0))
    even = (n & 1) == 0
    value = where(even, s, -c) / where(even, c, s)
    return where(x == 0.0, x, cast(value, f.dtype))


def _asin_of(a: Expr, f: Format) -> tuple[Expr, Expr]:
    """Return (a > 1/2, p) for a >= 0, where asin(a) is p or pi/2 - 2p. Beyond 1 the square root makes it nan."""
    far = a > 0.5
    z = where(far, fma(a, -0.5, 0.5), a * a)
    s = where(far, sqrt(z), a)
    return far, fma(s * z, polynomial(z, _ASIN[f.is_double]), s)


def asin(x: Expr, f: Format) -> Expr:
    high, low = _HALF_PI[f.is_double]
    far, p = _asin_of(abs_(x), f)
    return with_sign_of(where(far, fma(p, -2.0, high) + low, p), x, f)


def acos(x: Expr, f: Format) -> Expr:
    high, low = _HALF_PI[f.is_double]
    far, p = _asin_of(abs_(x), f)
    twice = p + p
    outside = where(x < 0.0, (2 * high - twice) + 2 * low, twice)
    inside = high - (where(x < 0.0, -p, p) - low)
    return where(far, outside, inside)


def _atan_of_ratio(t: Expr, f: Format) -> Expr:
    """atan(t) for 0 <= t <= 1."""
    z = t * t
    return fma(t * z, polynomial(z, _ATAN[f.is_double]), t)


def atan(x: Expr, f: Format) -> Expr:
    high, low = _HALF_PI[f.is_double]
    a = abs_(x)
    p = _atan_of_ratio(where(a > 1.0, 1.0 / a, a), f)
    return with_sign_of(where(a > 1.0, (high - p) + low, p), x, f)


def atan2(y: Expr, x: Expr, f: Format) -> Expr:
    """atan2(y, x): atan of the smaller over the larger, then mapped to the octant."""
    high, low = _HALF_PI[f.is_double]
    a, b = abs_(y), abs_(x)
    steep = a > b
    larger, smaller = where(steep, a, b), where(steep, b, a)
    # equal operands: 1 even for two infinities, and 0 for two zeros
    ratio = where(smaller == larger, where(larger == 0.0, f.number(0.0), f.number(1.0)), smaller / larger)
    p = _atan_of_ratio(ratio, f)
    p = where(steep, (high - p) + low, p)
    p = where(f.bits(x) < 0, (2 * high - p) + 2 * low, p)
    return where((x == x) & (y == y), with_sign_of(p, y, f), f.number(NAN))
