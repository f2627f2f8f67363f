"""Source locations, and the errors that show them."""

from __future__ import annotations

import ast
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

_CONTEXT = 3  # lines shown before the marked ones


class Source:
    """The text of a function, and where it begins in its file."""

    def __init__(self, text: str, filename: str | None = None, first_line: int = 1, indent: int = 0):
        self.text, self.filename, self.first_line, self.indent = text, filename, first_line, indent
        self.lines = text.split("\n")
        self.is_ascii = text.isascii()

    def range_of(self, node: Any) -> Range:
        """Return the source range of a syntax node; of a call, up to its last argument, as PyTorch marks it."""
        last = node
        if isinstance(node, ast.Call):
            parts: list[Any] = [node.func, *node.args, *node.keywords]
            last = max(parts, key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0))
        line = node.lineno - 1
        end = getattr(last, "end_lineno", None)
        end = line if end is None else end - 1
        column, end_column = node.col_offset, getattr(last, "end_col_offset", None) or node.col_offset + 1
        if self.is_ascii:
            return Range(self, line, column, end, end_column)
        return Range(self, line, self._column(line, column), end, self._column(end, end_column))

    def _column(self, line: int, byte: int) -> int:
        """Convert a column of `ast`, which counts bytes, to characters."""
        text = self.lines[line] if line < len(self.lines) else ""
        return len(text.encode()[:byte].decode(errors="replace"))


class Range:
    """A part of a source, from (line, column) to (end, end_column), counted from 0."""

    __slots__ = ("column", "end", "end_column", "line", "source")

    def __init__(self, source: Source, line: int, column: int, end: int, end_column: int):
        self.source, self.line, self.column, self.end, self.end_column = source, line, column, end, end_column

    def __str__(self) -> str:
        """Return `file.py:11:8`, the location printed after a node of a graph."""
        s = self.source
        return f"{s.filename}:{s.first_line + self.line}:{self.column + s.indent}" if s.filename else ""

    def first(self) -> Range:
        return Range(self.source, self.line, self.column, self.line, self.column + 1)

    def text(self) -> str:
        lines = self.source.lines[self.line : self.end + 1]
        if not lines:
            return ""
        lines[-1] = lines[-1][: self.end_column]
        lines[0] = lines[0][self.column :]
        return "\n".join(lines)

    def highlight(self, function: str = "") -> str:
        """Return the source lines around the range, which is underlined, after a line like a traceback's that names the function."""
        s, out = self.source, []
        if s.filename:
            out.append(
                f'  File "{s.filename}", line {s.first_line + self.line}{f", in {function}" if function else ""}\n'
            )
        pad = " " * s.indent
        for number in range(max(0, self.line - _CONTEXT), min(len(s.lines), self.end + 1)):
            text = s.lines[number]
            out.append(f"{pad}{text}\n" if text else "\n")
            if number >= self.line:
                start = self.column if number == self.line else len(text) - len(text.lstrip())
                stop = self.end_column if number == self.end else len(text)
                marks = " " * (start + s.indent) + "~" * max(1, stop - start)
                out.append(marks + (" <--- HERE\n" if number == self.end else "\n"))
        for number in range(self.end + 1, min(len(s.lines), self.end + 1 + _CONTEXT)):
            if s.lines[number].strip():
                out.append(f"{pad}{s.lines[number]}\n")
        return "".join(out)


class FrontendError(Exception):
    """Error: syntax that TorchScript does not support, with its source location."""


class NotSupportedError(FrontendError):
    """Syntax that TorchScript does not support yet."""


class UnsupportedNodeError(NotSupportedError):
    """A kind of statement or expression that TorchScript does not have."""


_calls = threading.local()


@contextlib.contextmanager
def compiling(name: str, place: Range | None) -> Iterator[None]:
    """Context manager for compiling a function because another one calls it: errors name the chain of calls."""
    stack = _calls.__dict__.setdefault("stack", [])
    stack.append((name, place))
    try:
        yield
    finally:
        stack.pop()


def error(place: Range | None, message: str, kind: type[Exception] = RuntimeError) -> Exception:
    """Return an exception with a message, the source location, and the calls that led to the function being compiled."""
    frontend = issubclass(kind, FrontendError)
    parts = ["" if frontend else "\n", message, ":\n" if not message.endswith("\n") else ""]
    if place is not None:
        parts.append(place.highlight())
    stack = _calls.__dict__.get("stack", [])
    for (caller, _), (name, call) in reversed(list(zip(stack, stack[1:]))):
        if call is not None:
            parts.append(f"'{name}' is being compiled since it was called from '{caller}'\n{call.highlight()}")
    return kind("".join(parts))
