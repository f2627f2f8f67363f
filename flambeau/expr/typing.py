"""Dtypes of expressions. Kernels load half-width floats as float32, so a formula sees bool, integers, float32, float64 and complex; constants
take the dtype of the other operands."""

from __future__ import annotations

from ..core import dtype as dt
from ..core.dtype import dtype, opmath
from .functions import ELEMENTARY
from .node import PREDICATES, Expr, walk

# Functions whose result is floating point whatever they are given.
_FLOAT_RESULT = frozenset((*ELEMENTARY, "sqrt", "rsqrt", "atan2", "div"))


def _weak_dtype(value: object) -> dtype:
    if isinstance(value, bool):
        return dt.bool_
    if isinstance(value, int):
        return dt.int64
    return dt.complex128 if isinstance(value, complex) else dt.float64


def _join(a: dtype, b: dtype) -> dtype:
    """Return the common dtype of two operands of one node: the higher category, then the wider."""
    if a is b:
        return a
    if a.category != b.category:
        high, low = (a, b) if a.category > b.category else (b, a)
        if high.is_complex and low is dt.float64:
            return dt.complex128
        return high
    return a if a.itemsize >= b.itemsize else b


def join_operands(operands: list[Expr], types: dict[int, dtype]) -> dtype:
    """Return the common dtype of the operands of a node; constants only count if there is nothing else."""
    strong = [types[id(a)] for a in operands if a.op != "const"]
    if not strong:
        strong = [types[id(a)] for a in operands]
    result = strong[0]
    for t in strong[1:]:
        result = _join(result, t)
    for a in operands:  # 1.5 * int_element needs a float; 1j * float_element a complex
        if a.op == "const" and _weak_dtype(a.args[0]).category > result.category:
            weak = _weak_dtype(a.args[0])
            floating = result if result.is_floating_point else dt.float32
            result = floating.to_complex() if weak.is_complex else floating if weak.is_floating_point else weak
    return result


def operand_dtype(x: Expr, types: dict[int, dtype]) -> dtype:
    """Return the dtype that the operands of `x` are converted to before it is applied (cast, call and leaves excepted)."""
    operands = [a for a in x.args if isinstance(a, Expr)]
    if x.op == "where":
        operands = operands[1:]
    joined = join_operands(operands, types)
    if x.op in _FLOAT_RESULT and joined.category < 2:
        return dt.float32
    return joined


def infer(roots: tuple[Expr, ...], arg_dtypes: tuple[dtype, ...]) -> dict[int, dtype]:
    """Return the dtype of every node, keyed by id(node). `arg_dtypes` are the dtypes in memory."""
    types: dict[int, dtype] = {}
    for x in walk(roots):
        types[id(x)] = node_dtype(x, arg_dtypes, types)
    return types


def node_dtype(x: Expr, arg_dtypes: tuple[dtype, ...], types: dict[int, dtype]) -> dtype:
    if x.op == "arg":
        return opmath(arg_dtypes[x.args[0]])
    if x.op == "const":
        return _weak_dtype(x.args[0])
    if x.op == "var":  # a local variable of a loop nest
        return x.args[1]
    if x.op == "load":
        return opmath(x.args[0].dtype)
    if x.op in ("cast", "bitcast"):
        return opmath(x.args[1])
    if x.op in PREDICATES:
        return dt.bool_
    if x.op == "call":
        return join_operands([a for a in x.args if isinstance(a, Expr)], types)
    joined = operand_dtype(x, types)
    if x.op in ("real", "imag", "abs", "angle"):
        return joined.to_real()
    if x.op == "complex":
        return joined.to_complex()
    return joined
