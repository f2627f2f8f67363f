"""`torch.distributed.fsdp`: parameters cut into parts over ranks, which Flambeau does not have yet.

Programs may ask whether a module is sharded (it is not) and name the choices; sharding one raises NotImplementedError.
"""

from __future__ import annotations

from enum import Enum, auto

from ...core import naming as _naming
from ...core.absent import absent_class as _absent_class
from ...core.absent import raising as _raising
from ...nn import Module as _Module

_MESSAGE = "torch.distributed.fsdp.{} is not in Flambeau yet: parameters are not cut into parts (see nn.parallel.DistributedDataParallel)"


class ShardingStrategy(Enum):
    """What is cut into parts."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When the next parameters are fetched."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


class StateDictType(Enum):
    """What a state dict of a sharded model holds."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


class OptimStateKeyType(Enum):
    """What the keys of an optimizer's state are."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


FullyShardedDataParallel = _absent_class(
    "FullyShardedDataParallel", _MESSAGE.format("FullyShardedDataParallel"), bases=(_Module,)
)
globals().update(
    {
        name: _absent_class(name, _MESSAGE.format(name))
        for name in ("CPUOffload", "CPUOffloadPolicy", "FSDPModule", "FullOptimStateDictConfig", "FullStateDictConfig",
                     "LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision", "MixedPrecisionPolicy", "OffloadPolicy",
                     "OptimStateDictConfig", "ShardedOptimStateDictConfig", "ShardedStateDictConfig", "StateDictConfig",
                     "StateDictSettings", "UnshardHandle")
    }
)  # fmt: skip
globals().update(_raising("fully_shard register_fsdp_forward_method share_comm_ctx", NotImplementedError, _MESSAGE))


def __getattr__(name: str):
    if name.startswith("__"):
        raise _naming.no_attribute(__name__, name)
    return _naming.submodule(__name__, name)
