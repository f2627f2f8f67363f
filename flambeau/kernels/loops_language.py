"""The vocabulary of loop kernels: the names that a kernel written in Python may use, and what each means in plain Python.

Every word is an object with two uses. `loops_frontend` turns it into IR; called on numbers it computes the same with NumPy scalars, which is
how kernels are interpreted. One rule holds in both: a Python number is weak (it takes the dtype of the other operand), a NumPy scalar is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core.dtype import dtype, opmath
from ..expr import functions as formulas
from ..expr.node import node

__all__ = [
    "Intrinsic", "KernelError", "abs_", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "bitcast",
    "c64", "c128", "c_cos", "c_log", "c_log1p", "c_pow", "c_sin", "ceil", "conj", "copysign", "cos", "cosh", "digamma", "erf",
    "erfc", "erfinv", "exp", "exp2",
    "expm1", "f32", "f64", "floor", "fma", "fmax", "fmin", "fmod", "i8", "i16", "i32", "i64", "imag", "inf",
    "isfinite", "isinf", "isnan", "lgamma", "like", "local", "log", "log1p", "log2", "log10", "maximum", "minimum",
    "nan", "nextafter", "pi", "prange", "real", "round_", "rsqrt", "sigmoid", "sign", "signbit", "simd", "sin",
    "sinh", "softplus", "sqrt", "tan", "tanh", "trunc", "u8", "u16", "u32", "u64", "unroll", "where",
]  # fmt: skip

inf, nan, pi = math.inf, math.nan, math.pi


class KernelError(TypeError):
    """Raised when a kernel uses something outside the language; the message starts with the kernel's file and line."""


class Intrinsic:
    """A word of the language. `kind` tells the front end how operand dtypes give the result's:

    "float"      a real function: integers become weak float64
    "same"       the common dtype of the operands
    "predicate"  operands meet, the result is bool
    "cast"       converts to `to`
    other kinds are handled one by one.
    """

    __slots__ = ("__name__", "formula", "kind", "name", "python", "to")

    def __init__(
        self,
        name: str,
        kind: str,
        python: Callable[..., Any],
        formula: Callable[..., Any] | None = None,
        to: dtype | None = None,
    ) -> None:
        self.name = self.__name__ = name
        self.kind, self.python, self.formula, self.to = kind, python, formula, to

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.python(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<loop kernel word {self.name}>"


def compute_dtype(d: dtype) -> dtype:
    """Return the dtype that an element of a buffer has once loaded: half-width floats are float32, integers int64 (uint64 stays)."""
    return dt.int64 if d.category == 1 and d is not dt.uint64 else opmath(d)


def convert(value: Any, to: dtype) -> Any:
    """Return a number as the interpreter holds it in dtype `to`. Loaded integers are Python ints: they are wide in kernels."""
    if to is dt.bool_:
        return bool(value)
    if to.category == 1:
        bits = 8 * to.itemsize
        whole = int(value) & ((1 << bits) - 1)
        if to.is_signed and whole >> (bits - 1):
            whole -= 1 << bits
        return whole if to is dt.int64 else to.numpy.type(whole)
    return opmath(to).numpy.type(value)


# --- loops, memory, casts --------------------------------------------------------------------------------------------


def _prange(count: int, cost: int = 1) -> range:
    return range(count)


class LocalArray:
    """A small array on the stack, interpreted. Unset elements raise, because natively they are garbage."""

    def __init__(self, kind: dtype, size: int):
        self.dtype, self.values = kind, [None] * size

    def __getitem__(self, index: int) -> Any:
        value = self.values[self._check(index)]
        if value is None:
            raise IndexError(f"local array element {index} is read before it is written")
        return value

    def __setitem__(self, index: int, value: Any) -> None:
        self.values[self._check(index)] = convert(value, compute_dtype(self.dtype))

    def _check(self, index: int) -> int:
        if not 0 <= index < len(self.values):
            raise IndexError(f"index {index} is out of bounds of a local array of {len(self.values)} elements")
        return index


def _element_dtype(where_from: Any) -> dtype:
    if isinstance(where_from, Intrinsic) and where_from.to is not None:
        return where_from.to
    return where_from if isinstance(where_from, dtype) else where_from.dtype


prange = Intrinsic("prange", "loop", _prange)
simd = Intrinsic("simd", "loop", range)
unroll = Intrinsic("unroll", "loop", range)
local = Intrinsic("local", "local", lambda kind, size: LocalArray(opmath(_element_dtype(kind)), size))
like = Intrinsic("like", "like", lambda buffer, value: convert(value, compute_dtype(_element_dtype(buffer))))


def _cast_word(name: str, to: dtype) -> Intrinsic:
    return Intrinsic(name, "cast", lambda value: convert(value, to), to=to)


f32, f64 = _cast_word("f32", dt.float32), _cast_word("f64", dt.float64)
i8, i16, i32, i64 = (
    _cast_word(n, d) for n, d in zip(("i8", "i16", "i32", "i64"), (dt.int8, dt.int16, dt.int32, dt.int64))
)
u8, u16, u32, u64 = (
    _cast_word(n, d) for n, d in zip(("u8", "u16", "u32", "u64"), (dt.uint8, dt.uint16, dt.uint32, dt.uint64))
)
c64, c128 = _cast_word("c64", dt.complex64), _cast_word("c128", dt.complex128)


def _bitcast(value: Any, to: Any) -> Any:
    held = np.asarray(value)  # a Python float or int is 64 bits wide here and natively
    return convert(held.view(_element_dtype(to).numpy)[()], _element_dtype(to))


bitcast = Intrinsic("bitcast", "bitcast", _bitcast)


# --- mathematics -----------------------------------------------------------------------------------------------------


def _weak(result: Any, *operands: Any) -> Any:
    """Return the result in the common dtype of the operands: a Python number if all of them are."""
    strong = [np.asarray(o).dtype for o in operands if isinstance(o, np.generic)]
    kind = np.result_type(*strong) if strong else None
    if isinstance(result, (bool, np.bool_)):
        return bool(result)
    if kind is None:
        return result.item() if isinstance(result, np.generic) else result
    return kind.type(result) if kind.kind in "fc" or isinstance(result, (int, np.integer)) else result


def _real(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: _weak(function(*operands), *operands)


def _digamma(x: Any) -> float:
    x = float(x)
    if x <= 0:
        if x == math.floor(x):
            return math.copysign(inf, -math.copysign(1.0, x)) if x == 0 else nan
        return _digamma(1 - x) - pi / math.tan(pi * x)
    result = 0.0
    while x < 10:
        result -= 1 / x
        x += 1
    z = 1 / (x * x)
    series = z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132 - z * 691 / 32760)))))
    return result + math.log(x) - 0.5 / x - series


def _erfinv(x: Any) -> float:
    x = float(x)
    if not abs(x) < 1:
        return math.copysign(inf, x) if abs(x) == 1 else nan
    w = math.log1p(-x * x)
    t = 2 / (pi * 0.147) + w / 2
    y = math.copysign(math.sqrt(math.sqrt(t * t - w / 0.147) - t), x)
    for _ in range(4):  # Newton; the tail needs erfc to keep its digits
        error = math.erf(y) - x if abs(x) < 0.5 else math.copysign((1 - abs(x)) - math.erfc(abs(y)), x)
        y -= error / (2 / math.sqrt(pi) * math.exp(-y * y))
    return y


def _lgamma(x: Any) -> float:
    x = float(x)
    return inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


_NUMPY: dict[str, Callable[..., Any]] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh, "atan2": np.arctan2,
    "erf": lambda x: math.erf(float(x)), "erfc": lambda x: math.erfc(float(x)),
    "erfinv": _erfinv, "lgamma": _lgamma, "digamma": _digamma, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "softplus": lambda x: np.logaddexp(x, 0),
    "round": np.rint, "fma": lambda a, b, c: a * b + c, "logical_not": lambda x: not x,
}  # fmt: skip


def _word(name: str, kind: str, formula_name: str | None = None) -> Intrinsic:
    numeric = _NUMPY.get(name) or getattr(np, name)
    return Intrinsic(name, kind, _real(numeric), getattr(formulas, formula_name or name))


exp, exp2, expm1, log, log2, log10, log1p = (
    _word(n, "float") for n in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p")
)
sqrt, rsqrt, sigmoid, softplus = (_word(n, "float") for n in ("sqrt", "rsqrt", "sigmoid", "softplus"))
sin, cos, tan, asin, acos, atan, atan2 = (
    _word(n, "float") for n in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")
)
sinh, cosh, tanh, asinh, acosh, atanh = (_word(n, "float") for n in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"))
# Where others are polynomials that vectorise, these are the C library's functions, bit for bit.
c_log, c_log1p, c_pow, c_sin, c_cos = (
    Intrinsic(n, "float", _real(getattr(math, n[2:])), partial(node, n))
    for n in ("c_log", "c_log1p", "c_pow", "c_sin", "c_cos")
)
erf, erfc, erfinv, lgamma, digamma = (_word(n, "float") for n in ("erf", "erfc", "erfinv", "lgamma", "digamma"))
copysign, nextafter = _word("copysign", "float"), _word("nextafter", "float")
floor, ceil, trunc, sign = (_word(n, "same") for n in ("floor", "ceil", "trunc", "sign"))
round_ = _word("round", "same", "round_")
fmin, fmax, fmod = (_word(n, "same") for n in ("fmin", "fmax", "fmod"))
fma = _word("fma", "same")
minimum, maximum = _word("minimum", "same"), _word("maximum", "same")
isnan, isinf, isfinite, signbit = (_word(n, "predicate") for n in ("isnan", "isinf", "isfinite", "signbit"))
conj = _word("conj", "same")
abs_ = Intrinsic("abs", "abs", _real(abs), formulas.abs_)
real = Intrinsic("real", "part", lambda z: z.real, formulas.real)
imag = Intrinsic("imag", "part", lambda z: z.imag, formulas.imag)
where = Intrinsic("where", "where", lambda condition, a, b: a if condition else b)


def _fold(word: Intrinsic) -> Callable[..., Any]:
    def function(first: Any, *rest: Any) -> Any:
        for value in rest:
            first = word(first, value)
        return first

    return function


def _floor_divmod(a: Any, b: Any) -> tuple[Any, ...]:
    return a // b, a % b


# Python's own names, as kernels understand them. `range` and `True` need no redefinition.
BUILTINS: dict[str, Any] = {
    "abs": abs_,
    "min": Intrinsic("min", "fold", _fold(minimum), formulas.minimum),
    "max": Intrinsic("max", "fold", _fold(maximum), formulas.maximum),
    "int": Intrinsic("int", "cast", lambda value: convert(value, dt.int64), to=dt.int64),
    "float": Intrinsic("float", "weak_float", float),
    "bool": Intrinsic("bool", "truth", bool),
    "divmod": Intrinsic("divmod", "divmod", _floor_divmod),
    "range": Intrinsic("range", "loop", range),
}
