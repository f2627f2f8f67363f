"""Cutting inputs into parts for several devices, and joining their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .data_parallel import gather, scatter

__all__ = ["gather", "is_namedtuple", "scatter", "scatter_kwargs"]


def is_namedtuple(obj: Any) -> bool:
    """Return whether it is a tuple with names."""
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


_is_namedtuple = is_namedtuple


def scatter_kwargs(
    inputs: tuple, kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple, tuple]:
    """The arguments of a call for each device; where one kind has fewer parts, the others get none of it."""
    placed = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(placed), len(named))
    return (*placed, *[()] * (count - len(placed))), (*named, *[{}] * (count - len(named)))
