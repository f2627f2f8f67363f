"""FSDP2: `fully_shard` and its options."""

from ._fsdp_api import CPUOffloadPolicy, DataParallelMeshDims, MixedPrecisionPolicy, OffloadPolicy
from ._fsdp_common import FSDPMeshInfo, HSDPMeshInfo, ShardPlacementResult
from ._fully_shard import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method, share_comm_ctx

__all__ = [
    "CPUOffloadPolicy", "DataParallelMeshDims", "FSDPMeshInfo", "FSDPModule", "HSDPMeshInfo", "MixedPrecisionPolicy",
    "OffloadPolicy", "ShardPlacementResult", "UnshardHandle", "fully_shard", "register_fsdp_forward_method", "share_comm_ctx",
]  # fmt: skip
