"""Another place where programs look for the names of `torch.distributed.fsdp`."""

from . import *  # noqa: F403
from . import BackwardPrefetch, FullyShardedDataParallel, OptimStateKeyType, ShardingStrategy, StateDictType

__all__ = ["BackwardPrefetch", "FullyShardedDataParallel", "OptimStateKeyType", "ShardingStrategy", "StateDictType"]
