"""Where the part of a rank lies in the whole tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .placement_types import Placement, Shard, _StridedShard

__all__ = ["compute_local_shape_and_global_offset"]


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: Any, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of this rank's part, and the index of its first element in the whole."""
    shape, offset = list(global_shape), [0] * len(global_shape)
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,) if shape else (), ()
    for along, placement in enumerate(placements):
        if isinstance(placement, _StridedShard):
            raise NotImplementedError("the parts of a _StridedShard are not in Flambeau yet")
        if isinstance(placement, Shard):
            size, start = Shard.local_shard_size_and_offset(shape[placement.dim], mesh.size(along), coordinate[along])
            shape[placement.dim] = size
            offset[placement.dim] += start
    return tuple(shape), tuple(offset)
