"""Shape and offset of a rank's part of a tensor, and shape of the whole from its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.size import Size, make_size
from ...core.tensor import Tensor
from ..object_collectives import all_gather_object
from .placement_types import Partial, Placement, _is_shard_like


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: Any, placements: Sequence[Placement], skip_offset: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape of this rank's part, and the index of its first element in the whole."""
    return part_at(tuple(global_shape), mesh.shape, mesh.get_coordinate(), placements)


def compute_global_tensor_shape(shape: Size, mesh: Any, placements: Sequence[Placement]) -> Size:
    """Return the shape of the full tensor from the shapes of all ranks' shards, which may differ."""
    if len(placements) != 1:
        raise NotImplementedError("compute_global_tensor_shape only supports 1 placement for now.")
    if mesh.ndim != 1:
        raise RuntimeError(
            f"Expected one placement per mesh dim, but found {len(placements)} placements and {mesh.ndim} mesh dims."
        )
    placement: Any = placements[0]
    if placement.is_replicate():
        return shape
    if not placement.is_shard():
        raise NotImplementedError(f"Placement type {type(placement)} not supported.")
    found: list[Any] = [None] * mesh.size()
    all_gather_object(found, tuple(shape), group=mesh.get_group())
    others = {other[: placement.dim] + other[placement.dim + 1 :] for other in found}
    if len(others) > 1:
        raise RuntimeError("Non-sharded dimensions should have identical size across ranks.")
    whole = sum(other[placement.dim] for other in found)
    return make_size((*shape[: placement.dim], whole, *shape[placement.dim + 1 :]))


def part_at(
    global_shape: Sequence[int], mesh_shape: Sequence[int], coordinate: Any, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and offset of the part of the rank at `coordinate` of the mesh."""
    if coordinate is None:
        return (0,) if global_shape else (), ()
    found = indices_at(global_shape, mesh_shape, coordinate, placements)
    shape = tuple(n if i is None else len(i) for n, i in zip(global_shape, found))
    offset = tuple(0 if i is None else (int(i[0]) if len(i) else n) for n, i in zip(global_shape, found))
    return shape, offset


def indices_at(
    global_shape: Sequence[int], mesh_shape: Sequence[int], coordinate: Any, placements: Sequence[Placement]
) -> list[np.ndarray | None]:
    """Return the indices of each dimension that the rank at a coordinate holds; None for all."""
    found: list[np.ndarray | None] = [None] * len(global_shape)
    for along, placement in enumerate(placements):
        if _is_shard_like(placement):
            dim = placement.dim
            before = found[dim]
            before = np.arange(global_shape[dim]) if before is None else before
            part = placement.indices(len(before), mesh_shape[along])[coordinate[along]]
            found[dim] = before[part]
    return found


def compute_local_shape(global_shape: Sequence[int], mesh: Any, placements: Sequence[Placement]) -> tuple[int, ...]:
    """Return the shape of this rank's shard."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,) if global_shape else ()
    shape = list(global_shape)
    for along, placement in enumerate(placements):
        if _is_shard_like(placement):
            dim = placement.dim
            shape[dim] = placement.sizes(shape[dim], mesh.size(along))[coordinate[along]]
    return tuple(shape)


def compute_global_tensor_info(
    tensor: Tensor, mesh: Any, placements: Sequence[Placement]
) -> tuple[list[int], list[int]]:
    """Return shape and strides of the full tensor, given a shard, if all shards have the same size."""
    shape, stride = list(tensor.shape), list(tensor.stride())
    for along, placement in enumerate(placements):
        if _is_shard_like(placement):
            dim = placement.dim
            if dim < 0:
                raise AssertionError(
                    f"Shard placements should have negative dims normalized in the user-facing APIs: {placement}"
                )
            if dim >= tensor.ndim:
                raise AssertionError(
                    f"Sharding dim {dim} greater than tensor ndim {tensor.ndim} for placement number {along}."
                )
            own = stride[dim]
            shape[dim] *= mesh.size(along)
            for i, step in enumerate(stride):
                if i != dim and step >= own:
                    stride[i] = step * mesh.size(along)
        elif not (placement.is_replicate() or placement.is_partial()):
            raise RuntimeError(f"placement type {type(placement)} not supported!")
    return shape, stride


def compute_local_tensor_info(
    global_tensor: Tensor, mesh: Any, placements: Sequence[Placement]
) -> tuple[list[int], list[int]]:
    """Return shape and strides of this rank's part of a tensor without gaps."""
    shape, stride = list(compute_local_shape(global_tensor.shape, mesh, placements)), list(global_tensor.stride())
    for dim, (own, whole) in enumerate(zip(shape, global_tensor.shape)):
        for i, step in enumerate(stride):
            if own != whole and i != dim and step > global_tensor.stride(dim):
                stride[i] = step // whole * own
    return shape, stride


def normalize_to_torch_size(size: Any) -> Size:
    """Return sizes given as one sequence or one by one as a Size."""
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = size[0]
    return make_size(tuple(size))


def assert_no_mixed_partial_types(placements: Sequence[Placement]) -> None:
    """Raise if values are pending different kinds of reductions, whose order would matter."""
    kinds = {p.reduce_op for p in placements if isinstance(p, Partial)}
    if len(kinds) > 1 and not kinds <= {"sum", "avg"}:
        raise ValueError(
            "Mixed Partial reduce types are not supported in the same placement list. Found reduce ops:"
            f" {kinds}. Please ensure all Partial placements use the same reduce operation."
        )
