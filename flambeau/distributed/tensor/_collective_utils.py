"""Collectives along a dimension of a mesh, and padding of parts to equal lengths."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from .. import collectives, groups
from ._redistribute import exchanged
from .placement_types import Shard, padded


def mesh_scatter(
    output: Tensor,
    scatter_list: list[Tensor],
    mesh: Any,
    mesh_dim: int = 0,
    async_op: bool = False,
    *,
    group_src: int = 0,
) -> Any:
    """Send one tensor of a rank's list to each rank along a dimension of the mesh."""
    group = mesh.get_group(mesh_dim)
    given = scatter_list if groups.get_rank(group) == group_src else None
    return collectives.scatter(output, given, group=group, async_op=async_op, group_src=group_src)


def mesh_broadcast(tensor: Tensor, mesh: Any, mesh_dim: int = 0, async_op: bool = False, *, group_src: int = 0) -> Any:
    """Broadcast the values of one rank along a dimension of the mesh."""
    return collectives.broadcast(tensor, group=mesh.get_group(mesh_dim), async_op=async_op, group_src=group_src)


def pad_tensor(tensor: Tensor, pad_dim: int, pad_size: int) -> Tensor:
    """Return the tensor with zeros appended along a dimension."""
    return padded(tensor, pad_dim, pad_size)


def unpad_tensor(tensor: Tensor, pad_dim: int, pad_size: int) -> Tensor:
    """Return the tensor without the last elements of a dimension."""
    return tensor.narrow(pad_dim, 0, tensor.shape[pad_dim] - pad_size) if pad_size else tensor


def shard_dim_alltoall(input: Tensor, gather_dim: int, shard_dim: int, mesh: Any, mesh_dim: int) -> Tensor:
    """Exchange shards along one dimension for shards along another, all of equal length."""
    parts = mesh.size(mesh_dim)
    length, other = input.shape[gather_dim] * parts, input.shape[shard_dim]
    return exchanged(input, mesh, mesh_dim, Shard(gather_dim), Shard(shard_dim), length, other)
