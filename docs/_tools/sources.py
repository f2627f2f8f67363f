"""Where a name of the library is written: its file, its lines, its text."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_LONGEST = 40  # lines that are shown


@functools.cache
def _places(file: Path) -> tuple[list[str], dict[str, tuple[int, int]]]:
    """The lines of a file, and where each function and class of it begins and ends, by its qualified name."""
    text = file.read_text()
    found: dict[str, tuple[int, int]] = {}

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                found[prefix + child.name] = (first, child.end_lineno or first)
                walk(child, prefix + child.name + (".<locals>." if isinstance(child, ast.FunctionDef) else "."))

    walk(ast.parse(text), "")
    return text.split("\n"), found


def _file_of(value: Any) -> Path | None:
    code = getattr(value, "__code__", None)
    name = code.co_filename if code else getattr(sys.modules.get(getattr(value, "__module__", "")), "__file__", None)
    file = Path(name) if name else None
    return file if file is not None and file.is_relative_to(ROOT) else None


def source(value: Any) -> tuple[str, int, str] | None:
    """(file, line, text) of a function, operator or class of the library; long texts are cut. None for what is not written there."""
    op = getattr(value, "op", None)
    if op is not None and getattr(op, "source", None) is not None:
        value = op.source
    value = inspect.unwrap(value) if callable(value) else value
    file = _file_of(value)
    if file is None:
        return None
    lines, places = _places(file)
    place = places.get(getattr(value, "__qualname__", ""))
    if place is None:
        return None
    first, last = place
    kept = lines[first - 1 : min(last, first - 1 + _LONGEST)]
    text = textwrap.dedent("\n".join(kept)) + ("\n..." if last > first - 1 + _LONGEST else "")
    return str(file.relative_to(ROOT)), first, text
