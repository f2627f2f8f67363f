"""Records of torchvision's operators: modes, graphs and exports see each as one call, `torch.ops.torchvision.<name>`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.library import Library

_LIBRARY = Library("torchvision", "DEF")


def operator(schema: str, meta: Callable | None = None, reads_values: bool = False) -> Callable[[Callable], Any]:
    """Declare an operator by its schema; the decorated function is its kernel, and autograd differentiates its body. `meta` makes the
    result without values; an operator that `reads_values` has none, as its result's size depends on them."""

    def declare(kernel: Callable) -> Any:
        name = _LIBRARY.define(schema)
        _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
        if meta is not None:
            _LIBRARY.impl(name, meta, "Meta")
        face = getattr(faces(), name)
        face.op.reads_values = reads_values
        return face

    return declare


def faces() -> Any:
    """Return the operators by name, as programs find them in `torch.ops.torchvision`."""
    return flambeau.ops.torchvision
