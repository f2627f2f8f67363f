"""`ShardedTensor`: nothing is one, so programs may ask; DTensor is what there is."""

from __future__ import annotations

from ....core.absent import absent_class as _absent_class
from ....core.tensor import Tensor as _Tensor

_MESSAGE = "torch.distributed._shard.sharded_tensor.{} is not in Flambeau: use torch.distributed.tensor.DTensor"
ShardedTensor = _absent_class("ShardedTensor", _MESSAGE.format("ShardedTensor"), bases=(_Tensor,))
Shard = _absent_class("Shard", _MESSAGE.format("Shard"))

__all__ = ["Shard", "ShardedTensor"]
