"""Functions of PyTorch's that need something Flambeau does not have: they are there by name, and raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


def raising(names: str, error: type[Exception], message: str) -> dict[str, Callable[..., NoReturn]]:
    """A function for each of the names (a text of words); called, it raises `error` with its name in the place of {}."""
    return {name: _raising(name, error, message.format(name)) for name in names.split()}


def _raising(name: str, error: type[Exception], message: str) -> Callable[..., NoReturn]:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise error(message)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Raises {error.__name__}: {message}"
    return function
