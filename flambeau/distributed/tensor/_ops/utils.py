"""Normalisation of dimensions, and queries of sharding."""

from __future__ import annotations

from typing import Any


def normalize_dim(dim: int, ndim: int) -> int:
    """Return a dimension counted from the front."""
    return dim if dim >= 0 else dim + ndim


def is_tensor_partial(spec: Any) -> bool:
    """Return whether values have yet to be reduced."""
    return any(p.is_partial() for p in spec.placements)


def is_tensor_dim_sharded(spec: Any, dim: int) -> bool:
    """Return whether a dimension is sharded."""
    return spec.num_shards_map[dim] > 1
