"""Joining and splitting dimensions."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from .settings import Declared, settings

__all__ = ["Flatten", "Unflatten"]


@settings
class Flatten(Declared):
    """Joins the dimensions from start_dim to end_dim into one; by default all but the first, as before a first linear layer.

    >>> nn.Flatten()(flambeau.ones(2, 3, 4)).shape
    torch.Size([2, 12])
    """

    start_dim: int = 1
    end_dim: int = -1

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)


@settings
class Unflatten(Declared):
    """Splits one dimension into several, whose sizes multiply to its own: the inverse of Flatten."""

    dim: int
    unflattened_size: Any

    def __post_init__(self) -> None:
        if not isinstance(self.unflattened_size, (tuple, list)):
            kind = type(self.unflattened_size).__name__
            raise TypeError(f"unflattened_size must be a tuple of ints, but found type {kind}")
        for position, size in enumerate(self.unflattened_size):
            if not isinstance(size, int):
                raise TypeError(
                    f"unflattened_size must be tuple of ints, but found element of type {type(size).__name__} at pos"
                    f" {position}"
                )

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
