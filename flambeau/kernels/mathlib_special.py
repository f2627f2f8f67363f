"""Error functions and gamma functions as polynomials."""

from __future__ import annotations

import math

from ..core import dtype as dt
from ..expr import functions as formulas
from ..expr.functions import abs_, cast, fma, round_, sqrt, where
from ..expr.node import Expr, const
from .mathlib_core import FLOAT64, INF, LOG2_E, NAN, Format, at_most, polynomial, with_sign_of
from .mathlib_exp import LN2, scaled_exp
from .mathlib_log import exp2_medium

# ---- error functions

# erf(x) / x - 1 in x**2 on |x| <= 1.2 / 1: relative error 2**-26.1 / 2**-56.0.
_ERF_SMALL = {
    False: (
        0.12837915122509003, -0.37612536549568176, 0.11282677203416824, -0.02681989222764969, 0.005130840931087732,
        -0.000755912798922509, 6.519387534353882e-05,
    ),
    True: (
        0.12837916709551256, -0.37612638903183454, 0.11283791670942439, -0.026866170642898493, 0.005223977604683524,
        -0.0008548325870521562, 0.00012055292035308253, -1.4924685872190956e-05, 1.6446836658279616e-06,
        -1.6204250028897278e-07, 1.3702755714634248e-08, -7.765225589226223e-10,
    ),
}  # fmt: skip
# The eighth root of erfc(x) up to where erf rounds to 1: absolute error of erf 2**-28.0 / 2**-60.4.
_ERFC_ROOT = {
    False: (
        1.0013587474822998, -0.14695318043231964, -0.0586271733045578, -0.013541732914745808, 0.013852707110345364,
        -0.002676895586773753, 0.00016875212895683944,
    ),
    True: (
        0.9999999973936405, -0.1410473782717415, -0.06963031468895493, -0.0020902012442315355, 0.0065951736038780216,
        0.00017080699534729795, -0.000486279547072431, 5.715880888873472e-05, 2.294806750987499e-05,
        -1.7813571319954006e-05, 8.356427368558075e-06, -2.889502479168251e-06, 7.540150744354917e-07,
        -1.5253221661460787e-07, 2.421649209621447e-08, -2.9850941936755497e-09, 2.760107508963962e-10,
        -1.7972871220775155e-11, 7.329868014426422e-13, -1.4055858407781106e-14,
    ),
}  # fmt: skip
# (x + c) exp(x**2) erfc(x) in (x - c) / (x + c), c = 3 / 4, until erfc underflows: relative error 2**-26.8 / 2**-53.6.
_ERFCX = {
    False: (
        1.0740069150924683, -0.8833944797515869, 0.5902277827262878, -0.3104662597179413, 0.11953429132699966,
        -0.026837414130568504, -0.0012438728008419275, 0.0030702364165335894, -0.00046382105210796,
        -0.000310760922729969,
    ),
    True: (
        1.095995661000491, -0.9765487290808821, 0.7732087022652551, -0.5408538313132326, 0.3308515878772137,
        -0.17401093724022593, 0.07638151492304857, -0.02637005333031962, 0.006112055533852699,
        -0.0002809589997076387, -0.00045505205913599006, 0.000176813736767115, -3.6370917586848772e-06,
        -1.8864485666869383e-05, 4.6978429275804765e-06, 1.4326239472825988e-06, -8.49189857621688e-07,
        -8.719530857252482e-08, 1.2420482675497335e-07, 9.65301359291124e-09, -1.357155150849161e-08,
        -2.633072767383908e-09,
    ),
}  # fmt: skip
# erfinv(x) / x in w - 5/2 for w = -log(1 - x**2) < 5, and in sqrt(w) - 4 above: relative errors 2**-31.2 and 2**-25.1.
_ERFINV_CENTRE = (
    1.5014093516922014, 0.2466402757863284, -0.004177324632228567, -0.001252704879885287, 0.00021826355160557522,
    -4.998757445058444e-06, -3.4260094244319696e-06, 4.796982330278521e-07, 1.6456726087179968e-08,
    -1.1023147827207384e-08, 4.370634878654169e-10, 1.3285671068595585e-10,
)  # fmt: skip
_ERFINV_TAIL = (
    3.8397838623062306, 1.0094926879053898, 0.0012581177317803863, -0.0008645009702968974, 0.0003280129888405943,
    -0.00012863400720976713, 4.5545824609505535e-05, -2.0733092652206114e-05, 2.4867091414170014e-05,
    -1.5661060999062512e-05, 1.6275657352260885e-06, 1.6042972916474363e-06, -4.0653679394948476e-07,
)  # fmt: skip


def erf(x: Expr, f: Format) -> Expr:
    """erf(x): an odd polynomial for small |x|; 1 - erfc above, erfc as the eighth power of a polynomial: it falls so steeply that a
    polynomial for itself would need twice the degree. In float32 both have the same degree, so one Horner scheme with selected coefficients
    serves both: selection is cheaper than arithmetic."""
    a = at_most(abs_(x), 5.95 if f.is_double else 3.93)
    if f.is_double:
        near = a < 1.0
        small, root = _erf_near_zero(x, f), polynomial(a, _ERFC_ROOT[True])
    else:
        near = a < 1.2
        p = _either_polynomial(near, x * x, _ERF_SMALL[False], a, _ERFC_ROOT[False], f)
        small, root = fma(x, p, x), p
    square = root * root
    fourth = square * square
    large = with_sign_of(fma(-fourth, fourth, 1.0), x, f)
    return where(near, small, large)


def _either_polynomial(
    choose: Expr, x: Expr, table: tuple[float, ...], otherwise_x: Expr, otherwise_table: tuple[float, ...], f: Format
) -> Expr:
    coefficients = [where(choose, f.number(a), f.number(b)) for a, b in zip(table, otherwise_table, strict=True)]
    variable = where(choose, x, otherwise_x)
    result = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = fma(result, variable, c)
    return result


def _erf_near_zero(x: Expr, f: Format) -> Expr:
    return fma(x, polynomial(x * x, _ERF_SMALL[f.is_double]), x)


def erfc(x: Expr, f: Format) -> Expr:
    """erfc(x): exp(-x**2) / (|x| + c) times a polynomial, 2 minus that for negative x. float32 in double precision; float64 as 1 - erf(x)
    next to zero, where the polynomial's argument is less exact."""
    a = at_most(abs_(cast(x, dt.float64)), 27.4 if f.is_double else 10.3)
    factor = erfcx_of_positive(a, f.is_double)
    if not f.is_double:
        value = cast(exp2_medium(a * a * -LOG2_E) * factor, f.dtype)
        return where(x < 0.0, 2.0 - value, value)
    value = _exp_of_minus_square(a, factor)
    return where(a < 0.75, 1.0 - _erf_near_zero(x, f), where(x < 0.0, 2.0 - value, value))


def erfcx_of_positive(a: Expr, is_double: bool = True) -> Expr:
    """exp(a**2) erfc(a) for a float64 between 0 and 27.5; `is_double` False: between 0 and 10.3 to 26 bits."""
    c = 4.0 if is_double else 3.0
    inverse = 1.0 / (a + c)
    return polynomial((a - c) * inverse, _ERFCX[is_double]) * inverse


def _exp_of_minus_square(a: Expr, factor: Expr) -> Expr:
    """float64 exp(-a**2) * factor; the rounding error of a**2 goes into the exponential's reduced argument."""
    square = a * a
    error = fma(a, a, -square)
    offset = FLOAT64.round_to_integer + 2 * FLOAT64.bias
    shifted = fma(square, -LOG2_E, offset)
    n = shifted - offset
    high, low = LN2[True]
    r = fma(n, -low, fma(n, -high, -square)) - error
    return scaled_exp(r, shifted, FLOAT64, factor)


def erfinv(x: Expr, f: Format) -> Expr:
    """erfinv(x): polynomials in the logarithm of 1 - x**2, in double precision; for float64 they start one step of Halley's iteration on erf,
    or on erfc where erf is flat."""
    d = cast(x, dt.float64)
    w = -formulas.log((1.0 - d) * (1.0 + d))
    guess = d * where(w < 5.0, polynomial(w - 2.5, _ERFINV_CENTRE), polynomial(sqrt(w) - 4.0, _ERFINV_TAIL))
    if not f.is_double:
        at_end = with_sign_of(f.number(INF), x, f)
        return where(abs_(x) == 1.0, at_end, cast(guess, f.dtype))
    a, g = abs_(d), abs_(guess)
    miss = where(a < 0.5, formulas.erf(g) - a, (1.0 - a) - formulas.erfc(g))
    step = miss * (0.5 * math.sqrt(math.pi)) * formulas.exp(g * g)
    better = with_sign_of(g - step / fma(g, step, 1.0), x, f)
    return where(a == 1.0, with_sign_of(f.number(INF), x, f), where(a < 2.0**-40, 0.5 * math.sqrt(math.pi) * x, better))


# ---- gamma functions

# lgamma(2 + v) / (v (1 + v)) on |v| <= 1: relative error 2**-31.4.
_LGAMMA = (
    0.42278433506261454, -0.10031730378800757, 0.03296500514663732, -0.01238411494381754, 0.004998548019206847,
    -0.0021089429142894726, 0.0009161019596823103, -0.0004019785053236813, 0.0001798103978980416,
    -9.174041554176819e-05, 4.370173721687689e-05, -7.277791265846075e-06, 2.2515020913299393e-06,
    -9.678791991077785e-06, 4.8737252778686566e-06,
)  # fmt: skip
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)
# sin(pi q) / q in q**2 on |q| <= 1/2: relative error 2**-43.9.
_SIN_PI = (
    3.1415926535895964, -5.167712779977148, 2.550164035411158, -0.5992644255843745, 0.08214473085061003,
    -0.007363780179026076, 0.00044719335430142075,
)  # fmt: skip
# (log(y) - 1 / 2y - digamma(y)) * y**2 in 1 / y**2 for y >= 10: absolute error of digamma 2**-63.
_DIGAMMA = (
    0.08333333333333276, -0.008333333332211066, 0.003968253236103735, -0.004166446367795504, 0.007542010764075185,
    -0.01850370321246621,
)  # fmt: skip
# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2 / 2) / r**4 in r**2 on |r| <= pi/4: relative errors 2**-63 and 2**-69.
_SIN = (
    -0.16666666666666666, 0.008333333333333038, -0.00019841269840955892, 2.755731906962294e-06,
    -2.5052069610889754e-08, 1.6054128012935e-10, -7.379759232349161e-13,
)  # fmt: skip
_COS = (
    0.041666666666666664, -0.0013888888888888376, 2.4801587301161603e-05, -2.7557319050115996e-07,
    2.0876719262029054e-09, -1.1466520498162255e-11, 4.57633932338431e-14,
)  # fmt: skip


def lgamma(x: Expr, f: Format) -> Expr:
    """lgamma of float32, in double precision. With y = 1 - x for negative x and y = x otherwise: a polynomial for y < 3 (shifted up by one
    below 1), Stirling's series above (shifted up by five below 8). The shifts and the reflection together cost one logarithm. Next to the
    roots between negative integers only the absolute error is small."""
    d = cast(x, dt.float64)
    negative = d < 0.0
    y = where(negative, 1.0 - d, d)
    v = where(y < 1.0, y - 1.0, y - 2.0)
    centre = fma(v, v, v) * polynomial(v, _LGAMMA)
    z = where(y < 8.0, y + 5.0, y)
    inverse = 1.0 / z
    tail = inverse * polynomial(inverse * inverse, _STIRLING)
    stirling = fma(z - 0.5, formulas.log(z), 0.5 * math.log(2 * math.pi) - z) + tail
    main = where(y < 3.0, centre, stirling)
    five = y * (y + 1.0) * (y + 2.0) * (y + 3.0) * (y + 4.0)
    shift = where(y < 1.0, y, where((y < 3.0) | (y >= 8.0), 1.0, five))
    q = d - round_(d)
    sine = abs_(q * polynomial(q * q, _SIN_PI))
    logarithm = formulas.log(where(negative, math.pi * shift / sine, shift))
    result = where(negative, logarithm - main, main - logarithm)
    return where(abs_(x) == INF, INF, cast(result, f.dtype))


def digamma(x: Expr, f: Format) -> Expr:
    """Digamma in double precision: reflection for negative x, recurrence up to 10 as one fraction, asymptotic series."""
    d = cast(x, dt.float64)
    negative = d < 0.0
    y = where(negative, 1.0 - d, d)
    numerator, denominator = const(1.0), y
    for i in range(1, 10):  # sum of 1 / (y + i)
        term = y + float(i)
        numerator, denominator = fma(numerator, term, denominator), denominator * term
    z = where(y < 10.0, y + 10.0, y)
    inverse = 1.0 / z
    square = inverse * inverse
    series = formulas.log(z) - fma(square, polynomial(square, _DIGAMMA), 0.5 * inverse)
    result = series - where(y < 10.0, numerator / denominator, 0.0)
    result = where(negative, result - _pi_over_tan(d), result)
    return where(x == 0.0, with_sign_of(f.number(INF), -x, f), cast(result, f.dtype))


def _pi_over_tan(x: Expr) -> Expr:
    """pi / tan(pi x); nan at integers and infinities."""
    q = x - round_(x)
    a = abs_(q)
    far = a > 0.25
    r = math.pi * where(far, 0.5 - a, a)
    z = r * r
    s = fma(r * z, polynomial(z, _SIN), r)
    c = fma(z * z, polynomial(z, _COS), fma(z, -0.5, 1.0))
    value = math.pi * where(far, s, c) / where(far, c, s)
    return where(q == 0.0, FLOAT64.number(NAN), with_sign_of(value, q, FLOAT64))
