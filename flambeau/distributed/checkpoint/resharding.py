"""Intersections of two parts of a tensor."""

from __future__ import annotations

from .metadata import ChunkStorageMetadata

__all__: list[str] = []


def _check_shard_metadata_pair_overlap(shard1: ChunkStorageMetadata, shard2: ChunkStorageMetadata) -> bool:
    """Return whether two parts overlap."""
    return all(
        a < b + n and b < a + m
        for a, b, m, n in zip(shard1.offsets, shard2.offsets, shard1.sizes, shard2.sizes, strict=True)
    )


def _shards_get_overlap_region_wrt_saved_tensor(
    saved_shard: ChunkStorageMetadata, current_shard: ChunkStorageMetadata
) -> list[tuple[int, int, int, int]]:
    """Return (dimension, start of the overlap in the saved part, start in the current one, length) for each dimension."""
    pieces = []
    for dim, (saved, current) in enumerate(zip(saved_shard.offsets, current_shard.offsets, strict=True)):
        start = max(saved, current)
        end = min(saved + saved_shard.sizes[dim], current + current_shard.sizes[dim])
        pieces.append((dim, start - saved, start - current, end - start))
    return pieces
