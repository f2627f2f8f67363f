"""Calls of a user's formula operator in compiled code: the formula is expanded into operators of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.dtype import BY_NAME, dtype
from ..expr.node import PREDICATES, arg
from ..library.aten.formulas import Steps
from .ir import Value
from .matching import Named
from .source import Range, error
from .types import FLOAT, INT
from .values import SimpleValue, Sugared


class FormulaValue(Sugared):
    """A user's operator that is defined by a formula; a call inserts the formula's operators."""

    kind = "function"

    def __init__(self, op: Any):
        self.op = op

    def call(self, place: Range | None, m: Any, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        formula = self.op.impl
        try:
            given = self.op.bind(tuple(a.value for a in args), {str(k.name): k.value for k in kwargs})
        except TypeError as problem:
            raise error(place, str(problem)) from None
        names = [*formula.operand_names, *(name for name, _ in formula.parameters)]
        operands = [_operand(m, place, given[name]) for name in names]
        root = formula.evaluate([arg(i) for i in range(len(names))], BY_NAME["float32"])
        found = Steps(operands, _Calls(m, place), _Step).value(root)
        return SimpleValue(_value(m, place, found))


class _Step:
    """An operand of a formula: a tensor of the graph."""

    def __init__(self, value: Any):
        self.value = value

    @property
    def dtype(self) -> dtype:
        """Return bool for the result of a comparison and float32 for all others: the formula asks only to tell these apart."""
        made = self.value.node.kind_
        return BY_NAME["bool" if made in _COMPARISONS else "float32"]


_COMPARISONS = frozenset(f"aten::{name}" for name in PREDICATES)


class _Calls:
    """Stand-in for `torch.ops.aten` whose calls become nodes."""

    def __init__(self, m: Any, place: Range | None, symbol: str = ""):
        self.m, self.place, self.symbol = m, place, symbol

    def __getattr__(self, name: str) -> Callable:
        return self if self.symbol else _Calls(self.m, self.place, f"aten::{name}")

    def __call__(self, *args: Any) -> _Step:
        given = [Named(_value(self.m, self.place, a), self.place) for a in args]
        return _Step(self.m.call_operator(self.place, self.symbol, given, []))


def _operand(m: Any, place: Range | None, given: Any) -> Any:
    """Return an operand of a formula: a number known at compile time, or a tensor; other numbers become tensors without dimensions."""
    if not isinstance(given, Value):
        return given
    known, number = m.known(given)
    if known and type(number) in (int, float):
        return number
    if given.type in (INT, FLOAT):
        wide = Named(m.constant(BY_NAME["float64"].number, INT, place), place, "dtype")
        given = m.call_operator(place, "aten::scalar_tensor", [Named(given, place)], [wide])
    return _Step(given)


def _value(m: Any, place: Range | None, thing: Any) -> Any:
    if isinstance(thing, _Step):
        return thing.value
    return m.constant(thing, INT if type(thing) is int else FLOAT, place)
