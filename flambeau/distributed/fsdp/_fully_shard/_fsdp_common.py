"""Meshes of ranks that shard or replicate parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from ....core.dtype import dtype
from ....core.tensor import Tensor
from ...device_mesh import DeviceMesh
from ...tensor.placement_types import Shard


@dataclass
class DataParallelMeshInfo:
    """A mesh, and which of its dimensions shard or replicate parameters."""

    mesh: DeviceMesh
    shard_mesh_dim: int | None = None
    replicate_mesh_dim: int | None = None
    dp_mesh_dims: Any = None
    spmd_mesh: DeviceMesh | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.shard_mesh_dim is None and self.replicate_mesh_dim is None:
            raise AssertionError("At least one of shard_mesh_dim and replicate_mesh_dim must not be None")

    @property
    def is_spmd_mesh(self) -> bool:
        return self.dp_mesh_dims is not None


@dataclass
class FSDPMeshInfo(DataParallelMeshInfo):
    """Mesh information: parameters are sharded over `shard_mesh_dim`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shard_mesh_dim is None:
            raise AssertionError("Expects non-None shard_mesh_dim")
        self.shard_mesh_size: int = self.mesh.size(self.shard_mesh_dim)
        self.shard_process_group = self.mesh.get_group(self.shard_mesh_dim)
        self.shard_mesh_rank: int = self.shard_process_group.rank()
        self.reduce_scatter_process_group: Any = None


@dataclass
class DDPMeshInfo(DataParallelMeshInfo):
    """Mesh information: parameters are replicated over `replicate_mesh_dim`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.replicate_mesh_dim is None:
            raise AssertionError("Expects non-None replicate_mesh_dim")
        self.replicate_mesh_size: int = self.mesh.size(self.replicate_mesh_dim)
        self.replicate_process_group = self.mesh.get_group(self.replicate_mesh_dim)
        self.replicate_mesh_rank: int = self.replicate_process_group.rank()


@dataclass
class HSDPMeshInfo(FSDPMeshInfo, DDPMeshInfo):
    """Mesh information: parameters are sharded over one dimension, replicated over the other."""


class TrainingState(Enum):
    """Phase that a group of parameters is in."""

    FORWARD = auto()
    PRE_BACKWARD = auto()
    POST_BACKWARD = auto()
    IDLE = auto()


@dataclass
class ShardPlacementResult:
    """Result of a `shard_placement_fn` that also chooses a mesh."""

    placement: Shard | None
    mesh_info: FSDPMeshInfo


def resolve_shard_placement(result: Any, default_mesh_info: FSDPMeshInfo) -> ShardPlacementResult:
    if result is None or isinstance(result, Shard):
        return ShardPlacementResult(result, default_mesh_info)
    if isinstance(result, ShardPlacementResult):
        return result
    raise ValueError(f"Invalid shard_placement_fn result: {result}")


def _to_dtype_if_needed(tensor: Tensor, wanted: dtype | None) -> Tensor:
    return tensor if wanted is None or tensor.dtype is wanted else tensor.to(wanted)


def _cast_fp_tensor(wanted: dtype, x: Any) -> Any:
    return x.to(wanted) if isinstance(x, Tensor) and x.dtype.is_floating_point and x.dtype is not wanted else x
