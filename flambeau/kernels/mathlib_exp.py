"""Exponentials and hyperbolic functions as polynomials."""

from __future__ import annotations

from ..expr.functions import abs_, fma, where
from ..expr.node import Expr
from .mathlib_core import LOG2_E, Format, clamp, nearest_integer, polynomial, with_sign_of

# ln 2 as a sum of two numbers; the first is short enough for its multiples by exponents to be exact under fma.
_LN2 = {False: (0.693145751953125, 1.428606765330187e-06), True: (0.6931471803691238, 1.9082149292705877e-10)}

# (exp(r) - 1 - r) / r**2 on |r| < ln 2: relative error of exp 2**-25.9 / 2**-58.8.
_EXP = {
    False: (
        0.5000003576278687, 0.1666661649942398, 0.04166116565465927, 0.008335947059094906, 0.001410609926097095,
        0.00019633006013464183,
    ),
    True: (
        0.5, 0.1666666666666664, 0.041666666666666456, 0.008333333333341015, 0.0013888888888942221,
        0.00019841269833122035, 2.4801587254863768e-05, 2.755732336534714e-06, 2.7557337831077363e-07,
        2.505101442762731e-08, 2.087321763493676e-09, 1.6204197811359768e-10, 1.1753930824539344e-11,
    ),
}  # fmt: skip


def _scaled_exp(r: Expr, shifted: Expr, f: Format) -> Expr:
    """exp(r) * 4**k for |r| < ln 2, where the low bits of `shifted` hold k + bias.

    Scaling in two equal steps lets the last multiplication round to denormals and overflow to infinity by itself."""
    scale = f.power_of_two(f.bits(shifted))
    p = fma(r * r, polynomial(r, _EXP[f.is_double]), r) + 1.0
    return p * scale * scale


def exp(x: Expr, f: Format) -> Expr:
    """x = 2k ln 2 + r. Measured error below 1 ulp."""
    x = clamp(x, -750.0, 720.0) if f.is_double else clamp(x, -105.0, 90.0)
    offset = f.round_to_integer + f.bias
    shifted = fma(x, 0.5 * LOG2_E, offset)
    k = shifted - offset
    high, low = _LN2[f.is_double]
    r = fma(k, -2 * low, fma(k, -2 * high, x))
    return _scaled_exp(r, shifted, f)


def exp2(x: Expr, f: Format) -> Expr:
    """x = 2k + s with |s| <= 1 exactly, then exp(s ln 2)."""
    x = clamp(x, -1080.0, 1040.0) if f.is_double else clamp(x, -152.0, 130.0)
    offset = f.round_to_integer + f.bias
    shifted = fma(x, 0.5, offset)
    s = fma(shifted - offset, -2.0, x)
    high, low = _LN2[f.is_double]
    # exp(r + e) = exp(r) (1 + e) for the rounding error e of r = s ln 2
    r = s * (high + low)
    error = fma(s, high, -r) + s * low
    scale = f.power_of_two(f.bits(shifted))
    p = fma(r * r, polynomial(r, _EXP[f.is_double]), r + error) + 1.0
    return p * scale * scale
