"""Formulas that are parts of operators (mostly derivatives) as calls of PyTorch's operators, one per step."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ...core.dtype import bool_
from ...core.tensor import Tensor
from ...expr.node import Expr, arg, as_expr, const
from ...kernels.formula_function import FormulaFunction
from ...ops.machinery.reduction import mean_of
from .overloads import aten

_NAMES = {
    "floordiv": "floor_divide", "mod": "remainder", "shl": "bitwise_left_shift", "shr": "bitwise_right_shift", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_not", "signbit": "signbit",
}  # fmt: skip
_LIMITS = {"maximum": "clamp_min", "minimum": "clamp_max"}  # where one of the two is a number
_FOR_REAL: dict[str, Callable] = {"conj": lambda x: x, "real": lambda x: x, "imag": lambda x: 0}  # of a real tensor


class NoStep(NotImplementedError):
    """A step of a formula has no counterpart among PyTorch's operators."""


def recorded(recorder: Any, op: Any, function: Callable, operands: tuple, options: dict[str, Any]) -> Any:
    """Make the calls of a formula, and return the result, in the dtype of the formula's own kernel."""
    pointwise = op.impl
    plain = recorder.unseen(functools.partial(function, *operands, **options))
    params = options.get("params", ())
    if not params and pointwise.parameters:
        given = op.bind(operands, options)
        operands = tuple(given[name] for name in pointwise.operand_names)
        params = [given[name] for name, _ in pointwise.parameters]
    # None and integers stay unchanged: formulas test for them, and compute with them.
    symbols = [arg(i) for i in range(len(operands))] + [
        p if p is None or isinstance(p, int) else const(p) for p in params
    ]
    result = (Steps if op.namespaces else DerivativeSteps)(operands).value(pointwise.evaluate(symbols, plain.dtype))
    if not isinstance(result, Tensor):
        result = aten.full.default(list(plain.shape), result, dtype=plain.dtype, device=plain.device, pin_memory=False)
    if result.dtype is not plain.dtype:
        result = aten._to_copy.default(result, dtype=plain.dtype)
    if result.shape != plain.shape:
        result = aten.expand.default(result, list(plain.shape))
    return result


def reduced(recorder: Any, op: Any, function: Callable, operands: tuple, options: dict[str, Any]) -> Any:
    """Make the calls of a formula whose values are joined, and return the result; `operands` are tensors and numbers."""
    reduction = op.impl
    joined = {("sum", None): aten.sum, ("sum", mean_of): aten.mean, ("any", None): aten.any}
    whole = joined.get((reduction.combine, reduction.final))
    if whole is None or options.get("requested") is not None:
        return recorder.unknown(op, function, operands, options)
    symbols = [arg(i) if isinstance(x, Tensor) else const(x) for i, x in enumerate(operands)]
    values = Steps(operands).value(as_expr(reduction.formula(*symbols)))
    dim, keepdim = options.get("dim"), options.get("keepdim", False)
    if dim is None and not keepdim:
        result = whole(values)
    else:
        dims = range(len(values.shape)) if dim is None else [dim] if isinstance(dim, int) else dim
        result = whole(values, list(dims), keepdim)
    kind = reduction.rule(reduction, operands[0].dtype, None)[2]
    return result if result.dtype is kind else aten._to_copy.default(result, dtype=kind)


class Steps:
    """Values of expressions, each computed once by operators of `calls`: PyTorch's, or placeholders for them if a call is only recorded.
    Values of the class `tensors` are tensors there."""

    def __init__(self, operands: Sequence[Any], calls: Any = aten, tensors: type = Tensor) -> None:
        self.operands, self.aten, self.tensors = operands, calls, tensors
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
            return self.aten._to_copy.default(inner, dtype=x.args[1]) if self._is_tensor(inner) else inner
        if x.op == "call" and isinstance(x.args[0], FormulaFunction) and x.args[0].aten:
            name, *before = x.args[0].aten
            return getattr(self.aten, name)(*before, *map(self.value, x.args[1:]))
        if not all(isinstance(a, Expr) for a in x.args):
            raise NoStep(f"the step {x.op} of a formula has no counterpart among PyTorch's operators")
        values = [self.value(a) for a in x.args]
        if not any(map(self._is_tensor, values)):
            return _number_step(x.op, values)
        if x.op == "where":
            return self._where(*values)
        if x.op == "fma":
            return self._binary_step("add", self._binary_step("mul", values[0], values[1]), values[2])
        if x.op in _FOR_REAL and not values[0].dtype.is_complex:
            return _FOR_REAL[x.op](values[0])
        if x.op in ("and", "or") and any(isinstance(v, bool) for v in values):
            return _logical_with_bool(x.op, *values)
        if x.op in _LIMITS and not all(map(self._is_tensor, values)):
            value, limit = values if self._is_tensor(values[0]) else reversed(values)
            return getattr(self.aten, _LIMITS[x.op])(value, limit)
        if len(values) == 2 and not self._is_tensor(values[0]):
            return self._binary_step(x.op, *values)
        name = "sgn" if x.op == "sign" and values[0].dtype.is_complex else _NAMES.get(x.op, x.op)
        return getattr(self.aten, name)(*values)

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, self.tensors)

    def _where(self, condition: Any, yes: Any, no: Any) -> Any:
        if isinstance(condition, bool):
            return yes if condition else no
        if condition.dtype is not bool_:
            condition = self.aten.ne(condition, 0)
        overload = {(1, 1): "self", (0, 1): "ScalarSelf", (1, 0): "ScalarOther", (0, 0): "Scalar"}
        chosen = overload[(int(self._is_tensor(yes)), int(self._is_tensor(no)))]
        return getattr(self.aten.where, chosen)(condition, yes, no)

    def _binary_step(self, op: str, left: Any, right: Any) -> Any:
        if self._is_tensor(left):
            return getattr(self.aten, op)(left, right)
        return self._from_number(op, left, right) if self._is_tensor(right) else _number_step(op, [left, right])

    def _from_number(self, op: str, number: Any, value: Any) -> Any:
        """Compute an operator with a number as left operand."""
        if op in ("add", "mul"):
            return getattr(self.aten, op)(value, number)
        if op == "sub":
            return self.aten.rsub.Scalar(value, number)
        if op == "div":
            inverse = self.aten.reciprocal.default(value)
            return (
                inverse if isinstance(number, (int, float)) and number == 1 else self.aten.mul.Tensor(inverse, number)
            )
        if op == "pow":
            return self.aten.pow.Scalar(number, value)
        mirrored = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
        if op in mirrored:
            return getattr(self.aten, mirrored[op])(value, number)
        raise NoStep(
            f"the step {op} of a formula, with a number on the left, has no counterpart among PyTorch's operators"
        )


class DerivativeSteps(Steps):
    """Steps of a derivative, which PyTorch writes in C++, where numbers stay numbers."""

    def compute(self, x: Expr) -> Any:
        if x.op == "sign":
            return self.aten.sgn(self.value(x.args[0]))
        if x.op == "neg" and x.args[0].op == "mul":  # written as `-grad * factor`
            factor, left = map(self.value, reversed(x.args[0].args))
            if self._is_tensor(factor) and self._is_tensor(left):
                return self.aten.mul(self.aten.neg(left), factor)
        if x.op == "where" and x.args[2].op == "const" and self._is_tensor(self.value(x.args[1])):
            yes, zero = self.value(x.args[1]), self._scalar(x.args[2].args[0], self.value(x.args[1]))
            return super()._where(self.value(x.args[0]), yes, zero)
        for operand in reversed(() if x.op in ("cast", "call") else x.operands):
            self.value(operand)  # C++ evaluates arguments from the last to the first
        if x.op in ("add", "sub", "mul", "div") and not self._is_tensor(self.value(x.args[1])):
            left, number = map(self.value, x.args)
            if self._is_tensor(left):
                return getattr(self.aten, x.op).Scalar(left, number)
        return super().compute(x)

    def _where(self, condition: Any, *values: Any) -> Any:
        like = next((v for v in values if self._is_tensor(v)), None)
        if like is not None and not isinstance(condition, bool):
            values = tuple(v if self._is_tensor(v) else self._scalar(v, like) for v in values)
        return super()._where(condition, *values)

    def _scalar(self, value: Any, like: Any) -> Any:
        return self.aten.scalar_tensor(value, dtype=like.dtype, device=like.device)

    def _from_number(self, op: str, number: Any, value: Any) -> Any:
        if op in ("add", "mul"):
            return getattr(self.aten, op).Scalar(value, number)
        return super()._from_number(op, number, value)


def _number_step(op: str, values: list[Any]) -> Any:
    """Compute an arithmetic step between numbers of a formula."""
    if op == "where":
        return values[1] if values[0] else values[2]
    found = getattr(math, op, None) or getattr(operator, {"div": "truediv", "not": "not_"}.get(op, op), None)
    if found is None:
        raise NoStep(f"the step {op} of a formula has no counterpart among PyTorch's operators")
    return found(*values)


def _logical_with_bool(op: str, left: Any, right: Any) -> Any:
    known, other = (left, right) if isinstance(left, bool) else (right, left)
    return other if known is (op == "and") else known
