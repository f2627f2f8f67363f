"""Exponentials and hyperbolic functions as polynomials."""

from __future__ import annotations

from ..expr.functions import abs_, fma, where
from ..expr.node import Expr
from .mathlib_core import LOG2_E, Format, at_most, clamp, nearest_integer, polynomial, with_sign_of

# ln 2 as a sum of two numbers; the first is short enough for its multiples by exponents to be exact.
LN2 = {False: (0.693145751953125, 1.4286068203094173e-06), True: (0.6931471805598903, 5.497923018708371e-14)}

# (exp(r) - 1 - r) / r**2 on |r| < ln(2) / 2: relative error of exp(r) 2**-28.1 / 2**-57.7 ...
_EXP = {
    False: (
        0.4999999403953552, 0.16666509211063385, 0.04166800528764725, 0.008369995281100273, 0.0013847628142684698,
    ),
    True: (
        0.5000000000000012, 0.16666666666666421, 0.041666666666514654, 0.008333333333480566, 0.0013888888948068389,
        0.00019841269551057667, 2.4801488260288922e-05, 2.755753683778563e-06, 2.763203493763149e-07,
        2.501818217749568e-08,
    ),
}  # fmt: skip
# ... of exp(r) - 1 2**-26.0 / 2**-59.9 ...
_EXPM1 = {
    False: (
        0.4999999701976776, 0.16666534543037415, 0.04166771471500397, 0.00836770236492157, 0.0013841846957802773,
    ),
    True: (
        0.5, 0.16666666666666677, 0.04166666666666669, 0.008333333333321747, 0.001388888888888365,
        0.00019841269885162986, 2.4801587277680447e-05, 2.7557245404632726e-06, 2.7557349049381225e-07,
        2.5108639954190236e-08, 2.0884509238433182e-09,
    ),
}  # fmt: skip
# ... and on |r| < 1/2: 2**-27.6 / 2**-60.7.
_EXPM1_WIDE = {
    False: (
        0.5000000596046448, 0.1666666567325592, 0.041664931923151016, 0.008333249017596245, 0.0014012226602062583,
        0.0001997010549530387,
    ),
    True: (
        0.5, 0.16666666666666669, 0.041666666666667164, 0.008333333333332237, 0.0013888888888657627,
        0.00019841269843238771, 2.4801587673591158e-05, 2.7557317756235563e-06, 2.755704926504386e-07,
        2.5052554137325732e-08, 2.096745769355673e-09, 1.603486847547021e-10,
    ),
}  # fmt: skip
# (sinh(r) - r) / r**3 and (cosh(r) - 1) / r**2 in r**2, |r| < ln(2) / 2: errors 2**-34.3, 2**-33.2 / 2**-61.6, 2**-70.
_SINH = {
    False: (0.1666666716337204, 0.00833317544311285, 0.0001997409708565101),
    True: (
        0.16666666666666677, 0.008333333333321384, 0.00019841269886823298, 2.7557243461397085e-06,
        2.510930562538782e-08,
    ),
}  # fmt: skip
_COSH = {
    False: (0.5, 0.041666459292173386, 0.0013935428578406572),
    True: (
        0.5, 0.041666666666666685, 0.0013888888888873283, 2.4801587349202266e-05, 2.7557251823707743e-07,
        2.0921766076198756e-09,
    ),
}  # fmt: skip


def scaled_exp(r: Expr, shifted: Expr, f: Format, factor: Expr | None = None) -> Expr:
    """2**n exp(r), times a factor near 1, for |r| <= ln(2) / 2, where the low bits of `shifted` hold n + 2 bias.

    Scaling in two steps lets the last multiplication round to denormals and overflow to infinity by itself."""
    n = f.bits(shifted)
    half = n >> 1
    p = polynomial(r, (1.0, 1.0, *_EXP[f.is_double]))
    p = p if factor is None else p * factor
    return p * f.power_of_two(half) * f.power_of_two(n - half)


def exp(x: Expr, f: Format) -> Expr:
    """exp(x), reduced by x = n ln 2 + r."""
    x = clamp(x, -750.0, 720.0) if f.is_double else clamp(x, -105.0, 90.0)
    offset = f.round_to_integer + 2 * f.bias
    shifted = fma(x, LOG2_E, offset)
    n = shifted - offset
    high, low = LN2[f.is_double]
    r = fma(n, -low, fma(n, -high, x))
    return scaled_exp(r, shifted, f)


def exp2(x: Expr, f: Format) -> Expr:
    """2**x by x = n + s with |s| <= 1/2 exactly, then exp(s ln 2)."""
    x = clamp(x, -1080.0, 1040.0) if f.is_double else clamp(x, -152.0, 130.0)
    offset = f.round_to_integer + 2 * f.bias
    shifted = x + offset
    s = x - (shifted - offset)
    high, low = LN2[f.is_double]
    return scaled_exp(fma(s, high, s * low), shifted, f)


def _half_expm1(x: Expr, shifted: Expr, n: Expr, table: dict[bool, tuple[float, ...]], f: Format) -> Expr:
    """(exp(x) - 1) / 2 as 2**(n - 1) (exp(r) - 1) + (2**(n - 1) - 1/2): halved so that 2**n does not overflow before
    the result does. The low bits of `shifted` hold n - 1 + bias."""
    high, low = LN2[f.is_double]
    r = fma(n, -low, fma(n, -high, x))
    p = fma(r * r, polynomial(r, table[f.is_double]), r)
    half = f.power_of_two(f.bits(shifted))
    return fma(p, half, half - 0.5)


def expm1(x: Expr, f: Format) -> Expr:
    y = clamp(x, -40.0, 710.0) if f.is_double else clamp(x, -20.0, 88.9)
    offset = f.round_to_integer + (f.bias - 1)
    shifted = fma(y, LOG2_E, offset)
    half = _half_expm1(y, shifted, shifted - offset, _EXPM1, f)
    return where(abs_(x) < 2.0 ** -(f.mantissa + 5), x, half + half)


def tanh(x: Expr, f: Format) -> Expr:
    """|E| / (1 + E) with E = (exp(2a) - 1) / 2, clamped where tanh rounds to 1.

    a = |x| or -|x|, whichever loses fewer bits in 1 + E: the latter for small |x|, the former for large. For the same
    reason n turns from 0 to 1 late (at 2|x| = 0.74 ln 2), where E = exp(r) - 1 + 1/2 no longer cancels."""
    y = 2.0 * at_most(abs_(x), 20.0 if f.is_double else 9.1)
    offset = f.round_to_integer + (f.bias - 1)
    shifted = fma(y, LOG2_E, -0.24) + offset
    n = shifted - offset
    e = _half_expm1(where(n > 0.0, y, -y), shifted, n, _EXPM1_WIDE, f)
    return with_sign_of(abs_(e / (e + 1.0)), x, f)


def _hyperbolic_parts(x: Expr, f: Format) -> tuple[Expr, Expr, Expr, Expr]:
    """|x| = n ln 2 + r: sinh r, cosh r - 1, and a quarter of 2**n + 2**-n and of 2**n - 2**-n."""
    a = at_most(abs_(x), 710.6 if f.is_double else 89.5)
    n_bits, n = nearest_integer(a, LOG2_E, f)
    high, low = LN2[f.is_double]
    r = fma(n, -low, fma(n, -high, a))
    z = r * r
    sinh_r = fma(r * z, polynomial(z, _SINH[f.is_double]), r)
    cosh_r_minus_1 = z * polynomial(z, _COSH[f.is_double])
    up = f.power_of_two(n_bits + (f.bias - 2))
    # 2**-n does not matter, and must not wrap around, once n is large.
    down = where(n > 60.0, 0.0, f.power_of_two((f.bias - 2) - n_bits))
    return sinh_r, cosh_r_minus_1, up + down, up - down


def sinh(x: Expr, f: Format) -> Expr:
    """sinh(r + n ln 2) by the addition theorem; exact next to zero because n = 0 there."""
    s, c, plus, minus = _hyperbolic_parts(x, f)
    half = minus + fma(s, plus, c * minus)
    return where(abs_(x) < 2.0 ** -(f.mantissa + 5), x, with_sign_of(half + half, x, f))


def cosh(x: Expr, f: Format) -> Expr:
    s, c, plus, minus = _hyperbolic_parts(x, f)
    half = plus + fma(s, minus, c * plus)
    return half + half
