"""`Shard`: a part of a tensor on this rank."""

from __future__ import annotations

from dataclasses import dataclass

from ....core.tensor import Tensor
from ...remote_device import _remote_device
from ..metadata import ShardMetadata


@dataclass
class Shard:
    """A tensor, and the metadata of the part of the whole that it is."""

    __slots__ = ["tensor", "metadata"]
    tensor: Tensor
    metadata: ShardMetadata

    def __post_init__(self) -> None:
        if list(self.tensor.size()) != list(self.metadata.shard_sizes):
            raise ValueError(
                "Shard tensor size does not match with metadata.shard_lengths! Found shard tensor size:"
                f" {list(self.tensor.size())}, metadata.shard_lengths: {self.metadata.shard_sizes}, "
            )
        placement = self.metadata.placement
        if placement is not None and placement.device().type != self.tensor.device.type:
            raise ValueError(
                "Local shard tensor device does not match with local Shard's placement! Found local shard tensor device:"
                f" {self.tensor.device}, local shard metadata placement device: {placement.device()}"
            )

    @classmethod
    def from_tensor_and_offsets(cls, tensor: Tensor, shard_offsets: list[int], rank: int) -> Shard:
        """Make the shard of a rank that begins at `shard_offsets`."""
        placement = _remote_device(f"rank:{rank}/{tensor.device}")
        return cls(tensor, ShardMetadata(shard_offsets, list(tensor.size()), placement))
