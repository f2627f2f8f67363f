"""The vocabulary of formulas: every function a formula may call, as plain Python functions on expressions."""

from __future__ import annotations

import math
from typing import Any

from ..core.dtype import dtype, opmath
from .node import Expr, as_expr, binary, bitcast, call, cast, const, node

__all__ = [
    "ELEMENTARY", "abs_", "acos", "acosh", "angle", "asin", "asinh", "atan", "atan2", "atanh", "bitcast", "call", "cast", "ceil",
    "complex_", "conj", "const", "copysign", "cos", "cosh", "digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1",
    "floor", "floordiv", "fma", "fmax", "fmin", "fmod", "gelu_gate", "imag", "isfinite", "isinf", "isnan", "lgamma",
    "log", "log10", "log1p", "log2", "logical_not", "maximum", "minimum", "nextafter", "pow_", "real", "round_",
    "rounded", "rsqrt", "sign", "sigmoid", "signbit", "sin", "sinh", "softplus", "sqrt", "tan", "tanh", "trunc", "where",
]  # fmt: skip


def _unary(name: str) -> Any:
    def function(x: Any) -> Expr:
        return node(name, x)

    function.__name__ = name
    return function


def _binary(name: str) -> Any:
    def function(x: Any, y: Any) -> Expr:
        return binary(name, x, y)

    function.__name__ = name
    return function


# Real functions of one number that processors have no instruction for.
ELEMENTARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma",
)  # fmt: skip

exp, exp2, expm1, log, log2, log10, log1p, sin, cos, tan, asin, acos = map(_unary, ELEMENTARY[:12])
atan, sinh, cosh, tanh, asinh, acosh, atanh, erf, erfc, erfinv, lgamma, digamma = map(_unary, ELEMENTARY[12:])
abs_, sign, floor, ceil, trunc, round_ = map(_unary, ("abs", "sign", "floor", "ceil", "trunc", "round"))
sqrt, rsqrt = map(_unary, ("sqrt", "rsqrt"))
isnan, isinf, isfinite, signbit = map(_unary, ("isnan", "isinf", "isfinite", "signbit"))
real, imag, angle = map(_unary, ("real", "imag", "angle"))
logical_not = _unary("logical_not")
minimum, maximum, fmin, fmax = map(_binary, ("minimum", "maximum", "fmin", "fmax"))
fmod, floordiv, atan2, copysign, nextafter = map(_binary, ("fmod", "floordiv", "atan2", "copysign", "nextafter"))
complex_ = _binary("complex")
pow_ = _binary("pow")


def conj(x: Any) -> Expr:
    x = as_expr(x)
    if x.op == "const" and not isinstance(x.args[0], complex):
        return x
    return node("conj", x)


def where(condition: Any, a: Any, b: Any) -> Expr:
    return node("where", condition, a, b)


def fma(a: Any, b: Any, c: Any) -> Expr:
    """a * b + c with one rounding."""
    return node("fma", a, b, c)


def rounded(x: Any, d: dtype | None) -> Expr:
    """Round x to `d`, if that is less precise than the computation: PyTorch's kernels for 16-bit numbers round between some steps."""
    x = as_expr(x)
    return x if d is None or opmath(d) is d or not d.is_floating_point else cast(cast(x, d), opmath(d))


def sigmoid(x: Any) -> Expr:
    x = as_expr(x)
    return 1 / (1 + exp(-x))


def softplus(x: Any) -> Expr:
    """log(1 + exp(x)) without overflow."""
    x = as_expr(x)
    return maximum(x, 0) + log1p(exp(-abs(x)))


def gelu_gate(x: Any) -> Expr:
    """The normal distribution function, gelu's factor on x."""
    return 0.5 * (1 + erf(as_expr(x) * 0.7071067811865476))


def formula_globals() -> dict[str, Any]:
    """Return the names that a user's formula may use without importing them."""
    names = {name: globals()[name] for name in __all__}
    return {**names, "abs": abs, "min": minimum, "max": maximum, "round": round_, "pow": pow_, "pi": math.pi}
