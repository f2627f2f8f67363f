"""Logarithms, inverse hyperbolic functions and powers as polynomials."""

from __future__ import annotations

from ..expr.functions import abs_, fma, where
from ..expr.node import Expr
from .mathlib_core import INF, NAN, Format, exponent_as_float, polynomial, split_exponent
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


def log1p(x: Expr, f: Format) -> Expr:
    """1 + x = 2**e (1 + t) as in log, but t = x 2**-e + (2**-e - 1) is computed from x: nothing is lost in 1 + x."""
    u = x + 1.0
    exponent = (f.bits(u) + ((f.bias << f.mantissa) - f.sqrt_half_bits)) >> f.mantissa
    # 4 * 2**-e is a normal number for every e
    scale = f.power_of_two((2 * f.bias + 2) - exponent)
    t = fma(x * 0.25, scale, fma(scale, 0.25, -1.0))
    e = exponent_as_float(exponent, f) - float(f.bias)
    e = where(u > 0.0, e, where(u == 0.0, f.number(-INF), f.number(NAN)))
    return where((abs_(x) < 2.0 ** -(f.mantissa + 5)) | (x == INF), x, _assemble_log(e, t, f))
