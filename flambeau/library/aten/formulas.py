"""Formulas that are parts of operators (derivatives, above all) as calls of PyTorch's operators, one per step."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from ...core.dtype import bool_
from ...core.tensor import Tensor
from ...expr.node import Expr, arg, const
from .overloads import aten

_NAMES = {
    "floordiv": "floor_divide", "mod": "remainder", "shl": "bitwise_left_shift", "shr": "bitwise_right_shift", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_not", "signbit": "signbit",
}  # fmt: skip
_LIMITS = {"maximum": "clamp_min", "minimum": "clamp_max"}  # where one of the two is a number
_SAME_IF_REAL = ("conj", "real")


def recorded(recorder: Any, op: Any, function: Callable, operands: tuple, options: dict[str, Any]) -> Any:
    """Make the calls of a formula, and return the result; the dtype is what the formula's own kernel gives."""
    pointwise = op.impl
    plain = recorder.unseen(functools.partial(function, *operands, **options))
    params = options.get("params", ())
    symbols = [arg(i) for i in range(len(operands))] + [const(p) for p in params]
    result = _Steps(operands).value(pointwise.evaluate(symbols, plain.dtype))
    if not isinstance(result, Tensor):
        result = aten.full.default(list(plain.shape), result, dtype=plain.dtype, device=plain.device, pin_memory=False)
    if result.dtype is not plain.dtype:
        result = aten._to_copy.default(result, dtype=plain.dtype)
    if result.shape != plain.shape:
        result = aten.expand.default(result, list(plain.shape))
    return result


class _Steps:
    """Values of expressions, each computed once."""

    def __init__(self, operands: tuple) -> None:
        self.operands = operands
        self.known: dict[Expr, Any] = {}

    def value(self, x: Expr) -> Any:
        if x not in self.known:
            self.known[x] = self.compute(x)
        return self.known[x]

    def compute(self, x: Expr) -> Any:
        if x.op == "arg":
            return self.operands[x.args[0]]
        if x.op == "const":
            return x.args[0]
        if x.op == "cast":
            inner = self.value(x.args[0])
            return aten._to_copy.default(inner, dtype=x.args[1]) if isinstance(inner, Tensor) else inner
        if not all(isinstance(a, Expr) for a in x.args):
            raise NotImplementedError(f"the step {x.op} of a formula has no counterpart among PyTorch's operators")
        values = [self.value(a) for a in x.args]
        if not any(isinstance(v, Tensor) for v in values):
            return _of_numbers(x.op, values)
        if x.op == "where":
            return _where(*values)
        if x.op == "fma":
            return _both("add", _both("mul", values[0], values[1]), values[2])
        if x.op in _SAME_IF_REAL and not values[0].dtype.is_complex:
            return values[0]
        if x.op in ("and", "or") and any(isinstance(v, bool) for v in values):
            return _with_truth(x.op, *values)
        if x.op in _LIMITS and not all(isinstance(v, Tensor) for v in values):
            value, limit = values if isinstance(values[0], Tensor) else reversed(values)
            return getattr(aten, _LIMITS[x.op])(value, limit)
        if len(values) == 2 and not isinstance(values[0], Tensor):
            return _both(x.op, *values)
        name = _NAMES.get(x.op, x.op)
        if name == "pow":
            return aten.pow(*values)
        return getattr(aten, name)(*values)


def _of_numbers(op: str, values: list[Any]) -> Any:
    """A step between numbers."""
    if op == "where":
        return values[1] if values[0] else values[2]
    found = getattr(math, op, None) or getattr(operator, {"div": "truediv", "not": "not_"}.get(op, op), None)
    if found is None:
        raise NotImplementedError(f"the step {op} of a formula has no counterpart among PyTorch's operators")
    return found(*values)


def _where(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, bool):
        return yes if condition else no
    if condition.dtype is not bool_:
        condition = aten.ne(condition, 0)
    overload = {(1, 1): "self", (0, 1): "ScalarSelf", (1, 0): "ScalarOther", (0, 0): "Scalar"}
    return getattr(aten.where, overload[(int(isinstance(yes, Tensor)), int(isinstance(no, Tensor)))])(
        condition, yes, no
    )


def _with_truth(op: str, left: Any, right: Any) -> Any:
    known, other = (left, right) if isinstance(left, bool) else (right, left)
    return other if known is (op == "and") else known


def _both(op: str, left: Any, right: Any) -> Any:
    if isinstance(left, Tensor):
        return getattr(aten, op)(left, right)
    return _from_number(op, left, right) if isinstance(right, Tensor) else _of_numbers(op, [left, right])


def _from_number(op: str, number: Any, value: Any) -> Any:
    """A number on the left of an operator."""
    if op in ("add", "mul"):
        return getattr(aten, op)(value, number)
    if op == "sub":
        return aten.rsub.Scalar(value, number)
    if op == "div":
        inverse = aten.reciprocal.default(value)
        return inverse if number == 1 else aten.mul.Tensor(inverse, number)
    if op == "pow":
        return aten.pow.Scalar(number, value)
    mirrored = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
    if op in mirrored:
        return getattr(aten, mirrored[op])(value, number)
    raise NotImplementedError(
        f"the step {op} of a formula, with a number on the left, has no counterpart among PyTorch's operators"
    )
