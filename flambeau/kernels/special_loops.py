"""Special functions that iterate: Hurwitz zeta, incomplete gamma functions, orthogonal polynomials.

Written in the loop-kernel language (see `loops`): compiled kernels inline them, formulas call them. All compute in
float64.
"""

from __future__ import annotations

import math
from typing import Any

from ..expr import functions as formulas
from ..expr.node import Expr, as_expr
from . import special
from .loops import (
    abs_,
    acos,
    cos,
    erfc,
    exp,
    expm1,
    f64,
    floor,
    inf,
    lgamma,
    log,
    log1p,
    nan,
    pi,
    scalar_function,
    sin,
    sqrt,
    trunc,
)

# B(2k) / (2k)! of Euler and Maclaurin's formula.
_EM1, _EM2, _EM3, _EM4, _EM5, _EM6 = 1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000
_EM7, _EM8, _EM9 = 1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000
_EPSILON = 2.0**-54


# ---- zeta


@scalar_function
def _zeta_of_positive(s, q):
    """The sum of (q + k)**-s for s > 1, q > 0: ten terms, the rest by Euler and Maclaurin's formula."""
    total = f64(0.0)
    a = f64(q)
    while a < q + 10:
        term = a**-s
        total += term
        if term < _EPSILON * total:  # what follows is smaller still
            return total
        a += 1
    last = a**-s
    total += last * (a / (s - 1) + 0.5)
    w = s / a
    step = 1 / (a * a)
    tail = w * _EM1
    w *= (s + 1) * (s + 2) * step
    tail += w * _EM2
    w *= (s + 3) * (s + 4) * step
    tail += w * _EM3
    w *= (s + 5) * (s + 6) * step
    tail += w * _EM4
    w *= (s + 7) * (s + 8) * step
    tail += w * _EM5
    w *= (s + 9) * (s + 10) * step
    tail += w * _EM6
    w *= (s + 11) * (s + 12) * step
    tail += w * _EM7
    w *= (s + 13) * (s + 14) * step
    tail += w * _EM8
    w *= (s + 15) * (s + 16) * step
    tail += w * _EM9
    return total + last * tail


@scalar_function
def zeta(x, q):
    """Hurwitz' zeta function, the sum of (q + k)**-x over k >= 0."""
    s = f64(x)
    a = f64(q)
    if s != s or a != a:
        return f64(nan)
    if s == 1:
        return f64(inf)
    if s < 1:
        return f64(nan)
    if a > 0:
        return _zeta_of_positive(s, a)
    if a == floor(a):
        return f64(inf)
    if s != floor(s):
        return f64(nan)
    # The terms with negative base mirror those of a positive one.
    part = a - floor(a)
    mirrored = _zeta_of_positive(s, 1 - part) - _zeta_of_positive(s, 1 - a)
    if floor(0.5 * s) != 0.5 * s:
        mirrored = -mirrored
    return mirrored + _zeta_of_positive(s, part)


@zeta.derivative
def _(g: Expr, y: Expr, x: Expr, q: Expr) -> tuple[Any, ...]:
    return None, -g * x * zeta(x + 1, q)


def polygamma(n: int, x: Expr) -> Expr:
    """The n-th derivative of digamma."""
    x = as_expr(x)
    if n == 0:
        return formulas.digamma(x)
    if n == 1:
        return special.trigamma(x)
    return (-1.0) ** (n + 1) * math.gamma(n + 1) * zeta(special.double(float(n + 1)), special.double(x))


# ---- incomplete gamma functions


@scalar_function
def _log1p_minus(u):
    """log(1 + u) - u without cancellation."""
    if abs_(u) > 0.4:
        return log1p(u) - u
    # u = 2t / (1 - t) sums odd powers of t, which shrink fast
    t = u / (2 + u)
    square = t * t
    power = t * square
    total = f64(0.0)
    k = f64(3.0)
    while abs_(power) > _EPSILON * abs_(total) * k and k < 200:
        total += power / k
        power *= square
        k += 2
    return 2 * total - t * u


@scalar_function
def _gamma_density(a, x):
    """x**a exp(-x) / gamma(a)"""
    if a < 12:
        return exp(a * log(x) - x - lgamma(a))
    # Stirling's formula for gamma(a), so that no large terms cancel
    inverse = 1 / a
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188))))
    return sqrt(a / (2 * pi)) * exp(a * _log1p_minus((x - a) / a) - series)


@scalar_function
def _lower_series(a, x):
    """The regularised lower function by its power series: all terms are positive."""
    term = f64(1.0)
    total = f64(1.0)
    k = f64(a)
    steps = 0
    while term > _EPSILON * total and steps < 100000:  # terms of huge arguments would hardly shrink
        k += 1
        steps += 1
        term *= x / k
        total += term
    return total * _gamma_density(a, x) / a


@scalar_function
def _upper_fraction(a, x):
    """The regularised upper function by Legendre's continued fraction (Lentz' method)."""
    b = x + 1 - a
    c = f64(1e300)
    d = 1 / b
    h = f64(d)
    i = f64(1.0)
    change = f64(0.0)
    while abs_(change - 1) > 2 * _EPSILON and i < 100000:
        factor = i * (a - i)
        b += 2
        d = factor * d + b
        if d == 0:
            d = f64(1e-300)
        c = b + factor / c
        if c == 0:
            c = f64(1e-300)
        d = 1 / d
        change = c * d
        h *= change
        i += 1
    return h * _gamma_density(a, x)


@scalar_function
def _upper_series(a, x):
    """Upper incomplete gamma for small x, where the lower function is nearly 1: the first term by expm1, then the rest of the series."""
    total = f64(0.0)
    term = f64(1.0)
    k = f64(0.0)
    while abs_(term) > _EPSILON * abs_(total) and k < 1000:
        k += 1
        term *= -x / k
        total += term / (a + k)
    log_power = a * log(x)
    return -expm1(log_power - lgamma(a + 1)) - exp(log_power - lgamma(a)) * total


@scalar_function
def _upper_of_huge(a, x):
    """The regularised upper function for a > 1e8: Temme's expansion, whose next term is below 1e-8."""
    if x < 0.5 * a:
        return f64(1.0)
    if x > 2 * a:
        return f64(0.0)
    u = (x - a) / a
    eta = sqrt(-2 * _log1p_minus(u))
    if u < 0:
        eta = -eta
    correction = (eta / 12 - 1 / 3) * exp(-0.5 * a * eta * eta) / sqrt(2 * pi * a)
    return 0.5 * erfc(eta * sqrt(0.5 * a)) + correction


@scalar_function
def igamma(a, x):
    """The regularised lower incomplete gamma function."""
    p = f64(a)
    y = f64(x)
    if p < 0 or y < 0:
        return f64(nan)
    if p == 0:
        return f64(1.0) if y > 0 else f64(nan)
    if y == 0:
        return f64(0.0)
    if p == inf:
        return f64(nan) if y == inf else f64(0.0)
    if y == inf:
        return f64(1.0)
    if p != p or y != y:
        return f64(nan)
    if p > 1e8:
        return 1 - _upper_of_huge(p, y)
    if y > 1 and y > p:
        return 1 - _upper_fraction(p, y)
    return _lower_series(p, y)


@scalar_function
def igammac(a, x):
    """The regularised upper incomplete gamma function."""
    p = f64(a)
    y = f64(x)
    if p < 0 or y < 0:
        return f64(nan)
    if p == 0:
        return f64(0.0) if y > 0 else f64(nan)
    if y == 0:
        return f64(1.0)
    if p == inf:
        return f64(nan) if y == inf else f64(1.0)
    if y == inf:
        return f64(0.0)
    if p != p or y != y:
        return f64(nan)
    if p > 1e8:
        return _upper_of_huge(p, y)
    if y > 1.1:
        if y > p:
            return _upper_fraction(p, y)
        return 1 - _lower_series(p, y)
    if p > y + 0.25:
        return 1 - _lower_series(p, y)
    return _upper_series(p, y)


@igamma.derivative
def _(g: Expr, y: Expr, a: Expr, x: Expr) -> tuple[Any, ...]:
    return None, g * formulas.exp(-x + (a - 1) * formulas.log(x) - formulas.lgamma(a))


@igammac.derivative
def _(g: Expr, y: Expr, a: Expr, x: Expr) -> tuple[Any, ...]:
    return None, -g * formulas.exp(-x + (a - 1) * formulas.log(x) - formulas.lgamma(a))


# ---- orthogonal polynomials of degree n (rounded towards zero; 0 for negative n)


@scalar_function
def _three_terms(x, n, slope, start, xk, x1, ck, c1, backwards_k, backwards_1, divide_k, divide_1):
    """Evaluate polynomials by recurrence: p0 = 1, p1 = slope x + start, and ((xk k + x1) x + ck k + c1) p[k] - (backwards_k k + backwards_1)
    p[k-1], over divide_k k + divide_1, is p[k+1]. A start of -0.0 keeps the sign of a zero."""
    if n < 0:
        return f64(0.0)
    if n == 0:
        return f64(1.0)
    before = f64(1.0)
    now = slope * x + start
    k = f64(1.0)
    while k < n and now == now:
        following = ((xk * k + x1) * x + ck * k + c1) * now - (backwards_k * k + backwards_1) * before
        before = f64(now)
        now = following / (divide_k * k + divide_1)
        k += 1
    return now


def _degree(n: Expr) -> Expr:
    """Return n as a whole number; infinite, undefined and out of the range of integers it counts as negative."""
    whole = formulas.trunc(special.double(n))
    return formulas.where(formulas.abs_(whole) < 2.0**63, whole, -1.0)


def hermite_polynomial_h(x: Expr, n: Expr) -> Expr:
    """The physicists' Hermite polynomials."""
    return _three_terms(special.double(x), _degree(n), 2.0, -0.0, 0.0, 2.0, 0.0, 0.0, 2.0, 0.0, 0.0, 1.0)


def hermite_polynomial_he(x: Expr, n: Expr) -> Expr:
    """The probabilists' Hermite polynomials."""
    return _three_terms(special.double(x), _degree(n), 1.0, -0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0)


def laguerre_polynomial_l(x: Expr, n: Expr) -> Expr:
    x, n = special.double(x), _degree(n)
    n = formulas.where(x == 0, formulas.minimum(n, 0.0), n)  # 1 for every degree
    return _three_terms(x, n, -1.0, 1.0, 0.0, -1.0, 2.0, 1.0, 1.0, 0.0, 1.0, 1.0)


def legendre_polynomial_p(x: Expr, n: Expr) -> Expr:
    x, n = special.double(x), _degree(n)
    n = formulas.where((formulas.abs_(x) == 1) & (n > 0), n - 2 * formulas.trunc(n / 2), n)  # the sign alternates
    return _three_terms(x, n, 1.0, -0.0, 2.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0)


@scalar_function
def _chebyshev(x, n, slope, start, offset, sines, right, left):
    """Evaluate Chebyshev polynomials: inside (-1, 1) for higher degrees the sine or cosine of (n + offset) acos(x) over that of offset
    acos(x), right n + 1 at 1, left n + 1 with alternating sign at -1, elsewhere the recurrence."""
    if n >= 0 and x == 1:
        return right * n + 1
    if n >= 0 and x == -1:
        sign = 1 - 2 * (n - 2 * trunc(n / 2))
        return sign * (left * n + 1)
    if n > 8 and abs_(x) < 1:
        angle = acos(x)
        if sines > 0:
            return sin((n + offset) * angle) / sin(offset * angle)
        return cos((n + offset) * angle) / cos(offset * angle)
    return _three_terms(x, n, slope, start, 0.0, 2.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0)


def chebyshev_polynomial_t(x: Expr, n: Expr) -> Expr:
    """First kind: cos(n t) with x = cos(t)."""
    return _chebyshev(special.double(x), _degree(n), 1.0, -0.0, 0.0, 0.0, 0.0, 0.0)


def chebyshev_polynomial_u(x: Expr, n: Expr) -> Expr:
    """Second kind: sin((n + 1) t) / sin(t)."""
    return _chebyshev(special.double(x), _degree(n), 2.0, -0.0, 1.0, 1.0, 1.0, 1.0)


def chebyshev_polynomial_v(x: Expr, n: Expr) -> Expr:
    """Third kind: cos((n + 1/2) t) / cos(t / 2)."""
    return _chebyshev(special.double(x), _degree(n), 2.0, -1.0, 0.5, 0.0, 0.0, 2.0)


def chebyshev_polynomial_w(x: Expr, n: Expr) -> Expr:
    """Fourth kind: sin((n + 1/2) t) / sin(t / 2)."""
    return _chebyshev(special.double(x), _degree(n), 2.0, 1.0, 0.5, 1.0, 2.0, 0.0)
