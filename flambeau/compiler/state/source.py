"""The text of a function as a tree, and functions made of changed trees.

A tree is only used if it compiles to the code that the function has: a file that was edited since, or a rewritten import, is detected.
Functions made of a changed tree see the same globals and the same variables of enclosing functions."""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import inspect
import textwrap
import types
from collections.abc import Sequence
from typing import Any

from ..state.observer import MADE

_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)  # fmt: skip


class Source:
    """A function with its syntax tree."""

    def __init__(self, function: types.FunctionType, tree: ast.FunctionDef):
        self.function, self.tree = function, tree
        code = function.__code__
        self.cells = dict(zip(code.co_freevars, function.__closure__ or ()))
        self.locals = frozenset((*code.co_varnames, *code.co_cellvars))
        self.outer = [s for s in ast.walk(tree) if isinstance(s, (ast.Global, ast.Nonlocal))]
        self.decorators: list[Any] = []  # what is around it: `no_grad()`

    @property
    def parameters(self) -> set[str]:
        a = self.tree.args
        names = {p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)}
        return names | {p.arg for p in (a.vararg, a.kwarg) if p is not None}

    def build(self, tree: ast.FunctionDef, extras: dict[str, Any]) -> types.FunctionType:
        """Make a function of this tree, which sees `extras` as closure variables."""
        f = self.function
        code = _code(tree, [*self.cells, *extras], f.__code__)
        cells = {**self.cells, **{name: types.CellType(value) for name, value in extras.items()}}
        made = types.FunctionType(
            code, f.__globals__, f.__name__, f.__defaults__, tuple(cells[n] for n in code.co_freevars)
        )
        made.__kwdefaults__, made.__qualname__, made.__module__ = f.__kwdefaults__, f.__qualname__, f.__module__
        for decorator in self.decorators:
            made = decorator(made)
        return made

    def part(self, name: str, inputs: list[str], body: list[ast.stmt], extras: dict[str, Any]) -> Source:
        """Return some statements as a function of the variables `inputs`."""
        arguments = ast.arguments(
            posonlyargs=[], args=[ast.arg(arg=n) for n in inputs], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        outer = [copy.deepcopy(s) for s in self.outer]
        tree = ast.FunctionDef(name=name, args=arguments, body=[*outer, *copy.deepcopy(body)], decorator_list=[])
        located(tree, body[0])
        f = self.function
        code = _code(tree, [*self.cells, *extras], f.__code__)
        cells = {**self.cells, **{n: types.CellType(value) for n, value in extras.items()}}
        made = types.FunctionType(code, f.__globals__, name, None, tuple(cells[n] for n in code.co_freevars))
        made.__qualname__, made.__module__ = f.__qualname__, f.__module__
        return Source(made, tree)


def located(tree: Any, like: ast.AST) -> Any:
    """Return a tree whose new nodes have the line number of another."""
    ast.copy_location(tree, like)
    return ast.fix_missing_locations(tree)


def of(function: Any) -> Source | str:
    """Return the source of a function written in Python, or why it is not known."""
    if not isinstance(function, types.FunctionType):
        return "it is not a function written in Python"
    try:
        lines, first = inspect.getsourcelines(function.__code__)
        found = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, IndentationError):
        return "its source is not known"
    tree = found[0] if len(found) == 1 else None
    if not isinstance(tree, ast.FunctionDef):
        return "its source is no definition of a function"
    ast.increment_lineno(tree, max(first, 1) - 1)
    tree.decorator_list = []
    code = function.__code__
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return "it is a generator or a coroutine"
    try:
        same = _same(_code(tree, list(code.co_freevars), code), code) or _same(
            _code(tree, list(code.co_freevars), code, _imported(code)), code
        )
    except (SyntaxError, ValueError):
        return "its source cannot be compiled by itself"
    return Source(function, tree) if same else "its source is not what was compiled"


def _imported(code: types.CodeType) -> list[str]:
    """Return the names that the module around a function imports: CPython compiles calls of their attributes differently."""
    return _imports("".join(inspect.findsource(code)[0]))


@functools.lru_cache(16)
def _imports(text: str) -> list[str]:
    """Return the names that a module with this text imports."""
    found: set[str] = set()
    left: list[ast.AST] = [ast.parse(text)]
    while left:
        node = left.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif not isinstance(node, (*SCOPES, ast.expr)):
            left.extend(ast.iter_child_nodes(node))
    return sorted(found - {"*"})


def _code(
    tree: ast.FunctionDef, around: list[str], like: types.CodeType, imported: Sequence[str] = ()
) -> types.CodeType:
    """Return the code of a function defined inside one with the variables `around`, in a module that imports the names `imported`."""
    inner = copy.copy(tree)
    inner.name = MADE
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(arg=n) for n in around], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    outside = ast.FunctionDef(name=MADE, args=arguments, body=[inner], decorator_list=[])
    imports = [located(ast.Import([ast.alias(name)]), tree) for name in imported]
    module = located(ast.Module(body=[*imports, located(outside, tree)], type_ignores=[]), tree)
    code = compile(module, like.co_filename, "exec", like.co_flags & _FUTURE, True)
    for _ in range(2):
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == MADE)
    return code


def _same(a: types.CodeType, b: types.CodeType) -> bool:
    """Return whether two code objects do the same, whatever their names."""
    fields = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount", "co_kwonlyargcount")
    if (a.co_flags ^ b.co_flags) & ~inspect.CO_NESTED:
        return False
    if any(getattr(a, f) != getattr(b, f) for f in fields) or len(a.co_consts) != len(b.co_consts):
        return False
    for x, y in zip(a.co_consts, b.co_consts):
        if isinstance(x, types.CodeType) and isinstance(y, types.CodeType):
            if not _same(x, y):
                return False
        elif isinstance(x, str) and isinstance(y, str) and MADE in x:
            continue  # the name that a nested function is given
        elif type(x) is not type(y) or (x != y and repr(x) != repr(y)):
            return False
    return True
