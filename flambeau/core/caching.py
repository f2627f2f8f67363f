"""Caches of results for layouts, bounded in size."""

from __future__ import annotations

from typing import Any, TypeVar

_Value = TypeVar("_Value")


def remember(cache: dict[Any, Any], key: object, value: _Value, most: int = 8192) -> _Value:
    """Add a value to a cache, which is emptied when it is full: a program whose shapes never repeat must not fill memory."""
    if len(cache) >= most:
        cache.clear()
    cache[key] = value
    return value
