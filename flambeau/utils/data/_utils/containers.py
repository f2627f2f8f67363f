"""Traversal and reconstruction of samples that are nested containers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any


def each_part(data: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert every part of a container, which keeps its type but for tuples, which become lists; return other values unchanged."""
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        return rebuilt_mapping(data, {key: convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(convert(part) for part in data))
    if isinstance(data, tuple):
        return [convert(part) for part in data]
    if isinstance(data, Sequence):
        return rebuilt_sequence(data, [convert(part) for part in data])
    return data


def rebuilt_mapping(original: Any, content: dict) -> Any:
    """Return a mapping of the original's type with its other attributes, or a dict if that type cannot be built."""
    try:
        if isinstance(original, MutableMapping):
            clone = copy.copy(original)
            clone.update(content)
            return clone
        return type(original)(content)
    except TypeError:
        return content


def rebuilt_sequence(original: Any, content: list) -> Any:
    """Return a sequence of the original's type, or a list."""
    if type(original) is list:
        return content
    try:
        if isinstance(original, MutableSequence):
            clone = copy.copy(original)
            for i, value in enumerate(content):
                clone[i] = value
            return clone
        return type(original)(content)
    except TypeError:
        return content
