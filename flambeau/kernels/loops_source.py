"""Reading the source of loop kernels, and analyses of the source alone."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from typing import Any

from .loops_language import KernelError


@functools.lru_cache(256)  # a kernel calls some of its functions in several places
def parse(function: Any) -> ast.FunctionDef:
    """Return the function's syntax tree, which must not be changed. It is checked against the imported code, since the file is read now."""
    code = function.__code__
    try:
        text = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse("\n" * (code.co_firstlineno - 1) + text).body[0]
    except (OSError, SyntaxError, IndexError) as error:
        raise KernelError(f"{code.co_filename}: the source of {function.__name__} cannot be read: {error}") from None
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError(f"{code.co_filename}: {function.__name__} must be written with 'def'")
    if not _is_source_of(tree, code):
        raise KernelError(f"{code.co_filename}: the file has changed since {function.__name__} was imported from it")
    return tree


def _is_source_of(tree: ast.FunctionDef, code: Any) -> bool:
    plain = ast.FunctionDef(tree.name, tree.args, tree.body, [], None, lineno=1, col_offset=0)
    # Inside a function that owns the closed-over names, so that they compile as they did.
    owned: list[ast.stmt] = [ast.parse(f"{name} = None").body[0] for name in code.co_freevars]
    no_args = ast.arguments([], [], None, [], [], None, [])
    outer = ast.FunctionDef("outer", no_args, [*owned, plain], [], None, lineno=1, col_offset=0)
    module = compile(ast.Module([outer], []), "kernel", "exec")
    inner = next(c for c in module.co_consts if hasattr(c, "co_code"))
    again = next(c for c in inner.co_consts if hasattr(c, "co_code"))
    return (again.co_code, again.co_names, again.co_varnames) == (code.co_code, code.co_names, code.co_varnames) and [
        repr(c) for c in again.co_consts if not hasattr(c, "co_code")
    ] == [repr(c) for c in code.co_consts if not hasattr(c, "co_code")]


@functools.lru_cache(256)
def assignment_counts(tree: ast.FunctionDef) -> dict[str, int]:
    """Count the assignments of each name. Names that are only loop variables are excluded; one that is both, or that is updated, counts more
    than once, since it has no single value."""
    nodes = list(ast.walk(tree))
    loop_targets = [n.target for n in nodes if isinstance(n, ast.For)]
    excluded = {id(target) for target in loop_targets}
    counts: dict[str, int] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in excluded:
            counts[node.id] = counts.get(node.id, 0) + 1
    updated = [n.target for n in nodes if isinstance(n, ast.AugAssign)]
    for target in [*updated, *loop_targets]:
        if isinstance(target, ast.Name) and target.id in counts:
            counts[target.id] += 1
    return counts


def leaves_loop(nodes: list[ast.stmt]) -> bool:
    """Return whether a `break` or `continue` among these statements belongs to the loop around them."""
    for node in nodes:
        if isinstance(node, (ast.Break, ast.Continue)):
            return True
        if isinstance(node, ast.If) and leaves_loop([*node.body, *node.orelse]):
            return True
    return False


@functools.lru_cache(4096)
def contains_return(node: ast.AST) -> bool:
    """Return whether a statement is a `return` or has one inside."""
    if isinstance(node, ast.Return):
        return True
    return any(contains_return(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))


def is_sum(op: ast.operator) -> bool:
    return isinstance(op, (ast.Add, ast.Sub, ast.Mult))
