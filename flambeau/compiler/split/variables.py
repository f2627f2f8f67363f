"""Variables that statements read and set: the inputs and outputs of a part of a function."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ..state.source import SCOPES

BLOCKS = (ast.If, ast.For, ast.While, ast.With)  # statements whose bodies can be parts


def own_nodes(node: ast.AST) -> Iterable[ast.AST]:
    """Yield the nodes of a statement, except those inside functions and comprehensions that it contains."""
    yield node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):  # of these, what is evaluated outside
        outside = [*node.decorator_list, *getattr(node, "bases", ())]
        arguments = getattr(node, "args", None)
        outside += (
            [] if arguments is None else [d for d in (*arguments.defaults, *arguments.kw_defaults) if d is not None]
        )
        for part in outside:
            yield from own_nodes(part)
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, SCOPES):
            yield child
        else:
            yield from own_nodes(child)


def loads(node: ast.AST) -> set[str]:
    """Return the names that a piece of code reads, also inside functions that it contains; `x += 1` reads x."""
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)}
    changed = {n.target.id for n in ast.walk(node) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)}
    return found | changed


def stores(node: ast.AST) -> set[str]:
    """Return the names that a piece of code assigns."""
    found: set[str] = set()
    for n in own_nodes(node):
        if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del)):
            found.add(n.id)
        elif isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(n.name)
        elif isinstance(n, (ast.Import, ast.ImportFrom)):
            found |= {(a.asname or a.name).split(".")[0] for a in n.names}
        elif isinstance(n, ast.ExceptHandler) and n.name:
            found.add(n.name)
    for n in ast.walk(node):  # x := ... inside a comprehension sets a variable of the function
        if isinstance(n, ast.NamedExpr):
            found.add(n.target.id)
    return found


def flow(body: list[ast.stmt], definite: set[str]) -> tuple[set[str], set[str]]:
    """Return the names that are read before these statements have certainly set them, and those that are certainly set afterwards."""
    exposed: set[str] = set()
    for s in body:
        if isinstance(s, ast.If):
            exposed |= loads(s.test) - definite
            (first, after), (second, other) = flow(s.body, definite), flow(s.orelse, definite)
            exposed |= first | second
            definite = after & other
        elif isinstance(s, ast.For):
            exposed |= loads(s.iter) - definite
            exposed |= flow(s.body, definite | stores(s.target))[0] | flow(s.orelse, definite)[0]
        elif isinstance(s, ast.While):
            exposed |= (loads(s.test) - definite) | flow(s.body, definite)[0] | flow(s.orelse, definite)[0]
        elif isinstance(s, ast.With):
            for item in s.items:
                exposed |= loads(item.context_expr) - definite
                definite = definite | (stores(item.optional_vars) if item.optional_vars is not None else set())
            inner, definite = flow(s.body, definite)
            exposed |= inner
        elif isinstance(s, ast.Try):
            for part in (s.body, *(h.body for h in s.handlers), s.orelse, s.finalbody):
                exposed |= flow(part, definite)[0]
        else:
            exposed |= loads(s) - definite
            gone = {n.id for n in own_nodes(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del)}
            conditional = {n.target.id for n in ast.walk(s) if isinstance(n, ast.NamedExpr)}
            definite = (definite | (stores(s) - conditional)) - gone
    return exposed, definite


def shared(tree: ast.FunctionDef, parameters: set[str]) -> set[str]:
    """Return the variables that inner functions capture and that are set more than once, or later: a copy of one would become stale."""
    captured: set[str] = set()
    late: set[str] = set()
    last = {n.id: n.lineno for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    for n in ast.walk(tree):
        if n is not tree and isinstance(
            n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)
        ):
            captured |= loads(n)
            end = n.end_lineno or n.lineno
            late |= {name for name in loads(n) if last.get(name, 0) > end}
    counts = dict.fromkeys(parameters, 1)

    def count(node: ast.AST, times: int) -> None:
        for child in ast.iter_child_nodes(node):
            again = 2 if isinstance(child, (ast.For, ast.While)) else times
            if isinstance(child, ast.Name) and not isinstance(child.ctx, ast.Load):
                counts[child.id] = counts.get(child.id, 0) + again
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                counts[child.name] = counts.get(child.name, 0) + again
            if not isinstance(child, SCOPES):
                count(child, again)

    count(tree, 1)
    return late | {n for n in captured if counts.get(n, 0) > 1}
