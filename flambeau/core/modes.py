"""The mode stack: tracing, autocast, profiling, tensor-subclass overrides.

Every public operator tests `if stack:` once; with no mode active that is all it costs. A mode gets the operator record,
the function and its arguments, and decides: change the arguments, run it, record it."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

stack: list[Mode] = []


class Mode:
    """Subclass and implement `handle`; use as a context manager.

    A mode is taken off the stack while it handles a call. One that `stays` is not: it lies at the bottom, holds for the
    parts of a composite operator too, and runs functions by `untested`."""

    stays = False
    asks = False  # whether it hands calls to a `__torch_function__`

    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        return function(*args, **kwargs)

    def __enter__(self) -> Any:
        stack.append(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        stack.remove(self)


def intercept(op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Hand a call to the innermost mode, with that mode switched off while it decides."""
    try:
        top = stack[-1]
    except IndexError:  # another thread has just removed the last one
        return function(*args, **kwargs)
    if top.stays:
        return top.handle(op, function, args, kwargs)
    stack.pop()
    try:
        return top.handle(op, function, args, kwargs)
    finally:
        stack.append(top)


def insert_below(mode: Mode) -> None:
    """Put a mode under all others, except those that stay."""
    stack.insert(sum(other.stays for other in stack), mode)


_untested: dict[Callable, Callable] = {}
_spaces: dict[int, dict[str, Any]] = {}


def untested(function: Callable) -> Callable:
    """The public function of an operator without its test of the stack: the same code, for which `_stack` is empty."""
    found = _untested.get(function)
    if found is None:
        assert isinstance(function, FunctionType)
        given = function.__globals__
        space = _spaces.get(id(given))
        if space is None:
            space = _spaces[id(given)] = {**given, "_stack": ()}
        found = FunctionType(function.__code__, space, function.__name__, function.__defaults__, function.__closure__)
        found.__kwdefaults__ = function.__kwdefaults__
        _untested[function] = found
    return found
