"""The smallest program that shows a difference: parts of its syntax tree are left out or made simpler as long as it does."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator

SECONDS = 20.0


def shrunk(lines: list[str], shows: Callable[[list[str]], bool], seconds: float = SECONDS) -> list[str]:
    """The program after all simplifications that `shows` accepts."""
    end, again = time.monotonic() + seconds, True
    while again and time.monotonic() < end:
        again = False
        for candidate in simpler(lines):
            if time.monotonic() > end:
                break
            if shows(candidate):
                lines, again = candidate, True
                break
    return lines


def simpler(lines: list[str]) -> Iterator[list[str]]:
    """Programs that are one step simpler, the boldest steps first."""
    for i in reversed(range(len(lines))):
        yield lines[:i] + lines[i + 1 :]
    for i, line in enumerate(lines):
        for changed in _changed(line):
            if changed != line:
                yield [*lines[:i], changed, *lines[i + 1 :]]


def _changed(line: str) -> Iterator[str]:
    """The line with one node of its tree left out or replaced."""
    count = sum(1 for _ in ast.walk(ast.parse(line)))
    for place in range(count):
        for way in range(12):
            tree = ast.parse(line)
            nodes = list(ast.walk(tree))
            formula = {id(part) for node in nodes if isinstance(node, ast.BinOp) for part in (node.left, node.right)}
            step = _Step(nodes[place], way)
            if step.applies and not (isinstance(nodes[place], ast.Constant) and id(nodes[place]) in formula):
                changed = ast.unparse(ast.fix_missing_locations(step.visit(tree)))
                if len(changed) < len(line) or step.same_length:
                    yield changed


class _Step(ast.NodeTransformer):
    """One simplification of one node."""

    def __init__(self, target: ast.AST, way: int) -> None:
        self.target, self.same_length = target, False
        self.result: ast.AST | None = self._simplified(target, way)
        self.applies = self.result is not None

    def visit(self, node: ast.AST) -> ast.AST:
        return self.result if node is self.target and self.result is not None else super().generic_visit(node)

    def _simplified(self, node: ast.AST, way: int) -> ast.AST | None:
        if isinstance(node, ast.Call):
            return self._call(node, way)
        if isinstance(node, ast.Subscript) and way == 0:
            return node.value
        if isinstance(node, ast.List):
            return self._list(node, way)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            plain = [v for v in (0, 1, 2) if abs(v) < abs(node.value)]
            if way < len(plain):
                self.same_length = True
                return ast.Constant(type(node.value)(plain[way]))
        if isinstance(node, ast.UnaryOp) and way == 0:
            return node.operand
        if (
            isinstance(node, ast.Call) is False
            and isinstance(node, ast.Name)
            and node.id in ("inf", "nan")
            and way == 0
        ):
            return ast.Constant(0.0)
        return None

    def _call(self, node: ast.Call, way: int) -> ast.AST | None:
        if way == 0 and isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
            return node.func.value  # x.method(...) -> x
        if 1 <= way <= 8 and way <= len(node.keywords):
            return ast.Call(node.func, node.args, [k for i, k in enumerate(node.keywords, 1) if i != way])
        if way == 9 and len(node.args) > 1:
            return ast.Call(node.func, node.args[:-1], node.keywords)
        if way == 10 and isinstance(node.func, ast.Name) and node.func.id == "complex":
            return node.args[0]
        return None

    def _list(self, node: ast.List, way: int) -> ast.AST | None:
        items = node.elts
        nested = bool(items) and all(isinstance(item, ast.List) and len(item.elts) > 1 for item in items)
        if way == 0 and len(items) > 1:
            return ast.List(items[: len(items) // 2], node.ctx)
        if way == 1 and len(items) > 1:
            return ast.List(items[len(items) // 2 :], node.ctx)
        if way == 2 and len(items) > 1:
            return ast.List(items[:-1], node.ctx)
        if way == 3 and nested:
            return ast.List([ast.List(item.elts[:-1], item.ctx) for item in items if isinstance(item, ast.List)], node.ctx)  # fmt: skip
        if way == 4 and nested:
            return ast.List([ast.List(item.elts[1:], item.ctx) for item in items if isinstance(item, ast.List)], node.ctx)  # fmt: skip
        return None


def _is_module(node: ast.AST) -> bool:
    text = ast.unparse(node)
    return text == "F" or text.startswith(("torch", "nn")) and "(" not in text
