"""`__torch_function__`: how a subclass of Tensor takes part in every operator called on it.

Nothing here costs anything until a class with such an override is defined; then a mode that looks for its instances
among the arguments sits at the bottom of the mode stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from . import modes

_REGISTERED: set[type] = set()  # the classes that override operators
_LOOKED_INTO: set[type] = {list, tuple}  # those, and what may contain their instances


def disabled_torch_function(func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
    """The override of classes that want none: results of operators on them are plain tensors."""
    return func(*args, **(kwargs or {}))


def overriding_types(args: tuple, kwargs: dict) -> list[type]:
    """The classes among the arguments that override operators, subclasses before their bases."""
    found: list[type] = []
    for value in _flat((*args, *kwargs.values())):
        cls = type(value)
        if cls in found or cls not in _REGISTERED:
            continue
        position = next((i for i, other in enumerate(found) if issubclass(cls, other)), len(found))
        found.insert(position, cls)
    return found


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if type(value) in (list, tuple):
            yield from _flat(value)
        else:
            yield value


def register_subclass(cls: type) -> None:
    """Called for every new subclass of Tensor."""
    if getattr(cls, "__torch_function__", None) is disabled_torch_function:
        return
    _REGISTERED.add(cls)
    _LOOKED_INTO.add(cls)
    if _subclass_mode not in modes.stack:
        modes.insert_below(_subclass_mode)


def call_override(function: Callable, types: list[type], args: tuple, kwargs: dict) -> Any:
    """Ask each overriding class in turn; the first that does not decline has its way."""
    for cls in types:
        result = cls.__torch_function__(function, tuple(types), args, kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(
        "no implementation found for"
        f" '{getattr(function, '__module__', '')}.{getattr(function, '__name__', function)}' on"
        f" types that implement __torch_function__: {types}"
    )


class _SubclassMode(modes.Mode):
    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        if not kwargs and _LOOKED_INTO.isdisjoint(map(type, args)):  # by far most calls
            return function(*args)
        types = overriding_types(args, kwargs)
        if not types:
            return function(*args, **kwargs)
        return call_override(function, types, args, kwargs)


_subclass_mode = _SubclassMode()


class DisableTorchFunctionSubclass:
    """Inside, operators treat subclasses as the plain tensors they are."""

    def __enter__(self) -> None:
        self.removed = _subclass_mode in modes.stack
        if self.removed:
            modes.stack.remove(_subclass_mode)

    def __exit__(self, *exc: Any) -> None:
        if self.removed and _subclass_mode not in modes.stack:
            modes.insert_below(_subclass_mode)
