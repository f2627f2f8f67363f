"""Indexing inside `vmap`."""

from __future__ import annotations

from typing import Any


class TransformGetItemToIndex:
    """Context manager: allow `x[i]` to be mapped over a 0-dim tensor i. Flambeau's `vmap` always maps it, so this has no effect."""

    def __enter__(self) -> TransformGetItemToIndex:
        return self

    def __exit__(self, *problem: Any) -> None:
        """Leave the context; nothing has to be undone."""
