"""Another place where programs look for `ShardedTensor`."""

from . import ShardedTensor

__all__ = ["ShardedTensor"]
