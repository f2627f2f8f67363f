"""The operators of torchvision as records: modes, graphs and exports see each as one call, `torch.ops.torchvision.<name>`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.library import Library

_LIBRARY = Library("torchvision", "DEF")


def operator(schema: str) -> Callable[[Callable], Any]:
    """Declare an operator by its schema; the decorated function is its kernel, and autograd follows what that does."""

    def declare(kernel: Callable) -> Any:
        name = _LIBRARY.define(schema)
        _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
        return getattr(flambeau.ops.torchvision, name)

    return declare
