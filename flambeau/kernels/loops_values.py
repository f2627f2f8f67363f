"""Typed values of the loop-kernel front end: promotion of dtypes in an expression, and refused conversions.

A value is either a `Value` (computed at run time) or any Python object known when the kernel is specialised: numbers, None, strings, dtypes,
buffers, functions. Constant numbers are weak, as are scalar float parameters and quotients of integers: they take the dtype of the other
operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core import dtype as dt
from ..core.dtype import dtype, opmath
from ..expr.node import Expr, cast, const, walk
from . import ir
from .loops_language import compute_dtype


class Mismatch(TypeError):
    """Raised for operands whose dtypes do not fit; the front end adds the place."""


class Value(NamedTuple):
    expr: Expr
    dtype: dtype
    weak: bool = False


@dataclass
class Local:
    """A variable of the kernel: its dtype is fixed by the first assignment."""

    name: str
    dtype: dtype
    weak: bool
    private_to: object = None  # the parallel loop whose iterations each have their own copy

    @property
    def value(self) -> Value:
        return Value(ir.var(self.name, self.dtype), self.dtype, self.weak)


def is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex))


def as_value(x: Any) -> Value:
    """Return a run-time value or a constant number as a `Value`."""
    if isinstance(x, Value):
        return x
    if isinstance(x, bool):
        return Value(const(x), dt.bool_, True)
    if isinstance(x, int):
        return Value(const(x), dt.int64, True)
    if isinstance(x, float):
        return Value(const(x), dt.float64, True)
    if isinstance(x, complex):
        return Value(const(x), dt.complex128, True)
    raise Mismatch(f"a number is needed here, not {describe(x)}")


def describe(x: Any) -> str:
    if isinstance(x, Value):
        return f"a {x.dtype.name} value"
    if isinstance(x, ir.Buffer):
        return f"the buffer '{x.name}' (index it to get an element)"
    if isinstance(x, tuple):
        return f"a tuple of {len(x)}"
    return repr(x)


def converted(v: Value, to: dtype) -> Expr:
    """Return the expression of `v` in dtype `to`. Constants are written in that dtype, so that no conversion is emitted."""
    if v.expr.op == "const":
        return const(_constant(v.expr.args[0], to))
    return v.expr if v.dtype is to else cast(v.expr, to)


def _constant(number: Any, to: dtype) -> Any:
    if to is dt.bool_:
        return bool(number)
    if to.category == 1:
        return int(number)
    return float(number) if to.is_floating_point else number


def join(values: list[Value]) -> tuple[dtype, bool]:
    """Return the common dtype of operands, and whether the result is weak."""
    top = max(v.dtype.category for v in values)
    same = [v for v in values if v.dtype.category == top]
    strong = [v.dtype for v in same if not v.weak]
    if not strong:
        if top == 3:
            floats = [v.dtype for v in values if v.dtype.category == 2 and not v.weak]
            return (floats[0].to_complex(), False) if floats else (dt.complex128, True)
        return same[0].dtype, True
    if top < 2:
        return _join_integers(strong) if top == 1 else dt.bool_, False
    width = max(d.itemsize for d in strong)
    result = next(d for d in strong if d.itemsize == width)
    if top == 3 and any(v.dtype is dt.float64 and not v.weak for v in values):
        result = dt.complex128
    return result, False


def _join_integers(kinds: list[dtype]) -> dtype:
    result = kinds[0]
    for other in kinds[1:]:
        if other is result:
            continue
        if dt.uint64 in (result, other):
            signed = other if result is dt.uint64 else result
            if signed.is_signed:
                raise Mismatch(f"uint64 and {signed.name} do not mix: convert one with u64(...) or i64(...)")
            result = dt.uint64
        elif result.is_signed == other.is_signed:
            result = result if result.itemsize >= other.itemsize else other
        else:
            result = dt.int64
    return result


def arithmetic_operand(v: Value) -> Value:
    """Return an operand of arithmetic, a bool as 0 or 1."""
    return Value(converted(v, dt.int64), dt.int64, v.weak) if v.dtype is dt.bool_ else v


def truth(v: Value) -> Value:
    if v.dtype is dt.bool_:
        return v
    return Value(v.expr != const(0 if v.dtype.category == 1 else 0.0), dt.bool_)


def loaded(buffer: ir.Buffer, index: Expr) -> Value:
    element = ir.load(buffer, index)
    kind = compute_dtype(buffer.dtype)
    return Value(element if opmath(buffer.dtype) is kind else cast(element, kind), kind)


def storable(v: Value, buffer: ir.Buffer) -> Expr:
    """Return `v` converted for a store to a buffer: numbers convert upwards, and floats to any width."""
    to = buffer.dtype
    if v.dtype.category > to.category and not (v.dtype is dt.int64 and to is dt.bool_ and v.weak):
        raise Mismatch(f"a {v.dtype.name} value does not go into a {to.name} buffer: write like({buffer.name}, ...)")
    return converted(v, opmath(to))


def assignable(v: Value, to: dtype, weak: bool, name: str) -> Expr:
    """Return `v` converted for a local that has dtype `to` since its first assignment."""
    if weak and not v.weak and to.is_floating_point and v.dtype.category >= 2:
        raise Mismatch(
            f"'{name}' started as a Python number and now gets a {v.dtype.name} value: give it a dtype from the start, "
            f"for example {name} = like(buffer, 0) or f64(0)"
        )
    wider = v.dtype.category < to.category or (v.dtype.category == to.category and v.dtype.itemsize <= to.itemsize)
    if to.category == 1 and v.dtype.category == 1 and not v.weak:
        wider = v.dtype is to or to is dt.int64 and v.dtype is not dt.uint64
    if to is dt.bool_ and v.dtype is not dt.bool_:
        wider = False
    if not wider and not (v.weak and v.dtype.category <= to.category):
        raise Mismatch(f"'{name}' is {to.name} since its first assignment and cannot become {v.dtype.name}: convert it")
    return converted(v, to)


def is_safe(expr: Expr) -> bool:
    """Return whether an expression may be evaluated needlessly: no memory is read and no integer division can fail."""
    return not any(
        x.op == "load" or (x.op in ("floordiv", "mod") and not (x.args[1].op == "const" and x.args[1].args[0]))
        for x in walk((expr,))
    )
