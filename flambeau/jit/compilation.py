"""Programs given as text: `CompilationUnit(source)`, `module.define(source)`."""

from __future__ import annotations

import ast
import builtins
import cmath
import math
import sys
import typing
from typing import Any

import flambeau as torch

from .functions import Definition, Function, literal_defaults
from .resolver import Resolver
from .source import Range, Source, error


class TextResolver(Resolver):
    """Resolver for a source text: its own functions first, then the names visible to the caller."""

    is_text = True

    def __init__(self, names: dict[str, Any], outer: dict[str, Any] | None = None):
        self.names, self.outer = names, outer or {}

    def lookup(self, name: str) -> tuple[bool, Any]:
        if name in self.names:
            return True, self.names[name]
        if name in self.outer:
            return True, self.outer[name]
        if name == "torch":
            return True, torch
        if name in _TYPING:
            return True, _TYPING[name]
        if hasattr(builtins, name):
            return True, getattr(builtins, name)
        return False, None


def _typing() -> dict[str, Any]:
    names = {
        n: getattr(typing, n) for n in ("List", "Dict", "Tuple", "Optional", "Union", "Any", "NamedTuple", "Final")
    }
    return {**names, "Tensor": torch.Tensor, "math": math, "cmath": cmath}


_TYPING = _typing()


def definitions(text: str) -> tuple[list[ast.FunctionDef], Source]:
    indent = min((len(line) - len(line.lstrip()) for line in text.splitlines() if line.strip()), default=0)
    flat = "\n".join(line[indent:] for line in text.splitlines())
    source = Source(flat, "<string>")
    try:
        tree = ast.parse(flat)
    except SyntaxError as problem:
        line, column = (problem.lineno or 1) - 1, max(0, (problem.offset or 1) - 1)
        message = next((ours for theirs, ours in _WORDS.items() if problem.msg.startswith(theirs)), problem.msg)
        raise error(Range(source, line, column, line, column + 1), message) from None
    return [n for n in tree.body if isinstance(n, ast.FunctionDef)], source


# What TorchScript's own parser says, by what Python's says.
_WORDS = {
    "cannot assign to literal": "Cannot pack a tuple into a non-variable", "cannot assign to": "unexpected expression in left-hand side of assignment",
    "'tuple' is an illegal expression": "augmented assignment can only have one LHS expression",
    "unterminated string": "expected a valid token but found a string without an end", "invalid syntax. Perhaps you forgot a comma": "expected ] or a comma",
}  # fmt: skip


def compile_text(text: str, outer: dict[str, Any] | None = None, prefix: str = "__torch__") -> dict[str, Function]:
    trees, source = definitions(text)
    names: dict[str, Any] = {}
    resolver = TextResolver(names, outer)
    for tree in trees:
        names[tree.name] = Function(f"{prefix}.{tree.name}", Definition(tree, source, resolver, literal_defaults(tree)))
    for function in list(names.values()):
        function.ensure()
    return names


def seen_by_caller(levels: int) -> dict[str, Any]:
    """Return the globals and locals of the calling function, which the compiled text may use, as in PyTorch."""
    frame: Any = sys._getframe(levels + 1)
    return {**frame.f_globals, **frame.f_locals}


def define_methods(module: Any, text: str, outer: dict[str, Any] | None = None) -> None:
    trees, source = definitions(text)
    kind = module.script_type
    resolver = TextResolver({}, outer)
    for tree in trees:
        kind.methods[tree.name] = Function(
            f"{kind.name}.{tree.name}", Definition(tree, source, resolver, literal_defaults(tree)), kind
        )
    for tree in trees:
        kind.methods[tree.name].ensure()
