"""Base of sharding specifications, and validation of lists of shards."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ...remote_device import _remote_device
from ..metadata import ShardMetadata
from ..sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties


class PlacementSpec(ABC):  # noqa: B024 - what placements have in common is nothing
    """Base class of placements."""


@dataclass
class DevicePlacementSpec(PlacementSpec):
    """Placement on a device of a rank."""

    device: _remote_device

    def __post_init__(self) -> None:
        if not isinstance(self.device, _remote_device):
            self.device = _remote_device(self.device)


class ShardingSpec(ABC):
    """Base of the specifications by which tensors are sharded."""

    @abstractmethod
    def build_metadata(self, tensor_sizes: Any, tensor_properties: TensorProperties) -> ShardedTensorMetadata:
        """Return the shards of a tensor of this size."""

    @abstractmethod
    def shard(self, tensor: Any, src_rank: int = 0, process_group: Any = None) -> Any:
        """Shard the tensor of rank `src_rank`, one part per rank."""


def overlap(one: ShardMetadata, other: ShardMetadata) -> bool:
    """Return whether two shards have elements in common."""
    pairs = zip(one.shard_offsets, one.shard_sizes, other.shard_offsets, other.shard_sizes, strict=True)
    return all(a < b + n and b < a + m for a, m, b, n in pairs)


def validate_non_overlapping_shards_metadata(shards: Sequence[ShardMetadata]) -> None:
    """Raise if two shards have elements in common."""
    for one, other in combinations(shards, 2):
        if overlap(one, other):
            raise ValueError(f"Shards {one} and {other} overlap")


def check_tensor(shards_metadata: Sequence[ShardMetadata], tensor_dims: Sequence[int]) -> None:
    """Raise unless shards that do not overlap cover a tensor of this size."""
    if len(tensor_dims) != len(shards_metadata[0].shard_offsets):
        raise ValueError(
            f"Rank of tensor is {len(tensor_dims)}, but shards rank is {len(shards_metadata[0].shard_offsets)}"
        )
    for shard in shards_metadata:
        for dim, (offset, size, whole) in enumerate(zip(shard.shard_offsets, shard.shard_sizes, tensor_dims)):
            if offset + size > whole:
                raise ValueError(f"Shard offset {offset} and length {size} exceeds tensor dim: {whole} for shard {dim}")
    volume = math.prod(tensor_dims)
    held = sum(math.prod(shard.shard_sizes) for shard in shards_metadata)
    if held != volume:
        raise ValueError(
            f"Total volume of shards: {held} does not match tensor volume: {volume}, in other words all the individual shards do"
            " not cover the entire tensor"
        )


@dataclass
class EnumerableShardingSpec(ShardingSpec):
    """Sharding given as an explicit list of shards, which may not overlap."""

    shards: list[ShardMetadata]

    def __post_init__(self) -> None:
        if not self.shards:
            raise ValueError(f"Empty shard list provided: {self.shards}")
        ranks = [len(shard.shard_offsets) for shard in self.shards]
        for before, rank in zip(ranks, ranks[1:]):
            if before != rank:
                raise ValueError(f"Found inconsistent ranks for shards: {before} and {rank}")
        validate_non_overlapping_shards_metadata(self.shards)

    def build_metadata(self, tensor_sizes: Any, tensor_properties: TensorProperties) -> ShardedTensorMetadata:
        check_tensor(self.shards, tensor_sizes)
        return ShardedTensorMetadata(self.shards, tensor_sizes, tensor_properties)

    def shard(self, tensor: Any, src_rank: int = 0, process_group: Any = None) -> Any:
        raise NotImplementedError("EnumerableShardingSpec.shard not implemented yet!")
