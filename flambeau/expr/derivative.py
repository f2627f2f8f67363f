"""Reverse-mode differentiation of formulas: one short table, and the walk that applies it.

A rule gets the cotangent `g`, the node's own value `y` and its operands, and returns one cotangent per operand
(None where none flows). `conj` makes the rules right for complex numbers too; on real dtypes it costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .functions import (
    complex_,
    conj,
    cos,
    cosh,
    digamma,
    exp,
    imag,
    log,
    real,
    rsqrt,
    sign,
    sin,
    sinh,
    trunc,
    where,
)
from .node import PREDICATES, Expr, binary, const, walk

Rule = Callable[..., tuple[Any, ...]]

_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)


def _pow_rule(g: Expr, y: Expr, a: Expr, b: Expr) -> tuple[Any, ...]:
    if b.op == "const":
        n = b.args[0]
        if n == 2:
            return g * conj(2 * a), None
        return g * conj(where(b == 0, 0, b * a ** const(n - 1))), None
    base = where(b == 0, 0, b * a ** (b - 1))
    exponent = where((a == 0) & (real(b) >= 0), 0, y * log(a))
    return g * conj(base), g * conj(exponent)


def _tie(g: Expr, a: Expr, b: Expr, a_loses: Expr, b_loses: Expr) -> tuple[Any, ...]:
    """Return the gradients of max/min: the winner gets the gradient, a tie splits it."""
    half = where(a == b, g * 0.5, g)
    return where(a_loses, 0, half), where(b_loses, 0, half)


def _abs_rule(g: Expr, y: Expr, a: Expr) -> tuple[Any, ...]:
    return (real(g) * sign(a),)


def _complex_sign_rule(g: Expr, y: Expr, a: Expr) -> tuple[Any, ...]:
    """Return the gradient of a / |a|: only the part of g perpendicular to a counts."""
    return (where(a == 0, 0, (g - real(conj(y) * g) * y) / abs(a)),)


def _complex_angle_rule(g: Expr, y: Expr, a: Expr) -> tuple[Any, ...]:
    size = abs(a)
    return (where(a == 0, 0, real(g) * complex_(-imag(a), real(a)) / (size * size)),)


RULES: dict[str, Rule] = {
    "add": lambda g, y, a, b: (g, g),
    "sub": lambda g, y, a, b: (g, -g),
    "mul": lambda g, y, a, b: (g * conj(b), g * conj(a)),
    "div": lambda g, y, a, b: (g / conj(b), -g * conj((a / b) / b)),  # b * b overflows long before the gradient does
    "neg": lambda g, y, a: (-g,),
    "abs": _abs_rule,
    "pow": _pow_rule,
    "fma": lambda g, y, a, b, c: (g * conj(b), g * conj(a), g),
    "sqrt": lambda g, y, a: (g / conj(2 * y),),
    "rsqrt": lambda g, y, a: (g * conj(-0.5 * y * y * y),),
    "exp": lambda g, y, a: (g * conj(y),),
    "exp2": lambda g, y, a: (g * conj(y * math.log(2)),),
    "expm1": lambda g, y, a: (g * conj(y + 1),),
    "log": lambda g, y, a: (g / conj(a),),
    "log2": lambda g, y, a: (g / conj(a * math.log(2)),),
    "log10": lambda g, y, a: (g / conj(a * math.log(10)),),
    "log1p": lambda g, y, a: (g / conj(a + 1),),
    "sin": lambda g, y, a: (g * conj(cos(a)),),
    "cos": lambda g, y, a: (g * conj(-sin(a)),),
    "tan": lambda g, y, a: (g * conj(1 + y * y),),
    "asin": lambda g, y, a: (g * conj(rsqrt(1 - a * a)),),
    "acos": lambda g, y, a: (g * conj(-rsqrt(1 - a * a)),),
    "atan": lambda g, y, a: (g / conj(1 + a * a),),
    "sinh": lambda g, y, a: (g * conj(cosh(a)),),
    "cosh": lambda g, y, a: (g * conj(sinh(a)),),
    "tanh": lambda g, y, a: (g * conj(1 - y * y),),
    "asinh": lambda g, y, a: (g * conj(rsqrt(1 + a * a)),),
    "acosh": lambda g, y, a: (g * rsqrt(a * a - 1),),
    "atanh": lambda g, y, a: (g / conj(1 - a * a),),
    "erf": lambda g, y, a: (g * (_TWO_OVER_SQRT_PI * exp(-a * a)),),
    "erfc": lambda g, y, a: (g * (-_TWO_OVER_SQRT_PI * exp(-a * a)),),
    "erfinv": lambda g, y, a: (g * (0.5 * math.sqrt(math.pi) * exp(y * y)),),
    "lgamma": lambda g, y, a: (g * digamma(a),),
    "atan2": lambda g, y, a, b: (g * b / (a * a + b * b), -g * a / (a * a + b * b)),
    "maximum": lambda g, y, a, b: _tie(g, a, b, a < b, b < a),
    "minimum": lambda g, y, a, b: _tie(g, a, b, a > b, b > a),
    "fmax": lambda g, y, a, b: (where((a >= b) | (b != b), g, 0), where((a >= b) | (b != b), 0, g)),
    "fmin": lambda g, y, a, b: (where((a <= b) | (b != b), g, 0), where((a <= b) | (b != b), 0, g)),
    "fmod": lambda g, y, a, b: (g, -g * trunc(a / b)),
    "mod": lambda g, y, a, b: (g, -g * (a // b)),
    "copysign": lambda g, y, a, b: (where(a == 0, 0, g * (y / a)), const(0)),
    "where": lambda g, y, c, a, b: (None, where(c, g, 0), where(c, 0, g)),
    "conj": lambda g, y, a: (conj(g),),
    "real": lambda g, y, a: (complex_(real(g), const(0)),),
    "imag": lambda g, y, a: (complex_(const(0), real(g)),),
    "complex": lambda g, y, a, b: (real(g), imag(g)),
}

# Rules that hold in complex formulas only: on real numbers these functions are flat, or have a derivative where they have no value.
COMPLEX_RULES: dict[str, Rule] = {
    "sign": _complex_sign_rule,
    "angle": _complex_angle_rule,
    "acosh": lambda g, y, a: (g * conj(rsqrt(a - 1) * rsqrt(a + 1)),),
}

# Piecewise constant functions: the derivative is zero wherever it exists.
FLAT = frozenset({"floor", "ceil", "trunc", "round", "sign", "angle", "floordiv"})
# No derivative flows: results are not numbers on a continuum.
BLOCKED = PREDICATES | {"and", "or", "xor", "not", "shl", "shr", "bitcast", "nextafter"}


def _operand_cotangents(x: Expr, g: Expr, in_complex: bool) -> tuple[Any, ...]:
    if g.op == "const" and g.args[0] == 0 and x.op not in BLOCKED:  # of a flat function: 0 / 0 is not zero
        return tuple(g for a in x.args if isinstance(a, Expr))
    if in_complex and x.op in COMPLEX_RULES:
        return COMPLEX_RULES[x.op](g, x, *x.args)
    if x.op == "cast":
        return (g,)
    if x.op == "call":
        return x.args[0].pullback(g, x, *x.args[1:])
    if x.op in FLAT:
        return tuple(const(0) for _ in x.args)
    if x.op in BLOCKED:
        return tuple(None for _ in x.args)
    if x.op not in RULES:
        raise NotImplementedError(f"the derivative of '{x.op}' is not implemented")
    return RULES[x.op](g, x, *x.args)


def pullback(root: Expr, seed: Expr, wanted: tuple[Expr, ...], in_complex: bool = False) -> tuple[Expr | None, ...]:
    """Return the cotangents of `wanted` (leaves of `root`) given the cotangent `seed` of `root`. `in_complex` says that the formula is
    evaluated on complex numbers."""
    order = list(walk((root,)))
    needed = {id(w) for w in wanted}
    for x in order:  # only walk back along paths that reach a wanted leaf
        if any(isinstance(a, Expr) and id(a) in needed for a in x.args):
            needed.add(id(x))
    found: dict[int, Expr] = {id(root): seed}
    for x in reversed(order):
        g = found.get(id(x))
        if g is None or id(x) not in needed or x.op in ("arg", "const"):
            continue
        operands = [a for a in x.args if isinstance(a, Expr)]
        for operand, share in zip(operands, _operand_cotangents(x, g, in_complex)):
            if share is not None and id(operand) in needed:
                before = found.get(id(operand))
                found[id(operand)] = share if before is None else binary("add", before, share)
    return tuple(found.get(id(w)) for w in wanted)
