"""Indexing inside of `vmap`."""

from __future__ import annotations

from typing import Any

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex:
    """Context manager within which `x[i]` may be mapped over a tensor i without dimensions. Flambeau's `vmap` always maps it, so nothing changes."""

    def __enter__(self) -> TransformGetItemToIndex:
        return self

    def __exit__(self, *problem: Any) -> None:
        """Leave the context; nothing has to be undone."""
