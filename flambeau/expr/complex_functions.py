"""Complex functions as formulas of real ones: the value of each operation on pairs (real part, imaginary part).

A pair's imaginary part may be None: a real number among complex ones in a formula. Formulas of single precision pass through float64 where
squares would overflow or differences cancel; everything else follows the usual algorithms (Kahan, "Branch cuts for complex elementary
functions") whose branch cuts follow the signs of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ..core import dtype as dt
from ..core.dtype import dtype
from .functions import (
    abs_,
    asinh,
    atan2,
    cast,
    const,
    copysign,
    cos,
    cosh,
    exp,
    expm1,
    fma,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    maximum,
    minimum,
    round_,
    sin,
    sinh,
    sqrt,
    where,
)
from .node import Expr

_TWO_PI, _TWO_PI_LOW = 2 * math.pi, 2.4492935982947064e-16
_BIG_ANGLE = {dt.float32: 11.0, dt.float64: 22.0}  # beyond this, tanh is 1 but for the last bit


class Pair(NamedTuple):
    """A complex number whose parts have the real dtype of the node it belongs to."""

    re: Expr
    im: Expr | None

    @property
    def imaginary(self) -> Expr:
        return const(0.0) if self.im is None else self.im


def converted(z: Pair, to: dtype) -> Pair:
    return Pair(cast(z.re, to), None if z.im is None else cast(z.im, to))


def _wide(z: Pair) -> Pair:
    return Pair(cast(z.re, dt.float64), cast(z.imaginary, dt.float64))


def _times_i(z: Pair) -> Pair:
    return Pair(-z.imaginary, z.re)


def _times_minus_i(z: Pair) -> Pair:
    return Pair(z.imaginary, -z.re)


# ---- arithmetic -----------------------------------------------------------------------------------------------------


def _add(a: Pair, b: Pair, d: dtype) -> Pair:
    if a.im is None or b.im is None:
        return Pair(a.re + b.re, b.im if a.im is None else a.im)
    return Pair(a.re + b.re, a.im + b.im)


def _sub(a: Pair, b: Pair, d: dtype) -> Pair:
    if b.im is None:
        return Pair(a.re - b.re, a.im)
    return Pair(a.re - b.re, -b.im if a.im is None else a.im - b.im)


def _neg(a: Pair, d: dtype) -> Pair:
    return Pair(-a.re, None if a.im is None else -a.im)


def _mul(a: Pair, b: Pair, d: dtype) -> Pair:
    if a.im is None:
        return Pair(a.re * b.re, None if b.im is None else a.re * b.im)
    if b.im is None:
        return Pair(a.re * b.re, a.im * b.re)
    return Pair(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def _div(a: Pair, b: Pair, d: dtype) -> Pair:
    """Divide by Smith's method: the ratio of the divisor's parts does not overflow, and an infinite divisor does not give nan."""
    if b.im is None:
        return Pair(a.re / b.re, None if a.im is None else a.im / b.re)
    n, w = _wide(a), _wide(b)
    wide_re = abs_(w.re) >= abs_(w.imaginary)
    large, small = where(wide_re, w.re, w.imaginary), where(wide_re, w.imaginary, w.re)
    first, second = where(wide_re, n.re, n.imaginary), where(wide_re, n.imaginary, n.re)
    ratio = small / large
    scale = 1 / fma(small, ratio, large)
    im = fma(-first, ratio, second) * scale
    by_zero = (large == 0) & (small == 0)
    re = where(by_zero, n.re / abs_(large), fma(second, ratio, first) * scale)
    im = where(by_zero, n.imaginary / abs_(large), where(wide_re, im, -im))
    return converted(Pair(re, im), d)


def _finite_product(a: Expr, b: Expr) -> Expr:
    """Return a * b, with 0 for the nan of 0 times infinity: no infinite factor is meant there."""
    product = a * b
    return where(isnan(product) & ((a == 0) | (b == 0)), 0.0, product)


def _turning_product(a: Expr, b: Expr) -> Expr:
    """Return a * b with 0 instead of NaN for a zero factor, and infinity for an infinite `a` times a `b` that is NaN."""
    return where(isinf(a) & isnan(b), math.inf, _finite_product(a, b))


def _fma(a: Pair, b: Pair, c: Pair, d: dtype) -> Pair:
    return _add(_mul(a, b, d), c, d)


def _where_zero(z: Pair, then: Pair, otherwise: Pair) -> Pair:
    zero = (z.re == 0) & (z.imaginary == 0)
    return Pair(where(zero, then.re, otherwise.re), where(zero, then.imaginary, otherwise.imaginary))


# ---- size and direction ---------------------------------------------------------------------------------------------


def _hypot(z: Pair, d: dtype) -> Expr:
    """Return |z| without intermediate overflow."""
    a, b = z.re, z.imaginary
    if d is dt.float32:
        w = _wide(z)
        size = cast(sqrt(w.re * w.re + w.imaginary * w.imaginary), d)
    else:
        large, small = maximum(abs_(a), abs_(b)), minimum(abs_(a), abs_(b))
        ratio = small / large
        size = where(large == 0, large, large * sqrt(fma(ratio, ratio, const(1.0))))
    return where(isinf(a) | isinf(b), cast(const(math.inf), d), size)


def _sign(z: Pair, d: dtype) -> Pair:
    size = _hypot(z, d)
    return _where_zero(z, Pair(cast(const(0.0), d), None), Pair(z.re / size, z.imaginary / size))


def _angle(z: Pair, d: dtype) -> Expr:
    return atan2(z.imaginary, z.re)


# ---- roots, exponentials, logarithms --------------------------------------------------------------------------------


def _sqrt(z: Pair, d: dtype) -> Pair:
    w = _wide(z)
    a, b = w.re, w.imaginary
    t = (
        sqrt(0.5 * _hypot(w, dt.float64) + 0.5 * abs_(a))
        if d is dt.float64
        else sqrt(0.5 * (sqrt(a * a + b * b) + abs_(a)))
    )
    t = where(isinf(a) | isinf(b), math.inf, t)
    other = where(t == 0, abs_(b), where(isinf(t), where(isinf(b), math.inf, b * 0.0), abs_(b) / (2 * t)))
    re, im = where(a >= 0, t, other), where(a >= 0, other, t)
    re = where(isnan(a), where(isinf(b), math.inf, a), re)
    im = where(isnan(a), where(isinf(b), math.inf, a), im)
    return converted(Pair(re, copysign(im, b)), d)


def _rsqrt(z: Pair, d: dtype) -> Pair:
    return _div(Pair(cast(const(1.0), d), None), _sqrt(z, d), d)


def _exp(z: Pair, d: dtype) -> Pair:
    size, b = exp(z.re), z.imaginary
    return Pair(_turning_product(size, cos(b)), where(b == 0, b, _finite_product(size, sin(b))))


def _exp2(z: Pair, d: dtype) -> Pair:
    return _exp(Pair(z.re * math.log(2), z.imaginary * math.log(2)), d)


def _expm1(z: Pair, d: dtype) -> Pair:
    """Return exp(z) - 1: exp(x) cos(y) - 1 = expm1(x) cos(y) - 2 sin(y/2)**2 does not cancel near 0."""
    b = z.imaginary
    half = sin(0.5 * b)
    return Pair(expm1(z.re) * cos(b) - 2 * half * half, where(b == 0, b, exp(z.re) * sin(b)))


def _log_size(z: Pair, d: dtype) -> Expr:
    """Return log |z|, accurate also where |z| is nearly 1."""
    a, b = z.re, z.imaginary
    if d is dt.float32:
        w = _wide(z)
        size = cast(0.5 * log(w.re * w.re + w.imaginary * w.imaginary), d)
        return where(isinf(a) | isinf(b), cast(const(math.inf), d), size)
    large, small = maximum(abs_(a), abs_(b)), minimum(abs_(a), abs_(b))
    near = 0.5 * log1p(fma(large - 1, large + 1, small * small))
    return where((large > 0.5) & (large < 2.0), near, log(_hypot(z, d)))


def _log(z: Pair, d: dtype) -> Pair:
    return Pair(_log_size(z, d), _angle(z, d))


def _log_to_base(base: float) -> Callable[[Pair, dtype], Pair]:
    factor = 1 / math.log(base)

    def function(z: Pair, d: dtype) -> Pair:
        result = _log(z, d)
        return Pair(result.re * factor, result.imaginary * factor)

    return function


def _log1p(z: Pair, d: dtype) -> Pair:
    w = _wide(z)
    a, b = w.re, w.imaginary
    small = (abs_(a) < 0.5) & (abs_(b) < 0.5)
    near = 0.5 * log1p(where(small, fma(a, a + 2, b * b), 0.0))
    shifted = Pair(z.re + 1, z.imaginary)
    far = _log_size(shifted if d is dt.float64 else Pair(a + 1, b), dt.float64)
    return converted(Pair(where(small, near, far), _angle(shifted, d)), d)


def _rotate(size: Expr, angle: Expr, d: dtype) -> Pair:
    """Return size * exp(i angle) of float64 numbers; single precision needs the angle's sine in single precision only."""
    if d is dt.float32:
        turns = round_(angle * (1 / _TWO_PI))
        angle = cast(fma(turns, -_TWO_PI_LOW, fma(turns, -_TWO_PI, angle)), d)
        return converted(Pair(size * cast(cos(angle), dt.float64), size * cast(sin(angle), dt.float64)), d)
    return Pair(size * cos(angle), size * sin(angle))


def _pow(z: Pair, w: Pair, d: dtype) -> Pair:
    base, e = _wide(z), _wide(w)
    size = 0.5 * log(base.re * base.re + base.imaginary * base.imaginary) if d is dt.float32 else _log_size(base, d)
    angle = atan2(base.imaginary, base.re)
    result = _rotate(exp(e.re * size - e.imaginary * angle), fma(e.imaginary, size, e.re * angle), d)
    # nothing to the power of nothing is one; log(0) would make every other power nan
    no_power = (e.re == 0) & (e.imaginary == 0)
    of_zero = where(no_power, 1.0, where(e.re > 0, 0.0, math.nan))
    rest = where(no_power | (e.re > 0), 0.0, math.nan)
    return _where_zero(z, Pair(cast(of_zero, d), cast(rest, d)), result)


def power(z: Pair, n: complex, d: dtype) -> Pair | None:
    """Return z**n for the exponents that are products or roots; None for others."""
    one = Pair(cast(const(1.0), d), None)
    if n == 0:
        return Pair(one.re, cast(const(0.0), d))
    if n == 0.5:
        return _sqrt(z, d)
    if n == -0.5:
        return _rsqrt(z, d)
    if n not in (1, 2, 3, -1, -2):
        return None
    size = abs(int(n.real))
    result = z
    for _ in range(size - 1):
        result = _mul(result, z, d)
    return result if n.real > 0 else _div(one, result, d)


# ---- circular and hyperbolic functions ------------------------------------------------------------------------------


def _sinh(z: Pair, d: dtype) -> Pair:
    a, b = z.re, z.imaginary
    return Pair(_turning_product(sinh(a), cos(b)), _finite_product(cosh(a), sin(b)))


def _cosh(z: Pair, d: dtype) -> Pair:
    a, b = z.re, z.imaginary
    return Pair(_turning_product(cosh(a), cos(b)), _finite_product(sinh(a), sin(b)))


def _tanh(z: Pair, d: dtype) -> Pair:
    a, b = z.re, z.imaginary
    s, c = sinh(a), cos(b)
    size = s * s + c * c
    far = abs_(a) > _BIG_ANGLE[d]
    turn = sin(b) * c
    re = where(far, copysign(cast(const(1.0), d), a), _finite_product(s, cosh(a) / size))
    return Pair(re, where(far, _finite_product(4 * turn, exp(-2 * abs_(a))), turn / size))


def _sin(z: Pair, d: dtype) -> Pair:
    return _times_minus_i(_sinh(_times_i(z), d))


def _cos(z: Pair, d: dtype) -> Pair:
    return _cosh(_times_i(z), d)


def _tan(z: Pair, d: dtype) -> Pair:
    return _times_minus_i(_tanh(_times_i(z), d))


def _roots(z: Pair) -> tuple[Pair, Pair, Pair]:
    """Return z in float64, sqrt(1 - z) and sqrt(1 + z)."""
    w = _wide(z)
    below = _sqrt(Pair(1 - w.re, -w.imaginary), dt.float64)
    return w, below, _sqrt(Pair(1 + w.re, w.imaginary), dt.float64)


def _across(a: Pair, b: Pair) -> Expr:
    """Return the imaginary part of conj(a) * b."""
    return _finite_product(a.re, b.imaginary) - _finite_product(a.imaginary, b.re)


def _real_asinh(x: Expr, d: dtype) -> Expr:
    """Return asinh of a float64 number; in float64 the C library's, whose squares do not overflow."""
    if d is dt.float64:
        return asinh(x)
    size = abs_(x)
    grown = where(isinf(x), size, size + size * size / (1 + sqrt(fma(size, size, const(1.0)))))
    return cast(copysign(log1p(grown), x), d)


def _asin(z: Pair, d: dtype) -> Pair:
    w, below, above = _roots(z)
    along = _finite_product(below.re, above.re) - _finite_product(below.imaginary, above.imaginary)
    return Pair(cast(atan2(w.re, along), d), _real_asinh(_across(below, above), d))


def _acos(z: Pair, d: dtype) -> Pair:
    w, below, above = _roots(z)
    return Pair(cast(2 * atan2(below.re, above.re), d), _real_asinh(_across(above, below), d))


def _asinh(z: Pair, d: dtype) -> Pair:
    return _times_minus_i(_asin(_times_i(z), d))


def _acosh(z: Pair, d: dtype) -> Pair:
    w = _wide(z)
    below = _sqrt(Pair(w.re - 1, w.imaginary), dt.float64)
    above = _sqrt(Pair(w.re + 1, w.imaginary), dt.float64)
    along = _finite_product(below.re, above.re) + _finite_product(below.imaginary, above.imaginary)
    return Pair(_real_asinh(along, d), cast(2 * atan2(below.imaginary, above.re), d))


def _atanh(z: Pair, d: dtype) -> Pair:
    w = _wide(z)
    x, y = w.re, w.imaginary
    size = abs_(x)
    re = 0.25 * log1p(4 * size / ((1 - size) * (1 - size) + y * y))
    im = 0.5 * atan2(2 * y, (1 - x) * (1 + x) - y * y)
    endless = isinf(x) | isinf(y)
    re, im = where(endless, 0.0, re), where(endless, copysign(const(math.pi / 2), y), im)
    return converted(Pair(copysign(re, x), im), d)


def _atan(z: Pair, d: dtype) -> Pair:
    return _times_minus_i(_atanh(_times_i(z), d))


# ---- tables ---------------------------------------------------------------------------------------------------------

COMPLEX: dict[str, Callable[..., Pair]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": _neg,
    "fma": _fma,
    "pow": _pow,
    "sign": _sign,
    "conj": lambda z, d: Pair(z.re, None if z.im is None else -z.im),
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _log,
    "log2": _log_to_base(2),
    "log10": _log_to_base(10),
    "log1p": _log1p,
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
}  # fmt: skip

REAL: dict[str, Callable[..., Expr]] = {
    "real": lambda z, d: z.re,
    "imag": lambda z, d: cast(z.imaginary, d),
    "abs": _hypot,
    "angle": _angle,
    "eq": lambda a, b, d: (a.re == b.re) & (a.imaginary == b.imaginary),
    "ne": lambda a, b, d: (a.re != b.re) | (a.imaginary != b.imaginary),
    "logical_not": lambda z, d: (z.re == 0) & (z.imaginary == 0),
    "isnan": lambda z, d: isnan(z.re) | isnan(z.imaginary),
    "isinf": lambda z, d: isinf(z.re) | isinf(z.imaginary),
    "isfinite": lambda z, d: isfinite(z.re) & isfinite(z.imaginary),
}  # fmt: skip
