"""Sharding specifications: `ChunkShardingSpec` along one dimension, `EnumerableShardingSpec` by a list."""

from __future__ import annotations

from ..metadata import ShardMetadata
from .api import DevicePlacementSpec, EnumerableShardingSpec, PlacementSpec, ShardingSpec
from .chunk_sharding_spec import ChunkShardingSpec, _infer_sharding_spec_from_shards_metadata

__all__ = [
    "ChunkShardingSpec", "DevicePlacementSpec", "EnumerableShardingSpec", "PlacementSpec", "ShardMetadata", "ShardingSpec",
    "_infer_sharding_spec_from_shards_metadata",
]  # fmt: skip
