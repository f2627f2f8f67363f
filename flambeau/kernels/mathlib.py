"""Mathematical functions as formulas of primitive operations, so that loops over them vectorise on every target.

`lower` rewrites one node. The polynomials are minimax fits (Remez exchange in 50-digit arithmetic, coefficients rounded
one after the other with the rest refitted), made for this library; each table states its interval and error.
"""

from __future__ import annotations

from collections.abc import Callable

from ..core.dtype import dtype
from ..expr.functions import cast
from ..expr.node import Expr
from ..expr.typing import operand_dtype
from . import mathlib_division, mathlib_exp, mathlib_log, mathlib_special, mathlib_trig
from .mathlib_core import FLOAT32, FLOAT64, FORMATS, Format

Lowering = Callable[..., Expr]

_BOTH, _SINGLE = (FLOAT32, FLOAT64), (FLOAT32,)
_TABLE: dict[str, tuple[Lowering, tuple[Format, ...]]] = {
    "exp": (mathlib_exp.exp, _BOTH), "exp2": (mathlib_exp.exp2, _BOTH), "expm1": (mathlib_exp.expm1, _BOTH),
    "sinh": (mathlib_exp.sinh, _BOTH), "cosh": (mathlib_exp.cosh, _BOTH), "tanh": (mathlib_exp.tanh, _BOTH),
    "log": (mathlib_log.log, _BOTH), "log2": (mathlib_log.log2, _BOTH), "log10": (mathlib_log.log10, _BOTH),
    "log1p": (mathlib_log.log1p, _BOTH), "sin": (mathlib_trig.sin, _SINGLE), "cos": (mathlib_trig.cos, _SINGLE),
    "tan": (mathlib_trig.tan, _SINGLE), "asin": (mathlib_trig.asin, _BOTH), "acos": (mathlib_trig.acos, _BOTH),
    "atan": (mathlib_trig.atan, _BOTH), "atan2": (mathlib_trig.atan2, _BOTH), "asinh": (mathlib_log.asinh, _SINGLE),
    "acosh": (mathlib_log.acosh, _SINGLE), "atanh": (mathlib_log.atanh, _SINGLE), "pow": (mathlib_log.pow_, _SINGLE),
    "fmod": (mathlib_division.fmod, _SINGLE), "mod": (mathlib_division.mod, _SINGLE),
    "floordiv": (mathlib_division.floordiv, _SINGLE), "erf": (mathlib_special.erf, _BOTH),
    "erfc": (mathlib_special.erfc, _BOTH), "erfinv": (mathlib_special.erfinv, _BOTH),
    "lgamma": (mathlib_special.lgamma, _SINGLE), "digamma": (mathlib_special.digamma, _BOTH),
}  # fmt: skip


def lower(x: Expr, types: dict[int, dtype]) -> Expr | None:
    """Return the node `x` (for example exp(a)) in primitive operations for its dtype; None if it is one already, or if the C library is the
    better choice. `types` holds the dtypes of its operands."""
    entry = _TABLE.get(x.op)
    if entry is None:
        return None
    function, formats = entry
    d = operand_dtype(x, types)
    f = FORMATS.get(d)
    if f is None:
        return None
    operands = [a if types[id(a)] is d else cast(a, d) for a in x.args]
    if x.op == "pow" and x.args[1].op == "const" and x.args[1].args[0] in range(4, 9):
        by_multiplication = mathlib_log.small_power(operands[0], int(x.args[1].args[0]), f)
        if by_multiplication is not None:
            return by_multiplication
    return function(*operands, f) if f in formats else None
