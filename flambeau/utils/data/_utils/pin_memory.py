"""Batches in page-locked memory, from where an accelerator copies faster."""

from __future__ import annotations

import copy
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from flambeau.core.tensor import Tensor


def accelerator_available() -> bool:
    """Whether there is a device that pinned memory would serve."""
    if importlib.util.find_spec("flambeau.cuda") is None:
        return False
    return bool(importlib.import_module("flambeau.cuda").is_available())


def pin_memory(data: Any, device: Any = None) -> Any:
    """The same structure with every tensor (and everything that has a `pin_memory` method) pinned."""
    if isinstance(data, Tensor):
        return data.pin_memory()
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        pinned = {key: pin_memory(value) for key, value in data.items()}
        return _like(data, pinned)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(value) for value in data))
    if isinstance(data, tuple):
        return [pin_memory(value) for value in data]
    if isinstance(data, Sequence):
        return _like(data, [pin_memory(value) for value in data])
    return data


def _like(original: Any, content: Any) -> Any:
    """`content` in a container of the original's type, where that can be built."""
    if type(original) is type(content):
        return content
    try:
        if hasattr(original, "update"):
            clone = copy.copy(original)
            clone.update(content)
            return clone
        return type(original)(content)
    except TypeError:
        return content
