"""Order in which several dimensions of the mesh shard one dimension of the tensor.

By default this is from the first to the last. Another order can be expressed in two ways: as a `ShardOrder`, or by placements: a
`_StridedShard` was applied after later dimensions of the mesh."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

from .placement_types import Placement, Shard, _is_shard_like, _StridedShard


class ShardOrderEntry(NamedTuple):
    """The dimensions of the mesh that shard one dimension of the tensor, in their order."""

    tensor_dim: int
    mesh_dims: tuple[int, ...]


ShardOrder = tuple[ShardOrderEntry, ...]


def default_order(placements: tuple[Placement, ...]) -> ShardOrder:
    """Return the order of shards from the first mesh dimension to the last."""
    found: dict[int, list[int]] = {}
    for i, p in enumerate(placements):
        if _is_shard_like(p):
            dim = p.dim
            if dim < 0:
                raise AssertionError(f"Shard dim {dim} in placements {placements} must be normalized")
            found.setdefault(dim, []).append(i)
    return tuple(ShardOrderEntry(dim, tuple(found[dim])) for dim in sorted(found))


def is_default(order: ShardOrder | None) -> bool:
    """Return whether every dimension is sharded from the first dimension of the mesh to the last."""
    return order is not None and all(a < b for entry in order for a, b in itertools.pairwise(entry.mesh_dims))


def strided(order: ShardOrder, placements: tuple[Placement, ...], mesh: Any) -> tuple[Placement, ...]:
    """Return placements that encode the order of sharding."""
    found = list(placements)
    for entry in order:
        for at, i in enumerate(entry.mesh_dims):
            if type(placements[i]) is not Shard:
                raise ValueError(
                    f"Only Shard placement can be converted to _StridedShard, found {placements[i]} in placements={placements}."
                )
            pieces = math.prod(mesh.size(j) for j in entry.mesh_dims[:at] if j > i)
            found[i] = Shard(entry.tensor_dim) if pieces == 1 else _StridedShard(entry.tensor_dim, split_factor=pieces)
    return tuple(found)


def order_of(placements: tuple[Placement, ...], mesh: Any) -> ShardOrder | None:
    """Return the order that placements encode; None if they correspond to none."""
    found: dict[int, list[int]] = {}
    for i in reversed(range(len(placements))):
        p: Any = placements[i]
        if not _is_shard_like(p):
            continue
        later = found.setdefault(p.dim, [])
        pieces = [math.prod(mesh.size(j) for j in later[:at]) for at in range(len(later) + 1)]
        wanted = getattr(p, "split_factor", 1)
        if wanted not in pieces:
            return None
        later.insert(pieces.index(wanted), i)
    return tuple(ShardOrderEntry(dim, tuple(found[dim])) for dim in sorted(found))


def check(order: ShardOrder, placements: tuple[Placement, ...]) -> None:
    """Raise if an order does not fit the placements."""
    if any(isinstance(p, _StridedShard) for p in placements):
        return
    before = -1
    for entry in order:
        if not entry.mesh_dims:
            raise AssertionError(f"shard_order {order} has empty mesh dim")
        if entry.tensor_dim < 0:
            raise AssertionError(f"shard_order {order} has invalid tensor dim {entry.tensor_dim}")
        if entry.tensor_dim <= before:
            raise AssertionError("tensor dim should be sorted in shard_order")
        before = entry.tensor_dim
        for i in entry.mesh_dims:
            if not 0 <= i < len(placements):
                raise AssertionError(f"shard_order {order} has invalid mesh dim {entry.mesh_dims}")
            if placements[i] != Shard(entry.tensor_dim):
                raise AssertionError(f"placement[{i}] doesn't have a matching shard in shard_order")
    if sum(len(entry.mesh_dims) for entry in order) != sum(1 for p in placements if isinstance(p, Shard)):
        raise AssertionError(f"shard_order {order} does not name all dimensions that cut: {placements}")


def written(placements: tuple[Placement, ...], order: ShardOrder | None) -> str:
    """Return placements as short text: "S(1)[0]S(1)[1]R", with numbers where several dimensions of the mesh shard one of the tensor."""
    place: dict[int, str] = {}
    for entry in order or ():
        if len(entry.mesh_dims) > 1:
            place |= {i: f"[{at}]" for at, i in enumerate(entry.mesh_dims)}
    return "".join(f"{p}{place.get(i, '')}" for i, p in enumerate(placements))
