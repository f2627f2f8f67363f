"""What a stand-in answers when asked for a name that nobody has written: the harmless guess, written down for the report."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

guessed: set[str] = set()


class Anything:
    """A decorator that changes nothing, with or without arguments; as a value it is false and empty."""

    def __init__(self, name: str):
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and (inspect.isroutine(args[0]) or inspect.isclass(args[0])):
            return args[0]
        return lambda decorated: decorated

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __add__(self, other: Any) -> Any:
        return other

    __radd__ = __add__

    def __enter__(self) -> None:
        return None

    def __exit__(self, *details: Any) -> None:
        return None


def harmless(names: str) -> dict[str, Anything]:
    """Decorators that are known to change nothing here, by name."""
    return {name: Anything(name) for name in names.split()}


def guess(module: str, name: str) -> Any:
    """False for a constant, a class for a class, else a decorator that changes nothing."""
    if name.startswith("__"):
        raise AttributeError(name)
    guessed.add(f"{module.rpartition('.')[2]}.{name}")
    if name.isupper() or name.endswith("OrLater"):
        return False
    if name[0].isupper() and not name.isupper():
        return type(name, (), {"__init__": _refuse(name)})
    return Anything(name)


def _refuse(name: str) -> Callable[..., None]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"the stand-ins for torch.testing._internal have no {name}")

    return refuse
