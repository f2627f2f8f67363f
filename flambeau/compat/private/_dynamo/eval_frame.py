"""PyTorch's module of the class of compiled models."""

from __future__ import annotations

from ....compiler import OptimizedModule

__all__ = ["OptimizedModule", "is_dynamo_supported"]


def is_dynamo_supported() -> bool:
    """Return whether `torch.compile` works here: always."""
    return True
