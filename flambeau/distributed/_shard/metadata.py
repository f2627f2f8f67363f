"""`ShardMetadata`: offsets, sizes and rank of a part of a tensor."""

from __future__ import annotations

from dataclasses import dataclass

from ..remote_device import _remote_device


@dataclass
class ShardMetadata:
    """A part of a tensor. `placement` is a device of a rank, as "rank:1/cpu"."""

    __slots__ = ["shard_offsets", "shard_sizes", "placement"]

    shard_offsets: list[int]
    shard_sizes: list[int]
    placement: _remote_device | None

    def __init__(
        self, shard_offsets: list[int], shard_sizes: list[int], placement: str | _remote_device | None = None
    ) -> None:
        self.shard_offsets, self.shard_sizes = shard_offsets, shard_sizes
        self.placement = _remote_device(placement) if isinstance(placement, str) else placement
        if len(shard_offsets) != len(shard_sizes):
            raise ValueError(
                f"shard_offsets and shard_sizes should have the same number of elements, found {len(shard_offsets)} and"
                f" {shard_sizes} respectively"
            )
        if any(offset < 0 for offset in shard_offsets):
            raise ValueError("shard_offsets should be >=0")
        if any(size < 0 for size in shard_sizes):
            raise ValueError("shard_sizes should be >= 0")

    def __hash__(self) -> int:
        return hash((*self.shard_offsets, *self.shard_sizes, str(self.placement)))
