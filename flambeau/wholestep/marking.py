"""Which statements of a function cannot be recorded, and why."""

from __future__ import annotations

import ast
from typing import Any

from ..core.tensor import Tensor
from .guards import AutogradItem
from .reach import Reach, Unreachable
from .source import Source
from .splitting import alone, marked, statements

DIFFERENTIATES = frozenset(("backward", "grad", "autograd", "vjp", "jvp", "jacobian", "hessian"))
HISTORY = "it may differentiate an argument that has a history"


def unreachable(given: Source, objects: list[tuple[str, Any]], history: bool) -> dict[ast.stmt, str]:
    """Statements whose state cannot be known, and, where arguments have a history, those that may differentiate: found without
    running anything."""
    bad: dict[ast.stmt, str] = {}
    for s in statements(given.tree.body):
        function = alone(given, s)
        if function is None:
            continue
        try:
            reach = Reach().explore([(given.function.__qualname__, function), *objects])
        except Unreachable as problem:
            bad[s] = str(problem)
            continue
        if history and reach.names & DIFFERENTIATES:
            bad[s] = HISTORY
    return bad


class Marks:
    """What happens between the marks of a function that runs with one before every statement."""

    def __init__(self, given: Source):
        self.function, self.statements = marked(given, self.mark)
        self.found: dict[ast.stmt, str] = {}
        self.now = -1
        self.told: set[int] = set()  # what has changed already

    def begin(self, recorder: Any, prepared: Any, leaves: list[Tensor]) -> None:
        self.recorder, self.prepared, self.leaves = recorder, prepared, leaves

    def mark(self, number: int) -> None:
        """A statement begins: what has happened since the last mark is the doing of the one before."""
        why = self._news()
        if why and self.now >= 0:
            self.found.setdefault(self.statements[self.now], why)
        self.now = number

    def end(self) -> dict[ast.stmt, str]:
        self.mark(-1)
        return self.found

    def _news(self) -> str:
        problems = self.recorder.problems
        why = problems[0] if problems else ""
        problems.clear()
        for item in [*self.prepared.reach.items, *self.prepared.headers]:
            if id(item) in self.told:
                continue
            if isinstance(item, AutogradItem):
                changed = "its history changed" if item.seen[:5] != item._state()[:5] else ""
            else:
                changed = item.difference()
            if changed:
                self.told.add(id(item))
                why = why or f"it changes Python's state: {changed}"
        for t in self.leaves:
            if id(t) not in self.told and t.grad is not None:
                self.told.add(id(t))
                why = why or HISTORY
        return why


__all__ = ["DIFFERENTIATES", "HISTORY", "Marks", "unreachable"]
