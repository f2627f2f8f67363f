"""Static analysis of a loop: which variables it carries, which of them are reductions, and whether its iterations touch the same memory."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..core.dtype import dtype
from ..expr.node import Expr, walk
from . import ir

REPORTS = ("error", "wrong")  # buffers that say what went wrong: it does not matter which iteration gets a word in
_REDUCTIONS = frozenset(("add", "mul", "maximum", "minimum", "fmax", "fmin", "and", "or", "xor"))


def statements(block: Iterable[ir.Statement]) -> Iterator[ir.Statement]:
    """Yield every statement of a block, inner ones after the one that holds them."""
    for s in block:
        yield s
        if isinstance(s, ir.If):
            yield from statements([*s.then, *s.otherwise])
        elif isinstance(s, (ir.For, ir.While)):
            yield from statements(s.body)


def own_expressions(s: ir.Statement) -> tuple[Expr, ...]:
    """Return the expressions of a statement itself, without those of statements inside it."""
    if isinstance(s, ir.Assign):
        return (s.value,)
    if isinstance(s, ir.Store):
        return s.index, s.value
    if isinstance(s, ir.For):
        return s.start, s.stop, s.step
    return (s.condition,) if isinstance(s, (ir.If, ir.While)) else ()


def expressions(block: Iterable[ir.Statement]) -> Iterator[Expr]:
    for s in statements(block):
        yield from own_expressions(s)


@functools.lru_cache(1 << 14)
def _names(root: Expr) -> frozenset[str]:
    return frozenset(x.args[0] for x in walk((root,)) if x.op == "var")


@functools.lru_cache(1 << 14)
def _loads(root: Expr) -> tuple[tuple[ir.Buffer, Expr], ...]:
    return tuple((x.args[0], x.args[1]) for x in walk((root,)) if x.op == "load")


def names_in(*roots: Expr) -> set[str]:
    found: set[str] = set()
    return found.union(*map(_names, roots))


def loads_in(*roots: Expr) -> list[tuple[ir.Buffer, Expr]]:
    return [load for root in roots for load in _loads(root)]


def assigned_in(block: Iterable[ir.Statement]) -> set[str]:
    """Return the variables that a block sets, including loop indices."""
    return {s.name for s in statements(block) if isinstance(s, (ir.Assign, ir.For))}


def exposed(block: list[ir.Statement]) -> tuple[set[str], set[str]]:
    """Return the variables that a block may read before it sets them, and those it certainly sets."""
    read: set[str] = set()
    known: set[str] = set()
    for s in block:
        read |= names_in(*own_expressions(s)) - known
        if isinstance(s, ir.Assign):
            known.add(s.name)
        elif isinstance(s, ir.If):
            (a, one), (b, other) = exposed(s.then), exposed(s.otherwise)
            read |= (a | b) - known
            known |= one & other
        elif isinstance(s, ir.For):
            read |= exposed(s.body)[0] - known - {s.name}
        elif isinstance(s, ir.While):
            read |= exposed(s.body)[0] - known
    return read, known


# --- reductions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Carried:
    """A variable that a loop accumulates: by an operator, or ("pick") one that becomes `value` in some iterations."""

    name: str
    dtype: dtype
    op: str
    value: Any = None


def _pattern(x: Expr, me: Expr, name: str) -> tuple[str, Any] | None:
    """Return how x, the new value of variable `me`, comes from the old one. ("same", None): unchanged."""
    if x is me:
        return "same", None
    if x.op == "cast" and x.args[0].op != "const":
        return _pattern(x.args[0], me, name)
    if x.op in _REDUCTIONS or x.op == "sub":
        a, b = x.args
        if a is me and name not in names_in(b):
            return ("add" if x.op == "sub" else x.op), None
        if b is me and x.op != "sub" and name not in names_in(a):
            return x.op, None
    if x.op == "where" and name not in names_in(x.args[0]):
        parts = [_pattern(a, me, name) or (("pick", a) if a.op == "const" else None) for a in x.args[1:]]
        if None in parts:
            return None
        found = {p[0] for p in parts if p is not None} - {"same"}
        if len(found) == 1:
            return next(p for p in parts if p is not None and p[0] != "same")
    return None


def reduction(name: str, body: list[ir.Statement]) -> Carried | None:
    """Return the reduction that a loop applies to a variable it carries; None if the order of iterations matters."""
    found: set[tuple[str, Any]] = set()
    kind: dtype | None = None
    for s in statements(body):
        if isinstance(s, ir.Assign) and s.name == name:
            how = _pattern(s.value, ir.var(name, s.dtype), name)
            if how is None or (how[0] in ("add", "mul") and s.dtype.is_floating_point and not s.reassociate):
                return None
            kind = s.dtype
            found.add((how[0], how[1].args[0] if how[1] is not None else None))
        elif name in names_in(*own_expressions(s)):
            return None
    found -= {("same", None)}
    if len(found) != 1 or kind is None:
        return None
    op, value = found.pop()
    return Carried(name, kind, op, value)


# --- memory -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """An index as a sum: a constant and whole multiples of terms."""

    terms: frozenset[tuple[Expr, int]]
    constant: int

    def coefficient(self, name: str) -> int | None:
        """Return by how much the index grows with a variable: a number (0: not at all), or None if it is not constant."""
        total = 0
        for term, factor in self.terms:
            if name in names_in(term):
                if term.op != "var":
                    return None
                total = factor
        return total

    def grows_evenly(self, name: str) -> bool:
        """Return whether different values of a variable always give different indices: it occurs in one term, once, as a factor."""
        inside = [t for t, _ in self.terms if name in names_in(t)]
        return len(inside) == 1 and _is_factor(inside[0], name)

    def names(self) -> set[str]:
        return names_in(*(t for t, _ in self.terms))


def _is_factor(x: Expr, name: str) -> bool:
    if x.op == "var":
        return x.args[0] == name
    if x.op == "cast":
        return _is_factor(x.args[0], name)
    if x.op == "mul":
        inside = [a for a in x.args if name in names_in(a)]
        return len(inside) == 1 and _is_factor(inside[0], name)
    return False


def place_of(index: Expr, known: dict[str, Expr]) -> Place:
    """Return the index as a sum, with the definitions of variables in `known` substituted."""
    terms: dict[Expr, int] = {}
    constant = 0

    def add(x: Expr, factor: int, depth: int) -> None:
        nonlocal constant
        if x.op == "const" and isinstance(x.args[0], int):
            constant += factor * x.args[0]
        elif x.op in ("add", "sub"):
            add(x.args[0], factor, depth)
            add(x.args[1], factor if x.op == "add" else -factor, depth)
        elif x.op == "mul" and any(a.op == "const" for a in x.args):
            a, b = x.args if x.args[0].op == "const" else x.args[::-1]
            add(b, factor * a.args[0], depth)
        elif x.op == "cast" and x.args[1].name == "int64":
            add(x.args[0], factor, depth)
        elif x.op == "var" and x.args[0] in known and depth < 8:
            add(known[x.args[0]], factor, depth + 1)
        else:
            terms[x] = terms.get(x, 0) + factor

    add(index, 1, 0)
    return Place(frozenset((t, f) for t, f in terms.items() if f), constant)


def definitions(body: list[ir.Statement]) -> dict[str, Expr]:
    """Return the variables that a block sets exactly once, outside its inner loops and branches, with their values."""
    once: dict[str, Expr] = {}
    count: dict[str, int] = {}
    for s in statements(body):
        if isinstance(s, (ir.Assign, ir.For)):
            count[s.name] = count.get(s.name, 0) + 1
    for s in body:
        if isinstance(s, ir.Assign) and count[s.name] == 1:
            once[s.name] = s.value
    return once


@dataclass
class Accesses:
    """Places at which a block reads and writes memory, by buffer."""

    reads: dict[ir.Buffer, list[Expr]] = field(default_factory=dict)
    writes: dict[ir.Buffer, list[Expr]] = field(default_factory=dict)


def accesses(block: Iterable[ir.Statement]) -> Accesses:
    found = Accesses()
    for s in statements(block):
        for buffer, index in loads_in(*own_expressions(s)):
            found.reads.setdefault(buffer, []).append(index)
        if isinstance(s, ir.Store):
            found.writes.setdefault(s.buffer, []).append(s.index)
    return found


def writes_apart(loop: ir.For) -> bool:
    """Return whether no iteration touches what another one writes."""
    known = definitions(loop.body)
    touched = accesses(loop.body)
    inner = {s.buffer for s in statements(loop.body) if isinstance(s, ir.DeclareLocal)}
    changing = assigned_in(loop.body) - set(known)
    for buffer, indices in touched.writes.items():
        if buffer in inner or buffer.name in REPORTS:
            continue
        places = [place_of(i, known) for i in (*indices, *touched.reads.get(buffer, ()))]
        first = places[0]
        if not first.grows_evenly(loop.name) or any(p.names() & changing for p in places):
            return False
        if any(load[0] in touched.writes for p in places for load in loads_in(*(t for t, _ in p.terms))):
            return False
        step = first.coefficient(loop.name)
        for other in places[1:]:
            apart = abs(other.constant - first.constant)
            if other.terms != first.terms or (apart and (step is None or apart >= abs(step))):
                return False
    return True


def is_free(loop: ir.For, live: set[str]) -> list[Carried] | None:
    """Return the reductions of a loop whose iterations may run at the same time; None if they may not. `live` are the variables that are read
    after it."""
    if _leaves(loop.body):
        return None
    if not loop.independent and not writes_apart(loop):
        return None
    assigned = assigned_in(loop.body)
    carried = (exposed(loop.body)[0] & assigned) | (assigned & live)
    found = []
    for name in sorted(carried):
        one = reduction(name, loop.body)
        if one is None:
            return None
        found.append(one)
    return found


def _leaves(body: list[ir.Statement]) -> bool:
    """Return whether a body contains a `break` of the loop itself."""
    return any(isinstance(s, ir.Break) or (isinstance(s, ir.If) and _leaves([*s.then, *s.otherwise])) for s in body)
