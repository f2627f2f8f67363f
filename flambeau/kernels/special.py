"""Special functions as formulas: everything that is made of a fixed number of operations.

They always compute in float64, so that float32 results are accurate to about the last bit; the kernel rounds when it stores. Functions with
loops are in `special_loops`, Bessel functions in `special_bessel`.
"""

from __future__ import annotations

import math
from typing import Any

from ..core import dtype as dt
from ..expr.functions import abs_, cast, erf, erfc, erfinv, exp, fma, log, log1p, round_, sin, sqrt, where
from ..expr.node import Expr, as_expr, const
from .mathlib_core import at_most, polynomial
from .mathlib_special import erfcx_of_positive

INF, NAN = math.inf, math.nan
SQRT_2, SQRT_HALF, SQRT_PI = math.sqrt(2), math.sqrt(0.5), math.sqrt(math.pi)


def double(x: Any) -> Expr:
    return cast(as_expr(x), dt.float64)


# ---- elementary combinations


# ---- the normal distribution


def erfcx(x: Any) -> Expr:
    """exp(x**2) erfc(x): a polynomial, the asymptotic series beyond 26, 2 exp(x**2) minus that for negative x."""
    x = double(x)
    a = abs_(x)
    t = 1 / (a * a)
    series = [(-1) ** k * math.prod(range(1, 2 * k, 2)) / 2**k for k in range(8)]
    large = polynomial(t, tuple(series)) / (a * SQRT_PI)
    value = where(a > 26, large, erfcx_of_positive(at_most(a, 26.5)))
    square = x * x
    error = where(square < 720, fma(x, x, -square), 0)  # of rounding x**2
    return where(x < 0, 2 * exp(square) * (1 + error) - value, value)


def ndtr(x: Any) -> Expr:
    """The distribution function of the normal distribution."""
    z = double(x) * SQRT_HALF
    return where(abs_(z) < SQRT_HALF, 0.5 + 0.5 * erf(z), 0.5 * erfc(-z))


def log_ndtr(x: Any) -> Expr:
    x = double(x)
    z = x * SQRT_HALF
    return where(x < -1, log(0.5 * erfcx(-z)) - z * z, log1p(-0.5 * erfc(z)))


def ndtri(p: Any) -> Expr:
    """The inverse of ndtr: erfinv in the middle; in the tails a rough start (Hastings' formula) and two of Halley's
    steps on log_ndtr, which is nearly a parabola there."""
    p = double(p)
    tail = where(p < 0.5, p, 1 - p)
    target = log(tail)
    t = sqrt(-2 * target)
    x = (2.30753 + 0.27061 * t) / (1 + t * (0.99229 + 0.04481 * t)) - t
    for _ in range(2):
        scaled = erfcx(-x * SQRT_HALF)
        miss = log(0.5 * scaled) - 0.5 * x * x - target
        slope = math.sqrt(2 / math.pi) / scaled  # of log_ndtr; its own slope is -slope * (x + slope)
        newton = miss / slope
        x = x - newton / (1 + 0.5 * newton * (x + slope))
    outer = where(tail == 0, -INF, x)
    middle = SQRT_2 * erfinv(2 * p - 1)
    inside = where(abs_(p - 0.5) < 0.4, middle, where(p < 0.5, outer, -outer))
    return where((p >= 0) & (p <= 1), inside, NAN)


# ---- gamma functions


def trigamma(x: Any) -> Expr:
    """The derivative of digamma: reflection for negative x, recurrence up to 10, asymptotic series."""
    x = double(x)
    negative = x < 0
    y = where(negative, 1 - x, x)
    total: Expr = const(0.0)
    for i in range(10):
        total = total + 1 / ((y + i) * (y + i))
    z = where(y < 10, y + 10, y)
    inverse = 1 / z
    square = inverse * inverse
    bernoulli = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
    series = inverse * (1 + square * polynomial(square, bernoulli)) + 0.5 * square
    value = series + where(y < 10, total, 0)
    sine = sin(math.pi * (x - round_(x))) * (1 / math.pi)
    return where(negative, 1 / (sine * sine) - value, value)


# ---- modified Bessel functions of the first kind

# Power series in (x / 2)**2 up to |x| = 8; sqrt(x) exp(-x) I(x) as a Chebyshev series in 8 / x beyond.
_I0_SMALL = tuple(1 / math.factorial(k) ** 2 for k in range(25))
_I1_SMALL = tuple(0.5 / (math.factorial(k) * math.factorial(k + 1)) for k in range(25))
_I0_LARGE = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06, 2.0489185894690638e-07,
    2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10, 1.1889147107846439e-11,
    -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12, 7.180124451383666e-13,
    3.8527783827421426e-13, 1.54008621752141e-14, -4.150569347287222e-14, -9.554846698828307e-15,
    3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16, -2.8276239805165836e-16,
    3.461222867697461e-17, 4.46562142029676e-17, -4.830504485944182e-18, -7.233180487874754e-18,
)  # fmt: skip
_I1_LARGE = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09, -5.589743462196584e-10,
    -1.8974958123505413e-11, 3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12,
    -7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16,
    2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893586e-17, 4.414348323071708e-18,
    7.517296310842105e-18,
)  # fmt: skip


def chebyshev(u: Expr, coefficients: tuple[float, ...]) -> Expr:
    """The sum of c[k] T_k(u) by Clenshaw's recurrence."""
    twice = u + u
    b1: Expr = const(coefficients[-1])
    b2: Expr = const(0.0)
    for c in reversed(coefficients[1:-1]):
        b1, b2 = fma(twice, b1, c - b2), b1
    return fma(u, b1, coefficients[0] - b2)


def _i_parts(x: Any, small: tuple[float, ...], large: tuple[float, ...]) -> tuple[Expr, Expr, Expr]:
    """|x|, the power series, and exp(-|x|) I(|x|) from the Chebyshev series."""
    a = abs_(double(x))
    return a, polynomial(0.25 * a * a, small), chebyshev(16 / a - 1, large) / sqrt(a)


def i0(x: Any) -> Expr:
    a, small, large = _i_parts(x, _I0_SMALL, _I0_LARGE)
    half = exp(0.5 * a)  # in two steps: exp(a) overflows before the result
    return where(a <= 8, small, where(a == INF, INF, half * large * half))


def i0e(x: Any) -> Expr:
    """exp(-|x|) i0(x)"""
    a, small, large = _i_parts(x, _I0_SMALL, _I0_LARGE)
    return where(a <= 8, exp(-a) * small, large)


def i1(x: Any) -> Expr:
    a, small, large = _i_parts(x, _I1_SMALL, _I1_LARGE)
    half = exp(0.5 * a)
    value = where(a <= 8, a * small, where(a == INF, INF, half * large * half))
    return where(double(x) < 0, -value, value)


def i1e(x: Any) -> Expr:
    """exp(-|x|) i1(x)"""
    a, small, large = _i_parts(x, _I1_SMALL, _I1_LARGE)
    value = where(a <= 8, exp(-a) * a * small, large)
    return where(double(x) < 0, -value, value)
