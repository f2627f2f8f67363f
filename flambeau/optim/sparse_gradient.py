"""Sparse gradients."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor


def entries(grad: Tensor) -> tuple[Any, Tensor]:
    """Return the index of the entries that a sparse gradient lists, each once, and their values."""
    grad = grad.coalesce()
    return tuple(grad._indices()), grad._values()
