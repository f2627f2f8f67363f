"""Analyses of a loop nest for the LLVM emitter: functions replaced by primitives, names that a statement reads, nodes that depend on a
running value, where the time is spent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..core.dtype import dtype
from ..expr.node import Expr, rebuild, walk
from ..expr.typing import node_dtype
from . import ir
from .llvm_operators import SPECIAL_POWERS
from .mathlib import lower

_LEAVES = ("const", "var", "load", "arg")


def lower_all(root: Expr, types: dict[int, dtype]) -> Expr:
    """Replace mathematical functions by primitive expressions, bottom-up, and record the dtype of every node."""
    done: dict[int, Expr] = {}

    def visit(top: Expr) -> Expr:
        for x in walk((top,)):
            if id(x) in done:
                continue
            new = rebuild(x, [done[id(o)] for o in x.operands])
            if id(new) not in types:
                types[id(new)] = node_dtype(new, (), types)
            swapped = None if new.op in _LEAVES or _special_power(new) else lower(new, types)
            if swapped is not None and swapped is not new:
                done[id(new)] = new  # a formula may use its own argument unchanged, never itself
                swapped = visit(swapped)
                new = swapped
            done[id(x)] = done[id(new)] = new
        return done[id(top)]

    return visit(root)


def _special_power(x: Expr) -> bool:
    if x.op != "pow" or x.args[1].op != "const":
        return False
    return float(x.args[1].args[0]) in SPECIAL_POWERS


def dependents(root: Expr, leaf: Expr | None) -> set[int]:
    """Return the nodes of `root` whose value depends on `leaf`."""
    found: set[int] = set()
    if leaf is not None:
        for x in walk((root,)):
            if x is leaf or any(id(c) in found for c in x.operands):
                found.add(id(x))
    return found


def expressions(statements: Iterable[ir.Statement]) -> Iterator[Expr]:
    for s in statements:
        if isinstance(s, ir.Assign):
            yield s.value
        elif isinstance(s, ir.Store):
            yield from (s.index, s.value)
        elif isinstance(s, ir.For):
            yield from (s.start, s.stop, s.step, *([s.cost] if s.cost is not None else []))
            yield from expressions(s.body)
        elif isinstance(s, ir.If):
            yield s.condition
            yield from expressions([*s.then, *s.otherwise])
        elif isinstance(s, ir.While):
            yield s.condition
            yield from expressions(s.body)


def only_forks(statements: Iterable[ir.Statement]) -> bool:
    """Return whether all the time is spent in parallel loops: there is one, and other loops are cold."""
    forks = False
    for s in statements:
        if isinstance(s, ir.For):
            if not s.parallel and not s.cold:
                return False
            forks = forks or s.parallel
        elif isinstance(s, ir.While):
            return False
        elif isinstance(s, ir.If):
            inner = [*s.then, *s.otherwise]
            if any(isinstance(i, (ir.For, ir.While, ir.If)) for i in inner) and not _cold(inner):
                return False
    return forks


def _cold(statements: Iterable[ir.Statement]) -> bool:
    for s in statements:
        if isinstance(s, ir.While) or (isinstance(s, ir.For) and not s.cold):
            return False
        if isinstance(s, ir.If) and not _cold([*s.then, *s.otherwise]):
            return False
    return True


def _stored(statements: Iterable[ir.Statement]) -> Iterator[ir.Buffer]:
    for s in statements:
        if isinstance(s, ir.Store):
            yield s.buffer
        elif isinstance(s, ir.If):
            yield from _stored([*s.then, *s.otherwise])
        elif isinstance(s, (ir.For, ir.While)):
            yield from _stored(s.body)


def reads(statements: list[ir.Statement]) -> tuple[set[str], set[ir.Buffer]]:
    """Return the names of variables and the buffers that statements mention."""
    names: set[str] = set()
    buffers = set(_stored(statements))
    for x in walk(tuple(expressions(statements))):
        if x.op == "var":
            names.add(x.args[0])
        elif x.op == "load":
            buffers.add(x.args[0])
    return names, buffers
