"""The shapes of the tensors in the examples of the reference, shapes-seen.txt.

python docs/_tools/seen.py  # write them again, after an example was added or changed"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import records
import reference
import snippets

import flambeau

FILE = Path(__file__).parent / "shapes-seen.txt"


def look(name: str, value: Any) -> str:
    """The shapes of the tensors in the first call of something in its example that has some, in words; empty where none has."""
    return run(name, value)[1]


def is_run(name: str) -> bool:
    """Whether the shapes of an example are looked at: one that a machine may be unable to run tells none."""
    return snippets.mark(name) not in ("GPU", "no GPU", "compiler") and snippets.home(name, flambeau) is not None


@cache
def written() -> dict[str, str]:
    """What the file says of each name in it."""
    return dict(line.split(" | ", 1) for line in FILE.read_text().splitlines()[1:])


class _Watched(ast.NodeTransformer):
    """Send every call through `_call`, which sees the function, the arguments and the result."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return node  # it looks at the function that calls it
        return ast.Call(ast.Name("_call", ast.Load()), [node.func, *node.args], node.keywords)


def _watched(tree: ast.AST) -> ast.AST:
    return ast.fix_missing_locations(_Watched().visit(tree))


def run(name: str, value: Any) -> tuple[list[str], str]:
    """What each line of an example prints, and the shapes in its first call of a function, or of an object of a class, in words."""
    found: list[str] = []

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        is_one = callable(value) and _is_call_of(function, value)
        before = dict(_tensors(function, args, kwargs)) if is_one else None
        result = function(*args, **kwargs)
        after = _results(result) if before is not None else []
        if before is not None and (before or after):
            found.append(_sentence(before, after))
        return result

    printed = snippets.printed(name, flambeau, _watched, _call=call)
    return printed, found[0] if found else ""


def _is_call_of(function: Any, value: Any) -> bool:
    """Whether a call of `function` is one of `value`: of itself, of the same operator, or of an object of that class."""
    if isinstance(function, flambeau.fx.Proxy):
        return False  # it would record that it was asked
    if isinstance(value, type):
        return isinstance(function, value)
    op = getattr(value, "op", None)
    return function is value or (op is not None and getattr(function, "op", None) is op)


def _tensors(function: Any, args: tuple, kwargs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The tensors among arguments: their names and shapes."""
    receiver = getattr(function, "__self__", None)
    if isinstance(receiver, flambeau.Tensor):
        yield "input", _told(receiver)
    for name, argument in _bound(function, args, kwargs).items():
        if _told(argument):
            yield "input" if name == "self" else name, _told(argument)


def _bound(function: Any, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    signed: Callable = function.forward if isinstance(function, flambeau.nn.Module) else function
    try:
        return dict(inspect.signature(signed).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # Python does not know the signature
        return {"input": args[0] if args else None, **kwargs}


def _told(value: Any) -> str:
    """The shape of a tensor, or those of a sequence of tensors; empty for anything else."""
    if isinstance(value, flambeau.Tensor):
        return re.sub(
            r"\bj\d+\b", "*", str(tuple(value.shape))
        )  # the size of a ragged dimension is a symbol with a number
    if isinstance(value, (tuple, list)) and value and all(isinstance(v, flambeau.Tensor) for v in value):
        return ", ".join(_told(v) for v in value)
    return ""


def _results(result: Any) -> list[str]:
    if isinstance(result, (tuple, list)):
        return [text for part in result for text in _results(part)]
    return list(filter(None, [_told(result)]))


def _sentence(before: dict[str, str], after: list[str]) -> str:
    given = records.listed([f"`{name} {text}`" for name, text in before.items()])
    several = len(before) > 1 or any("), (" in text for text in before.values())
    made = records.listed([f"`{text}`" for text in after])
    if not before:
        return f"the result has the shape {made}" if len(after) == 1 else f"the results have the shapes {made}"
    if not after:
        return f"{given} {'are' if several else 'is'} given"
    return f"{given} {'give' if several else 'gives'} {made}"


def text() -> str:
    """The file as it should be."""
    lines = [
        "# The shapes in the examples of snippets.txt. Written again by `python docs/_tools/seen.py`; a test looks at them again."
    ]
    for name in snippets.snippets():
        told = look(name, reference.find(name)) if is_run(name) else ""
        lines += [f"{name} | {told}"] if told else []
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
