"""Decompositions that PyTorch's compiler would use; Flambeau's compiler sees what operators are made of by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["decompositions", "register_decomposition"]

decompositions: dict[Any, Callable] = {}  # what libraries have registered, by operator


def register_decomposition(ops: Any) -> Callable[[Callable], Callable]:
    """Decorator: notes that operators are made by this function of others."""

    def declare(function: Callable) -> Callable:
        for op in ops if isinstance(ops, (list, tuple)) else [ops]:
            decompositions[op] = function
        return function

    return declare
