"""Operations of formulas on NumPy arrays: the slow, simple reference.

Operands arrive converted to their common dtype (`typing.operand_dtype`). float32 and complex64 functions are computed
in double precision and rounded once, so that they can serve as the reference for native kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..expr.functions import ELEMENTARY

Array = np.ndarray
_WIDER = {np.dtype(np.float32): np.float64, np.dtype(np.complex64): np.complex128}


def _in_double(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return a function that computes float32 and complex64 operands in double precision and rounds the result once."""

    def wrapped(*operands: Array) -> Array:
        narrow = operands[0].dtype
        wide = _WIDER.get(narrow)
        if wide is None:
            return function(*operands)
        return function(*(x.astype(wide) for x in operands)).astype(narrow)

    return wrapped


def _real_only(name: str, function: Callable[..., Array]) -> Callable[..., Array]:
    def wrapped(*operands: Array) -> Array:
        if operands[0].dtype.kind == "c":
            raise TypeError(f"'{name}' is not defined on complex numbers")
        return function(*operands)

    return wrapped


def _is_exact(x: Array) -> bool:
    return x.dtype.kind in "biu"


# ---- arithmetic -----------------------------------------------------------------------------------------------------


def _subtract(a: Array, b: Array) -> Array:
    return a ^ b if a.dtype.kind == "b" else a - b


def _negative(a: Array) -> Array:
    return a if a.dtype.kind == "b" else -a


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind != "c":
        return a / b
    return _in_double(np.divide)(a, b)


def _bytes_for_bool(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Return a function that computes division-like operations on bool in uint8."""

    def wrapped(a: Array, b: Array) -> Array:
        if a.dtype.kind == "b":
            return function(a.astype(np.uint8), b.astype(np.uint8)) != 0
        return function(a, b)

    return wrapped


def _mod(a: Array, b: Array) -> Array:
    """Return the remainder with the sign of `b`."""
    r = np.fmod(a, b)
    return np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


def _floordiv(a: Array, b: Array) -> Array:
    if _is_exact(a):
        return np.floor_divide(a, b)
    r = np.fmod(a, b)
    quotient = (a - r) / b
    quotient = np.where((r != 0) & ((r < 0) != (b < 0)), quotient - 1, quotient)
    whole = np.floor(quotient)
    whole = np.where(quotient - whole > 0.5, whole + 1, whole)
    whole = np.where(quotient != 0, whole, np.copysign(np.zeros_like(whole), a / b))
    return np.where(b == 0, a / b, whole)


def _integer_power(a: Array, b: Array) -> Array:
    """Compute integer powers by squaring, wrapping; a negative exponent leaves only the powers of 1 and -1."""
    a, b = np.broadcast_arrays(a, b)
    result, base, left = np.ones_like(a), a.copy(), np.where(b < 0, np.zeros_like(b), b)
    while np.any(left > 0):
        result = np.where(left & 1 == 1, result * base, result)
        base, left = base * base, left >> 1
    minus_one = np.where(b & 1 == 1, -np.ones_like(a), np.ones_like(a))
    inverse = np.where(a == 1, np.ones_like(a), np.where(a.astype(np.int64) == -1, minus_one, np.zeros_like(a)))
    return np.where(b < 0, inverse, result).astype(a.dtype)


def _pow(a: Array, b: Array) -> Array:
    if a.dtype.kind == "b":
        return a | ~b
    if _is_exact(a):
        return _integer_power(a, b)
    return _in_double(np.power)(a, b)


def _fma(a: Array, b: Array, c: Array) -> Array:
    if a.dtype == np.float32:
        return _fma_float32(a, b, c)
    if a.dtype == np.float64:
        return _fma_float64(a, b, c)
    return a * b + c


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return (s, e) with s + e == a + b exactly (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _fma_float32(a: Array, b: Array, c: Array) -> Array:
    """Compute a * b + c exactly rounded: the product fits in float64, and the sum is rounded to odd so that the second rounding does no harm."""
    s, e = _two_sum(np.asarray(a.astype(np.float64) * b), np.asarray(c, dtype=np.float64))
    s, e = np.broadcast_arrays(s, e)
    bits = np.ascontiguousarray(s).view(np.int64).reshape(s.shape)
    inexact_and_even = np.isfinite(e) & (e != 0) & (bits & 1 == 0)
    away = (e > 0) == (s > 0)
    odd = np.where(inexact_and_even, np.where(away, bits + 1, bits - 1), bits)
    return np.ascontiguousarray(odd).view(np.float64).reshape(s.shape).astype(np.float32)


def _fma_float64(a: Array, b: Array, c: Array) -> Array:
    """Compute a * b + c, faithful rather than exact: Dekker's product and the sum's error are added back in float64."""
    splitter = 134217729.0  # 2**27 + 1
    p = a * b
    ah, bh = a * splitter, b * splitter
    ah, bh = ah - (ah - a), bh - (bh - b)
    al, bl = a - ah, b - bh
    product_error = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    s, sum_error = _two_sum(p, c)
    correction = product_error + sum_error
    return np.where(np.isfinite(correction) & (correction != 0), s + correction, p + c)  # p + c keeps the sign of zero


def _sign(a: Array) -> Array:
    if a.dtype.kind == "c":
        return np.where(a == 0, a, _in_double(lambda z: z / np.abs(z))(a))
    if a.dtype.kind == "b":
        return a
    return ((a > 0).astype(np.int8) - (a < 0).astype(np.int8)).astype(a.dtype)  # 0 for nan


def _whole(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return a rounding function such as floor that is the identity on integers."""
    return lambda a: a if _is_exact(a) else function(a)


def _abs(a: Array) -> Array:
    return _in_double(lambda z: np.abs(z))(a).real if a.dtype.kind == "c" else np.abs(a)


# ---- bits -----------------------------------------------------------------------------------------------------------


def _shift_left(a: Array, b: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    valid = (b >= 0) & (b < bits)
    return np.where(valid, np.left_shift(a, np.where(valid, b, np.zeros_like(b))), np.zeros_like(a))


def _shift_right(a: Array, b: Array) -> Array:
    """Shift right; an amount out of range shifts everything out: 0, or -1 for negative numbers."""
    bits = 8 * a.dtype.itemsize
    if a.dtype.kind == "u":
        valid = b < bits
        return np.where(valid, np.right_shift(a, np.where(valid, b, np.zeros_like(b))), np.zeros_like(a))
    valid = (b >= 0) & (b < bits)
    return np.right_shift(a, np.where(valid, b, np.full_like(b, bits - 1)))


# ---- comparisons and predicates -------------------------------------------------------------------------------------


def _float_test(function: Callable[[Array], Array], otherwise: bool) -> Callable[[Array], Array]:
    return lambda a: np.full(a.shape, otherwise) if _is_exact(a) else function(a)


def _copysign(a: Array, b: Array) -> Array:
    if _is_exact(a):
        return np.where(b < 0, -np.abs(a), np.abs(a))
    return np.copysign(a, b)


def _complex(a: Array, b: Array) -> Array:
    a, b = np.broadcast_arrays(a, b)
    result = np.empty(a.shape, np.complex128 if a.dtype == np.float64 else np.complex64)
    result.real, result.imag = a, b
    return result


def _angle(a: Array) -> Array:
    if a.dtype.kind == "c":
        return _in_double(np.arctan2)(a.imag, a.real)
    if _is_exact(a):
        return np.where(a < 0, np.float32(math.pi), np.float32(0)).astype(a.dtype)
    return np.where(np.isnan(a), a, np.where(a < 0, a.dtype.type(math.pi), a.dtype.type(0)))


# ---- special functions ----------------------------------------------------------------------------------------------


def _elementwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    vectorised = np.frompyfunc(function, 1, 1)
    return lambda a: np.asarray(vectorised(a), dtype=np.float64)


# Stirling's series: B(2k) / (2k (2k - 1)).
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
_HALF_LOG_2PI = np.longdouble("0.918938533204672741780329736406")
_PI = np.longdouble("3.14159265358979323846264338")
_EULER = np.longdouble("0.57721566490153286060651209")


def _zeta_minus_one(s: int) -> float:
    """Return the sum of n**-s from n = 2: directly, the rest by Euler-Maclaurin."""
    end = 200
    rest = end ** (1 - s) / (s - 1) + end**-s / 2 + s * end ** (-s - 1) / 12
    rest -= s * (s + 1) * (s + 2) * end ** (-s - 3) / 720
    return math.fsum([*(n**-s for n in range(2, end)), rest])


_LGAMMA_AT_TWO = [(-1) ** k * _zeta_minus_one(k) / k for k in range(2, 45)]  # coefficients of z**k


def _lgamma_positive(x: Array) -> Array:
    """Compute lgamma by recurrence up to x >= 13, then Stirling; Taylor series near the roots 1 and 2, where the terms cancel."""
    product, y = np.ones_like(x), x
    for _ in range(13):
        small = y < 13
        product = np.where(small, product * y, product)
        y = np.where(small, y + 1, y)
    tail = np.zeros_like(y)
    for c in reversed(_STIRLING):
        tail = tail / (y * y) + c
    stirling = (y - 0.5) * np.log(y) - y + _HALF_LOG_2PI + tail / y - np.log(product)
    result = np.where(np.isinf(x), x, stirling)
    for root in (2, 1):
        near = np.abs(x - root) < 0.3
        z = np.where(near, x - root, 0)
        series = np.zeros_like(z)
        for c in reversed(_LGAMMA_AT_TWO):
            series = (series + c) * z
        series = (series + (1 - _EULER)) * z
        # lgamma(1 + z) = lgamma(2 + z) - log(1 + z)
        result = np.where(near, series if root == 2 else series - np.log1p(z), result)
    return result


def _lgamma(x: Array) -> Array:
    wide = x.astype(np.longdouble)
    reflected = x < 0.5
    positive = _lgamma_positive(np.where(reflected, 1 - wide, wide))
    sine = np.abs(np.sin(_PI * (wide - np.round(wide))))
    result = np.where(reflected, np.log(_PI / sine) - positive, positive)
    pole = np.isinf(x) | ((x <= 0) & (x == np.floor(x)))
    return np.where(pole, np.inf, result).astype(np.float64)


# Coefficients of the asymptotic series of digamma: B(2k) / 2k.
_DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_DIGAMMA_ROOT = 1.4616321449683622


def _digamma_positive(x: Array) -> Array:
    """Compute digamma by recurrence up to x >= 10, then the asymptotic series, in extended precision if the platform has it."""
    shift = np.zeros_like(x)
    for _ in range(10):
        small = x < 10
        shift = np.where(small, shift + 1 / np.where(small, x, 1), shift)
        x = np.where(small, x + 1, x)
    y = 1 / (x * x)
    tail = np.zeros_like(x)
    for c in reversed(_DIGAMMA_SERIES):
        tail = (tail + c) * y
    return np.where(np.isinf(x), x, np.log(x) - 0.5 / x - tail - shift)


def _digamma_taylor() -> list[float]:
    """Return the Taylor coefficients of digamma at its positive root: (-1)^(k+1) zeta(k+1, root)."""
    coefficients = []
    for k in range(1, 25):
        terms = [(_DIGAMMA_ROOT + n) ** -(k + 1) for n in range(40)]
        end = _DIGAMMA_ROOT + 40
        s = k + 1
        # Euler-Maclaurin for what is left of the sum
        rest = end ** (1 - s) / (s - 1) + end**-s / 2 + s * end ** (-s - 1) / 12
        rest -= s * (s + 1) * (s + 2) * end ** (-s - 3) / 720
        rest += s * (s + 1) * (s + 2) * (s + 3) * (s + 4) * end ** (-s - 5) / 30240
        coefficients.append((-1) ** (k + 1) * math.fsum([*terms, rest]))
    return coefficients


_DIGAMMA_TAYLOR = _digamma_taylor()
_DIGAMMA_ROOT_LOW = 9.549995429965697e-17


def _digamma(x: Array) -> Array:
    reflected = x < 0
    wide = x.astype(np.longdouble)
    positive = _digamma_positive(np.where(reflected, 1 - wide, np.where(x > 0, wide, 1)))
    # Next to the root the terms above cancel: a Taylor series there.
    from_root = (x - _DIGAMMA_ROOT) - _DIGAMMA_ROOT_LOW
    near = np.zeros_like(x)
    for c in reversed(_DIGAMMA_TAYLOR):
        near = (near + c) * np.where(np.abs(from_root) < 0.25, from_root, 0)
    positive = np.where(np.abs(from_root) < 0.25, near, positive)
    negative = positive - _PI / np.tan(_PI * (wide - np.round(wide)))
    result = np.where(reflected, np.where(x == np.floor(x), np.nan, negative), positive)
    result = np.where(x == 0, np.copysign(np.inf, -x), result)
    return np.where(np.isnan(x) | (x == -np.inf), np.nan, result).astype(np.float64)


_erf = _elementwise(math.erf)
_erfc = _elementwise(math.erfc)


def _erfinv(y: Array) -> Array:
    """Compute erfinv from a rough start (Winitzki's formula) by Halley steps on erf, or on log(erfc) in the tails where erf is flat."""
    a = np.abs(y)
    inside = a < 1
    t = np.where(inside, a, 0.5)
    w = np.log1p(-t * t)
    c = 2 / (np.pi * 0.147) + w / 2
    x = np.sqrt(np.maximum(np.sqrt(c * c - w / 0.147) - c, 0))
    complement = 1 - t  # exact for t >= 0.5
    for _ in range(4):
        e = _erfc(x)
        derivative = 2 / math.sqrt(math.pi) * np.exp(-x * x)
        central = (_erf(x) - t) / derivative
        tail = -np.log(e / complement) * e / derivative
        step = np.where(t < 0.5, central / (1 + x * central), tail)
        x = x - step
    x = np.where(t == 0, 0, x)
    x = np.where(inside, x, np.where(a == 1, np.inf, np.nan))
    return np.copysign(x, y)


_SPECIAL = {"erf": _erf, "erfc": _erfc, "erfinv": _erfinv, "lgamma": _lgamma, "digamma": _digamma}


def _of_numpy(name: str) -> Callable[[Array], Array]:
    """Return NumPy's function of this name: inverse functions begin with "arc" there."""
    return getattr(np, f"arc{name[1:]}" if name.startswith("a") else name)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": _subtract,
    "mul": np.multiply,
    "mul_alone": np.multiply,
    "div": _divide,
    "neg": _negative,
    "fma": _fma,
    "pow": _pow,
    "floordiv": _real_only("floordiv", _bytes_for_bool(_floordiv)),
    "mod": _real_only("mod", _bytes_for_bool(_mod)),
    "fmod": _real_only("fmod", _bytes_for_bool(np.fmod)),
    "abs": _abs,
    "sign": _sign,
    "floor": _real_only("floor", _whole(np.floor)),
    "ceil": _real_only("ceil", _whole(np.ceil)),
    "trunc": _real_only("trunc", _whole(np.trunc)),
    "round": _real_only("round", _whole(np.rint)),
    "sqrt": _in_double(np.sqrt),
    "rsqrt": _in_double(lambda a: 1 / np.sqrt(a)),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": _shift_left,
    "shr": _shift_right,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": _real_only("lt", np.less),
    "le": _real_only("le", np.less_equal),
    "gt": _real_only("gt", np.greater),
    "ge": _real_only("ge", np.greater_equal),
    "isnan": _float_test(np.isnan, False),
    "isinf": _float_test(np.isinf, False),
    "isfinite": _float_test(np.isfinite, True),
    "signbit": _real_only("signbit", lambda a: a < 0 if _is_exact(a) else np.signbit(a)),
    "logical_not": np.logical_not,
    "minimum": _real_only("minimum", np.minimum),
    "maximum": _real_only("maximum", np.maximum),
    "fmin": _real_only("fmin", np.fmin),
    "fmax": _real_only("fmax", np.fmax),
    "copysign": _real_only("copysign", _copysign),
    "nextafter": _real_only("nextafter", np.nextafter),
    "real": lambda a: a.real,
    "imag": lambda a: a.imag if a.dtype.kind == "c" else np.zeros_like(a),
    "conj": np.conjugate,
    "angle": _angle,
    "complex": _complex,
    **{name: _in_double(_of_numpy(name)) for name in ELEMENTARY if name not in _SPECIAL},
    "atan2": _real_only("atan2", _in_double(np.arctan2)),
    **{name: _real_only(name, _in_double(function)) for name, function in _SPECIAL.items()},
}
