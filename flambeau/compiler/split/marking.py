"""Search for the statements of a function that cannot be recorded, with the reasons."""

from __future__ import annotations

import ast
from typing import Any

from ...core.device import device
from ...core.dtype import dtype
from ...core.tensor import Size, Tensor
from ..state.arguments import ATOMS
from ..state.guards import AutogradItem, Item
from ..state.observer import Observer
from ..state.reach import Reach, Unreachable
from ..state.source import Source
from .splitting import alone, header, marked, statements
from .variables import loads, stores


def unreachable(
    given: Source, objects: list[tuple[str, Any]], observer: Observer, changed: Item | None = None
) -> dict[ast.stmt, str]:
    """Find statements whose state cannot be known or that read changed state, without running anything. `observer` has seen the code
    that ran; the function itself counts only if it also ran recursively."""
    bad: dict[ast.stmt, str] = {}
    ran = observer.besides(given.function).expected
    for s in statements(given.tree.body):
        function = alone(given, s)
        if function is None:
            continue
        try:
            reach = Reach(observer, ran).explore([(given.function.__qualname__, function), *objects])
        except Unreachable as problem:
            bad[s] = str(problem)
            continue
        if changed is not None and any(item.reads(changed) for item in reach.items):
            bad[s] = f"it reads what changes again and again: {changed.difference()}"
    return bad


def users_of(given: Source, names: set[str]) -> dict[ast.stmt, str]:
    """Return the statements that read variables whose numbers differ in each call, with the reason."""
    found = {s: loads(header(s)) & names for s in statements(given.tree.body)}
    return {s: f"the number '{sorted(used)[0]}' is another one in each call" for s, used in found.items() if used}


def makers(given: Source, result: Any) -> dict[ast.stmt, str]:
    """Return the statements that make those parts of the function's result that a recording cannot make again."""
    if is_plain(result):
        return {}
    bad: dict[ast.stmt, str] = {}
    for s in statements(given.tree.body):
        if not isinstance(s, ast.Return) or s.value is None:
            continue
        names = [e.id for e in getattr(s.value, "elts", ()) if isinstance(e, ast.Name)]
        if type(result) is not tuple or len(names) != len(result):
            bad[s] = f"it returns a {type(result).__name__}"
            continue
        kinds = {n: type(v).__name__ for n, v in zip(names, result) if not is_plain(v)}
        for other in statements(given.tree.body):
            made = stores(other) & set(kinds)
            if made:
                bad[other] = f"it makes a {kinds[made.pop()]}"
    return bad


def is_plain(value: Any) -> bool:
    """Return whether a value consists of tensors, plain values and ordinary containers."""
    if type(value) in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_make")):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(map(is_plain, value.values()))
    return type(value) in ATOMS or isinstance(value, (Tensor, Size, dtype, device))


class Marks:
    """Record of what happens between the marks of a function that runs with a mark before every statement."""

    def __init__(self, given: Source):
        self.function, self.statements = marked(given, self.mark)
        self.found: dict[ast.stmt, str] = {}
        self.now = -1
        self.told: set[int] = set()  # what has changed already

    def begin(self, recorder: Any, prepared: Any) -> None:
        self.recorder, self.prepared = recorder, prepared

    def mark(self, number: int) -> None:
        """Note that statement `number` begins: what happened since the last mark was done by the statement before."""
        why = self._new_problem()
        if why and self.now >= 0:
            self.found.setdefault(self.statements[self.now], why)
        self.now = number

    def end(self) -> dict[ast.stmt, str]:
        self.mark(-1)
        return self.found

    def _new_problem(self) -> str:
        problems = self.recorder.problems
        why = problems[0] if problems else ""
        problems.clear()
        for item in [*self.prepared.reach.items, *self.prepared.headers]:
            if id(item) in self.told:
                continue
            if isinstance(item, AutogradItem):
                changed = "its history changed" if item.seen[:-1] != item._state()[:-1] else ""
            else:
                changed = item.difference()
            if changed:
                self.told.add(id(item))
                why = why or f"it changes Python's state: {changed}"
        return why
