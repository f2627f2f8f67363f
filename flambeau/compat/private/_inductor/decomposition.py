"""Decompositions for PyTorch's compiler; Flambeau's compiler records the parts of operators itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

decompositions: dict[Any, Callable] = {}  # what libraries have registered, by operator


def register_decomposition(ops: Any) -> Callable[[Callable], Callable]:
    """Decorator: store that operators decompose into the calls of this function."""

    def declare(function: Callable) -> Callable:
        for op in ops if isinstance(ops, (list, tuple)) else [ops]:
            decompositions[op] = function
        return function

    return declare
