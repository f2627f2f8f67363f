"""`ChunkShardingSpec`: a tensor sharded along one dimension into parts of equal length, the last ones shorter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....core import naming
from ....core.graph import unrecorded
from ....core.size import Size
from ....ops.creation.filled import empty
from ... import collectives, groups
from ...remote_device import _remote_device
from ..metadata import ShardMetadata
from ..sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
from .api import EnumerableShardingSpec, ShardingSpec


@dataclass
class ChunkShardingSpec(ShardingSpec):
    """Sharding along `dim`, one part for each of `placements`, divided like `torch.chunk`."""

    dim: int
    placements: list[_remote_device | str]

    def __post_init__(self) -> None:
        self._verify_dim(self.dim)
        self.placements = [p if isinstance(p, _remote_device) else _remote_device(p) for p in self.placements]

    @staticmethod
    def _verify_dim(dim: Any) -> None:
        if isinstance(dim, str):
            raise NotImplementedError("ChunkShardingSpec does not support named dimension yet!")
        if not isinstance(dim, int):
            raise ValueError(f"Sharding dim needs to be an integer, found: {dim}")

    def build_metadata(self, tensor_sizes: Any, tensor_properties: TensorProperties) -> ShardedTensorMetadata:
        if not -len(tensor_sizes) <= self.dim < len(tensor_sizes):
            raise ValueError(f"Invalid sharding dim: {self.dim}")
        length, count = tensor_sizes[self.dim], len(self.placements)
        step = -(-length // count)
        shards = []
        for number, placement in enumerate(self.placements):
            offsets, sizes = [0] * len(tensor_sizes), list(tensor_sizes)
            offsets[self.dim] = step * number
            sizes[self.dim] = max(min(length, step * (number + 1)) - step * number, 0)
            shards.append(ShardMetadata(offsets, sizes, placement))
        return ShardedTensorMetadata(shards, Size(tensor_sizes), tensor_properties)

    def shard(self, tensor: Any, src_rank: int = 0, process_group: Any = None) -> Any:
        sharded = naming.above("distributed._shard.sharded_tensor.api")  # whose spec this is
        group = process_group or groups._get_default_group()
        metadata = self.build_metadata(tensor.size(), TensorProperties.create_from_tensor(tensor))
        source = tensor.detach()
        own = None
        for shard in metadata.shards_metadata:  # one message for each part
            rank, device = sharded.placed(group, shard.placement)
            part = source[tuple(slice(o, o + n) for o, n in zip(shard.shard_offsets, shard.shard_sizes))]
            to, here = groups.get_group_rank(group, rank), groups.get_rank(group)
            if here == src_rank:
                part = unrecorded(part.clone).contiguous()
                if to != src_rank:
                    collectives.send(part, group=group, group_dst=to)
            elif here == to:
                part = empty(shard.shard_sizes, dtype=tensor.dtype, device=device)
                collectives.recv(part, group=group, group_src=src_rank)
            if here == to:
                own = sharded.Shard(part.requires_grad_(tensor.requires_grad), shard)
        local = [] if own is None else [own]
        return sharded.ShardedTensor._init_from_local_shards_and_global_metadata(
            local, metadata, process_group=group, sharding_spec=self
        )


def _infer_sharding_spec_from_shards_metadata(shards_metadata: list[ShardMetadata]) -> ShardingSpec:
    """Return the specification that yields these shards."""
    cut = {dim for shard in shards_metadata for dim, offset in enumerate(shard.shard_offsets) if offset}
    if len(cut) == 1:
        dim = cut.pop()
        ordered = sorted(shards_metadata, key=lambda shard: shard.shard_offsets[dim])
        whole = [max(o + n for o, n in zip(*pairs)) for pairs in zip(
            zip(*(s.shard_offsets for s in ordered)), zip(*(s.shard_sizes for s in ordered))
        )]  # fmt: skip
        spec = ChunkShardingSpec(dim, [shard.placement for shard in ordered])  # type: ignore[misc]
        made = spec.build_metadata(whole, TensorProperties()).shards_metadata
        if [(s.shard_offsets, s.shard_sizes) for s in made] == [
            (list(s.shard_offsets), list(s.shard_sizes)) for s in ordered
        ]:
            return spec
    return EnumerableShardingSpec(shards_metadata)
