"""Formulas of operators that work on each row of their operands: sums over the row, and elements computed from them (`Op.rows`).

    form = Rows(input, n)
    x = form.operand(input)
    mean = form.sum(x) / n
    form.store(0, x - mean)

An operand has an element for each element of the rows ("e"), for each row ("r") or for each column ("c")."""

from __future__ import annotations

from typing import Any

from ...core.tensor import numel_of
from ...expr.node import Expr, arg


class Rows:
    """The formulas of one call over rows of `width` elements. arg(k) stands for operand k, arg(-1 - k) for sum k of a row."""

    def __init__(self, like: Any, width: int):
        self.width, self.rows = width, numel_of(like.shape) // width
        self.operands: list[tuple[Any, str]] = []
        self.sums: list[Expr] = []
        self.results: dict[int, tuple[Expr, str]] = {}  # by the position of the result

    def operand(self, t: Any, level: str = "e") -> Expr:
        self.operands.append((t, level))
        return arg(len(self.operands) - 1)

    def sum(self, value: Expr) -> Expr:
        """Return the sum of an expression over the elements of a row."""
        self.sums.append(value)
        return arg(-len(self.sums))

    def store(self, position: int, value: Expr, level: str = "e") -> None:
        """Set result `position` of the call: element by element, row by row, or (level "c") the sum of each column."""
        self.results[position] = (value, level)
