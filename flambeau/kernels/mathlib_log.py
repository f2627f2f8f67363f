"""Logarithms, inverse hyperbolic functions and powers as polynomials."""

from __future__ import annotations

from ..core import dtype as dt
from ..expr.functions import abs_, cast, floor, fma, sqrt, where
from ..expr.node import Expr
from .mathlib_core import (
    FLOAT32,
    FLOAT64,
    INF,
    NAN,
    Format,
    clamp,
    exponent_as_float,
    nearest_integer,
    polynomial,
    split_exponent,
    with_sign_of,
)
from .mathlib_exp import LN2

# (log(1 + t) - t + t**2 / 2) / t**3 on sqrt(1/2) <= 1 + t < sqrt(2): relative error of log 2**-27.3 / 2**-58.8.
_LOG = {
    False: (
        0.3333333134651184, -0.250008225440979, 0.20001260936260223, -0.1662333458662033, 0.14200949668884277,
        -0.1315952092409134, 0.12766975164413452, -0.07643112540245056,
    ),
    True: (
        0.33333333333333454, -0.24999999999998926, 0.19999999999945636, -0.1666666666691232, 0.14285714293905055,
        -0.12499999982302898, 0.11111110512264835, -0.10000000364436903, 0.09090933621935761, -0.08333346446287526,
        0.0769171268506726, -0.07141985709425736, 0.06675156628829958, -0.06269971123123735, 0.05817901709901139,
        -0.053257620606043034, 0.05414197899033109, -0.0627689036368593, 0.057035465889245025, -0.024320973949032137,
    ),
}  # fmt: skip

# log2(e), log10(e) and log10(2) as sums of two numbers; the first of each is short.
_LOG2_E = {False: (1.4426950216293335, 1.925963033500865e-08), True: (1.4426950408889634, 2.0355273740931033e-17)}
_LOG10_E = {False: (0.4342944920063019, -1.0103050118726e-08), True: (0.4342944819032518, 1.098319650216765e-17)}
_LOG10_2 = {False: (0.301025390625, 4.605038981195214e-06), True: (0.30102999566395283, 2.8363394551044964e-14)}


def _tail(t: Expr, f: Format) -> Expr:
    """log(1 + t) - t."""
    z = t * t
    return fma(z, -0.5, t * z * polynomial(t, _LOG[f.is_double]))


def _assemble_log(e: Expr, t: Expr, f: Format) -> Expr:
    """e ln 2 + log(1 + t), small terms first."""
    high, low = LN2[f.is_double]
    z = t * t
    small = fma(z, -0.5, fma(e, low, t * z * polynomial(t, _LOG[f.is_double])))
    return fma(e, high, t + small)


def log(x: Expr, f: Format) -> Expr:
    return _assemble_log(*split_exponent(x, f), f)


def log2(x: Expr, f: Format) -> Expr:
    e, t = split_exponent(x, f)
    high, low = _LOG2_E[f.is_double]
    return e + fma(t, high, fma(_tail(t, f), high, t * low))


def log10(x: Expr, f: Format) -> Expr:
    e, t = split_exponent(x, f)
    high, low = _LOG10_E[f.is_double]
    two_high, two_low = _LOG10_2[f.is_double]
    return fma(e, two_high, fma(t, high, fma(_tail(t, f), high, fma(e, two_low, t * low))))


# (log((1 + q) / (1 - q)) - 2 q) / q**3 in powers of q**2, for |q| <= 1/5: the coefficients of SLEEF (N. Shibata), whose
# log1p PyTorch uses, step for step, so that both round alike.
_ATANH_TAIL = (0.6666694879531860, 0.3996108174324036, 0.3027294874191284)
_LN2_PAIR = (0.69314718246459960938, -1.904654323148236017e-09)


def _quotient(m: Expr) -> tuple[Expr, Expr]:
    """m / (2 + m) as a sum of two numbers."""
    d = m + 2.0
    d_rest = m - (d - 2.0)
    inverse = 1.0 / d
    q = m * inverse
    return q, fma(q, fma(-d_rest, inverse, fma(-d, inverse, 1.0)), fma(inverse, m, -q))


def _log_of_quotient(e: Expr, q: Expr, q_rest: Expr) -> Expr:
    """e ln 2 + log((1 + q) / (1 - q)), in twice the precision of float32 but for the last term."""
    high, low = _LN2_PAIR
    square = q * q
    tail = square * q * polynomial(square, _ATANH_TAIL)
    whole = e * high
    whole_rest = fma(e, low, fma(e, high, -whole))
    total = whole + 2.0 * q
    rest = whole - total + 2.0 * q + whole_rest + 2.0 * q_rest
    result = total + tail
    return result + (total - result + tail + rest)


def log1p(x: Expr, f: Format) -> Expr:
    """log(1 + x) by 1 + x = 2**e (1 + t), but t = x 2**-e + (2**-e - 1) is computed from x: nothing is lost in 1 + x."""
    u = x + 1.0
    # sqrt(1/2) <= 1 + t < sqrt(2) in float64, 3/4 <= 1 + t < 3/2 in float32, for the sake of SLEEF's bits
    bits = f.bits(u) + ((f.bias << f.mantissa) - f.sqrt_half_bits) if f.is_double else f.bits(u * (4 / 3))
    exponent = bits >> f.mantissa
    # 4 * 2**-e is a normal number for every e
    scale = f.power_of_two((2 * f.bias + 2) - exponent)
    t = fma(x * 0.25, scale, fma(scale, 0.25, -1.0))
    e = exponent_as_float(exponent, f) - float(f.bias)
    e = where(u > 0.0, e, where(u == 0.0, f.number(-INF), f.number(NAN)))
    value = _assemble_log(e, t, f) if f.is_double else where(u > 0.0, _log_of_quotient(e, *_quotient(t)), e)
    return where((abs_(x) < 2.0 ** -(f.mantissa + 5)) | (x == INF), x, value)


# ---- float32 functions that need a little more than float32 inside: their logarithm is taken in double precision

# log2(1 + t) / t for sqrt(1/2) <= 1 + t < sqrt(2): relative error 2**-38.0.
_LOG2_MEDIUM = (
    1.4426950408865706, -0.7213475203274253, 0.4808983488047383, -0.36067379316033454, 0.28853879558682693,
    -0.240446432341104, 0.20610712648321075, -0.1804367786574654, 0.16021664060436228, -0.14249835105921016,
    0.1302755766149003, -0.13463044102497865, 0.13251289770821606, -0.06973859187777995,
)  # fmt: skip
# 2**s for |s| <= 1/2: relative error 2**-29.0.
_EXP2_MEDIUM = (
    1.0000000005535954, 0.6931472057343484, 0.24022646892045657, 0.05550328781745543, 0.009618488861599933,
    0.0013399929404816343, 0.00015345829756106035,
)  # fmt: skip
_LN_2 = 0.6931471805599453


def _log2_medium(d: Expr) -> Expr:
    """log2 of a float64 that is no denormal, to 38 bits; specials as for log."""
    e, t = split_exponent(d, FLOAT64, may_be_denormal=False)
    return fma(t, polynomial(t, _LOG2_MEDIUM), e)


def _odd(x: Expr, a: Expr, small: Expr, large: Expr) -> Expr:
    """An odd function from its series for a = |x| < 2**-10 and its values above, rounded to float32."""
    return with_sign_of(cast(where(a < 2.0**-10, small, large), dt.float32), x, FLOAT32)


def asinh(x: Expr, f: Format) -> Expr:
    a = abs_(cast(x, dt.float64))
    return _odd(x, a, fma(a * a * a, -1 / 6, a), _LN_2 * _log2_medium(a + sqrt(fma(a, a, 1.0))))


def acosh(x: Expr, f: Format) -> Expr:
    d = cast(x, dt.float64)
    value = cast(_LN_2 * _log2_medium(d + sqrt((d - 1.0) * (d + 1.0))), f.dtype)
    return where(x < 1.0, f.number(NAN), value)


def atanh(x: Expr, f: Format) -> Expr:
    a = abs_(cast(x, dt.float64))
    return _odd(x, a, fma(a * a * a, 1 / 3, a), 0.5 * _LN_2 * _log2_medium((1.0 + a) / (1.0 - a)))


def exp2_medium(v: Expr) -> Expr:
    """2**v of a float64 to 29 bits, far beyond the range of float32 on both sides."""
    v = clamp(v, -300.0, 300.0)
    n, whole = nearest_integer(v, 1.0, FLOAT64)
    return polynomial(v - whole, _EXP2_MEDIUM) * FLOAT64.power_of_two(n + FLOAT64.bias)


def pow_(x: Expr, y: Expr, f: Format) -> Expr:
    """x**y of float32 as 2**(y log2|x|) in double precision, where neither half can overflow before the final rounding."""
    logarithm = _log2_medium(abs_(cast(x, dt.float64)))
    # 1 to any power is 1, even to infinity
    power = cast(exp2_medium(where(logarithm == 0.0, 0.0, cast(y, dt.float64) * logarithm)), f.dtype)
    is_integer = floor(y) == y  # true for infinities, false for nan
    is_odd = is_integer & (floor(0.5 * y) != 0.5 * y)
    power = where(is_odd, with_sign_of(power, x, f), power)
    power = where((x < 0.0) & (x > -INF) & ~is_integer, f.number(NAN), power)
    return where(y == 0.0, 1.0, power)


def small_power(x: Expr, n: int, f: Format) -> Expr | None:
    """x**n by multiplication, within 2 ulp: products of more than four factors need double precision inside."""
    if n == 4:
        square = x * x
        return square * square
    if f.is_double or not 5 <= n <= 8:
        return None
    d = cast(x, dt.float64)
    square = d * d
    fourth = square * square
    return cast({5: fourth * d, 6: fourth * square, 7: fourth * (square * d), 8: fourth * fourth}[n], f.dtype)
