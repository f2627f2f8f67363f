"""Marks on public names: whether they promise backward compatibility."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_BACK_COMPAT_OBJECTS: dict[Any, None] = {}
_MARKED_WITH_COMPATIBILITY: dict[Any, None] = {}

T = TypeVar("T")


def compatibility(is_backward_compatible: bool) -> Callable[[T], T]:
    """Return a decorator that records the promise in the docstring and in a table."""

    def mark(value: T) -> T:
        if is_backward_compatible:
            _BACK_COMPAT_OBJECTS.setdefault(value)
        else:
            note = "Backwards-compatibility for this API is not guaranteed."
            value.__doc__ = f"{value.__doc__ or ''}\n\n{note}"
        _MARKED_WITH_COMPATIBILITY.setdefault(value)
        return value

    return mark
