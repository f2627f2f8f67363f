"""`torch.distributed.fsdp`: models whose parameters, gradients and optimizer state are sharded over ranks. See docs/sharding.md."""

from __future__ import annotations

from ...core import naming as _naming
from . import api
from ._flat_param import FlatParameter
from ._fully_shard import (
    CPUOffloadPolicy,
    DataParallelMeshDims,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    UnshardHandle,
    fully_shard,
    register_fsdp_forward_method,
    share_comm_ctx,
)
from .api import *
from .fully_sharded_data_parallel import FullyShardedDataParallel
from .materialise import load_shards

__all__ = [
    *api.__all__, "CPUOffloadPolicy", "DataParallelMeshDims", "FSDPModule", "FlatParameter", "FullyShardedDataParallel",
    "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard", "load_shards",
    "register_fsdp_forward_method", "share_comm_ctx",
]  # fmt: skip


def __getattr__(name: str):
    return _naming.submodule(__name__, name)
