"""Marks for Intel's VTune, through the package `ittapi` if it is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

try:
    import ittapi as _ittapi
except ImportError:
    _ittapi = None

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]

_open: list[Any] = []


def is_available() -> bool:
    """Return whether the package `ittapi` is installed."""
    return _ittapi is not None


def _library() -> Any:
    if _ittapi is None:
        raise RuntimeError("ITT functions not installed: marks for VTune need the package ittapi (pip install ittapi)")
    return _ittapi


def range_push(msg: str) -> None:
    """Begin a range that `range_pop` ends."""
    task = _library().task(msg)
    task.begin()
    _open.append(task)


def range_pop() -> None:
    """End the innermost range."""
    _library()
    _open.pop().end()


def mark(msg: str) -> None:
    """Mark this moment in the trace."""
    _library().event(msg).begin()


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Context manager: mark what happens inside as a range."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
