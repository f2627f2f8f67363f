"""Gradients that mention only some rows."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor


def entries(grad: Tensor) -> tuple[Any, Tensor]:
    """The entries that a gradient has: an index for them, and their values. A sparse gradient lists them; a dense one has
    the rows that are not all zero."""
    if grad.is_sparse:
        grad = grad.coalesce()
        return tuple(grad._indices()), grad._values()
    if grad.dim() == 0:
        return (), grad
    rows = (grad != 0).reshape(grad.shape[0], -1).any(dim=1).nonzero().squeeze(1)
    return rows, grad[rows]
