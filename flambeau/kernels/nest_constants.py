"""A loop nest specialised to known values of some parameters: expressions of these are computed, loops that run once are unrolled."""

from __future__ import annotations

from typing import Any

from ..core import dtype as dt
from ..expr.node import Expr, const, rebuild, walk
from . import ir
from .emit_cuda import INTEGER_OPS
from .nest_analysis import names_in, statements


def specialised(body: list[ir.Statement], values: dict[str, int]) -> list[ir.Statement]:
    """Return the nest with these integers in place of variables."""
    counts: dict[str, int] = {}
    for s in statements(body):
        if isinstance(s, (ir.Assign, ir.For)):
            counts[s.name] = counts.get(s.name, 0) + 1
    return _block(body, {n: const(v) for n, v in values.items()}, counts)


def _block(body: list[ir.Statement], known: dict[str, Expr], counts: dict[str, int]) -> list[ir.Statement]:
    result: list[ir.Statement] = []
    for s in body:
        if isinstance(s, ir.Assign):
            value = folded(s.value, known)
            if value.op == "const" and s.dtype is dt.int64 and counts[s.name] == 1:
                known[s.name] = value
            result.append(ir.Assign(s.name, s.dtype, value, s.reassociate))
        elif isinstance(s, ir.Store):
            result.append(ir.Store(s.buffer, folded(s.index, known), folded(s.value, known), s.reassociate))
        elif isinstance(s, ir.If):
            condition = folded(s.condition, known)
            if condition.op == "const":
                result += _block(s.then if condition.args[0] else s.otherwise, known, counts)
            else:
                result.append(ir.If(condition, _block(s.then, known, counts), _block(s.otherwise, known, counts)))
        elif isinstance(s, ir.While):
            result.append(ir.While(folded(s.condition, known), _block(s.body, known, counts)))
        elif isinstance(s, ir.For):
            result += _for(s, known, counts)
        else:
            result.append(s)
    return result


def _for(s: ir.For, known: dict[str, Expr], counts: dict[str, int]) -> list[ir.Statement]:
    start, stop, step = (folded(e, known) for e in (s.start, s.stop, s.step))
    if not s.parallel and all(e.op == "const" for e in (start, stop, step)):
        trips = len(range(start.args[0], stop.args[0], step.args[0]))
        if trips == 0:
            return []
        if trips == 1 and not any(isinstance(x, (ir.Break, ir.Continue)) for x in statements(s.body)):
            return _block(s.body, known | {s.name: start}, counts)
    inner = _block(s.body, {n: v for n, v in known.items() if n != s.name}, counts)
    cost = None if s.cost is None else folded(s.cost, known)
    return [ir.For(s.name, start, stop, step, inner, s.parallel, cost, s.independent, s.cold)]


def folded(root: Expr, known: dict[str, Expr]) -> Expr:
    """Return the expression with known variables as numbers, and integer arithmetic on numbers evaluated."""
    done: dict[int, Expr] = {}
    for x in walk((root,)):
        if x.op == "var":
            done[id(x)] = known.get(x.args[0], x)
            continue
        kids = [done[id(a)] for a in x.args if isinstance(a, Expr)]
        if not kids:
            done[id(x)] = x
            continue
        done[id(x)] = _node(x, kids)
    return done[id(root)]


def _node(x: Expr, kids: list[Expr]) -> Expr:
    if x.op == "where" and kids[0].op == "const":
        return kids[1] if kids[0].args[0] else kids[2]
    values: list[Any] = [k.args[0] for k in kids if k.op == "const" and isinstance(k.args[0], (int, bool))]
    whole = len(values) == len(kids) and x.op in INTEGER_OPS
    if whole and x.op == "cast":
        whole = x.args[1] in (dt.int64, dt.uint64)
    if whole and x.op in ("floordiv", "mod") and values[1] == 0:
        whole = False
    if whole:
        return const(INTEGER_OPS[x.op](*values))
    return rebuild(x, kids)


def bounding_names(body: list[ir.Statement], names: set[str]) -> set[str]:
    """Return those of the variables that bounds of loops inside parallel ones depend on."""
    defined: dict[str, set[str]] = {}
    for s in statements(body):
        if isinstance(s, ir.Assign):
            defined.setdefault(s.name, set()).update(names_in(s.value))
    wanted: set[str] = set()
    for s in statements(body):
        if isinstance(s, ir.For) and not s.parallel:
            wanted |= names_in(s.start, s.stop, s.step)
    found: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted |= defined.get(name, set())
    return found & names
