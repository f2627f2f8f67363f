"""Options of FullyShardedDataParallel: sharding strategy, precision, and contents of state dicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from ...core.dtype import dtype
from ...nn.modules.batchnorm import _BatchNorm

__all__ = [
    "BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig", "LocalOptimStateDictConfig",
    "LocalStateDictConfig", "MixedPrecision", "OptimStateDictConfig", "OptimStateKeyType", "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig", "ShardingStrategy", "StateDictConfig", "StateDictSettings", "StateDictType",
]  # fmt: skip


class ShardingStrategy(Enum):
    """FULL_SHARD: parameters are freed between the passes. SHARD_GRAD_OP: they are kept between forward and backward. NO_SHARD: all
    ranks have all of them. HYBRID_SHARD, _HYBRID_SHARD_ZERO2: the first two within a node, the same on all nodes."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """Time at which the next parameters are gathered in the backward pass: before this module's gradients are computed, or after."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


class StateDictType(Enum):
    """Contents of a state dict: whole tensors, this rank's flat parameters, or a DTensor for each parameter."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


class OptimStateKeyType(Enum):
    """Kind of keys of an optimizer's state."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


@dataclass
class MixedPrecision:
    """Dtypes of parameters in the passes, of gradient reductions and of buffers."""

    param_dtype: dtype | None = None
    reduce_dtype: dtype | None = None
    buffer_dtype: dtype | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[type] = (_BatchNorm,)


@dataclass
class CPUOffload:
    """Option of FSDP: with `offload_params`, shards are kept in host memory."""

    offload_params: bool = False


@dataclass
class StateDictConfig:
    """Options of a state dict."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """Options of state dicts with whole tensors, optionally on rank 0 only."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """Options of a state dict with this rank's flat parameters."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Options of sharded state dicts, which hold shards of each parameter."""

    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    """Options of an optimizer's state dict."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """Options of optimizer state dicts with whole tensors, optionally on rank 0 only."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """Options of optimizer state dicts of this rank's flat parameters."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Options of sharded optimizer state dicts, which hold shards of the state of each parameter."""

    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    """Settings made by `FSDP.set_state_dict_type`."""

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig
