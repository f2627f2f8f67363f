"""Splitting of inputs for several devices, and joining of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .data_parallel import gather, scatter

__all__ = ["gather", "is_namedtuple", "scatter", "scatter_kwargs"]


def is_namedtuple(obj: Any) -> bool:
    """Return whether an object is a namedtuple."""
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


_is_namedtuple = is_namedtuple


def scatter_kwargs(
    inputs: tuple, kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple, tuple]:
    """Return the arguments of a call for each device; if positional or named ones have fewer parts, the other devices get none of them."""
    placed = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(placed), len(named))
    return (*placed, *[()] * (count - len(placed))), (*named, *[{}] * (count - len(named)))
