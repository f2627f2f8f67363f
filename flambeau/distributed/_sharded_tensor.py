"""A former place where programs look for `ShardedTensor`."""

from ._shard.sharded_tensor import Shard, ShardedTensor

__all__ = ["Shard", "ShardedTensor"]
