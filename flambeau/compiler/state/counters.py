"""Numbers that a function only counts up or down: `self.calls += 1`.

Such a number decides nothing, because no code reads it but to add to it. So it is not guarded, and a replay adds to it what the recorded call
has added. The source of all reachable code decides whether a number is of this kind."""

from __future__ import annotations

import ast
import re
import types
from typing import Any

from . import source
from .guards import CellItem, DictItem, Item
from .reach import Reach

_STEPS = (ast.Add, ast.Sub)


class CountedItem(DictItem):
    """Guard of the entries of a dict; of numbers that are only counted only that they are integers."""

    __slots__ = ("before",)

    def __init__(self, item: DictItem, counted: list[str]):
        super().__init__(item.what, item.held, frozenset(item.names).difference(counted))
        self.before = {n: item.held[n] for n in counted}

    def difference(self) -> str:
        other = next((n for n in self.before if type(self.held.get(n)) is not int), None)
        return f"{self.what}[{other!r}] is no integer any more" if other is not None else super().difference()

    def steps(self) -> list[tuple[Any, str, int]]:
        return [(self.held, n, self.held[n] - old) for n, old in self.before.items() if self.held[n] != old]


class CountedCell(CellItem):
    """A variable of an enclosing function that is only counted."""

    __slots__ = ()

    def renew(self) -> None:
        """Do nothing: what the recorded call has added is asked later."""

    def difference(self) -> str:
        return "" if type(self.held.cell_contents) is int else f"{self.what} is no integer any more"

    def steps(self) -> list[tuple[Any, str, int]]:
        new = self.held.cell_contents
        return [(self.held, "", new - self.seen)] if new != self.seen else []


def set_free(reach: Reach) -> None:
    """Remove numbers that are only counted from the guards of a recording."""
    if reach.computed or any(code.co_name in ("__setattr__", "__getattribute__") for code in reach.codes):
        return
    whole = {id(i.held) for i in reach.items if type(i) is DictItem and i.names is None}
    numbers = {k: found for k, item in enumerate(reach.items) if (found := _numbers(item, whole))}
    if not numbers:
        return
    candidates = set().union(*(uses for found in numbers.values() for uses in found.values()))
    counted = _only_counted(reach, candidates - {f".{n}" for n in reach.matched})
    for k, found in numbers.items():
        item, mine = reach.items[k], [name for name, uses in found.items() if uses <= counted]
        if mine and isinstance(item, CellItem):
            reach.items[k] = CountedCell(item.what, item.held)
        elif mine and isinstance(item, DictItem):
            reach.items[k] = CountedItem(item, mine)


def _numbers(item: Item, whole: set[int]) -> dict[str, set[str]]:
    """Return the integers that an item guards, each with the ways in which code can name it: `.n` as an attribute, `n` as a variable."""
    if type(item) is CellItem and type(item.seen) is int:
        name = item.what.partition(" ")[0]
        return {name: {name}}
    if type(item) is not DictItem or item.names is None or id(item.held) in whole or "__module__" in item.held:
        return {}  # what has a module is a class: its attributes cannot be set through its dict
    around = "__name__" in item.held  # globals of a module
    return {n: {f".{n}", n} if around else {f".{n}"} for n, value in item.seen.items() if type(value) is int}


def _only_counted(reach: Reach, candidates: set[str]) -> set[str]:
    """Return those of the names that all code uses only in statements `... += ...` and `... -= ...`, if at all."""
    functions = [f for f in reach.seen.values() if isinstance(f, types.FunctionType) and f.__code__ in reach.codes]
    for f in functions:
        names = _names(f.__code__)
        used = {n for n in candidates if n.lstrip(".") in names}
        if used:
            given = source.of(f)
            candidates = candidates - (used if isinstance(given, str) else _other_uses(given.tree))
    return candidates


def _names(code: types.CodeType) -> set[str]:
    """Return names and strings in code, and in the code of functions inside it."""
    texts = [t for c in code.co_consts for t in (c if type(c) is tuple else (c,)) if isinstance(t, str)]
    found = {*code.co_names, *code.co_freevars, *texts, *re.findall(r"\.(\w+)", " ".join(texts))}
    return found.union(*(_names(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def _other_uses(tree: ast.AST) -> set[str]:
    """Return the names that are used otherwise than as targets of `+=` and `-=`. Strings count: they may be names of attributes."""
    targets = {id(s.target) for s in ast.walk(tree) if isinstance(s, ast.AugAssign) and isinstance(s.op, _STEPS)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in targets:
            continue
        if isinstance(node, ast.Attribute):
            found.add(f".{node.attr}")
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.MatchClass):
            found |= {f".{name}" for name in node.kwd_attrs}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value, f".{node.value}", *re.findall(r"\.\w+", node.value)}  # "{0.calls}".format(self)
    return found
