"""The mode stack: tracing, autocast, profiling, tensor-subclass overrides.

Every public operator tests `if stack:` once; with no mode active that is all it costs. A mode gets the operator record,
the function and its arguments, and decides: change the arguments, run it, record it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

stack: list[Mode] = []


class Mode:
    """Subclass and implement `handle`; use as a context manager."""

    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        return function(*args, **kwargs)

    def __enter__(self) -> Any:
        stack.append(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        stack.remove(self)


def intercept(op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Hand a call to the innermost mode, with that mode switched off while it decides."""
    top = stack.pop()
    try:
        return top.handle(op, function, args, kwargs)
    finally:
        stack.append(top)
