"""Redistribution: the collectives that change placements on a mesh."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...autograd.function import Function
from ...core.tensor import Tensor
from ...ops import namespace
from .. import _functional_collectives as funcol
from ._dtensor_spec import DTensorSpec
from ._utils import assert_no_mixed_partial_types
from .placement_types import Partial, Placement, Replicate, Shard, _is_shard_like

_torch = namespace("torch")


def redistribute_local_tensor(
    local_tensor: Tensor, current_spec: DTensorSpec, target_spec: DTensorSpec, *, async_op: bool = False, **_: Any
) -> Tensor:
    """Redistribute this rank's part of a tensor from `current_spec` to `target_spec`."""
    mesh = current_spec.mesh
    if mesh != target_spec.mesh:
        raise NotImplementedError("Cross device mesh comm not supported yet!")
    before, after = current_spec.cuts, target_spec.cuts
    if mesh.get_coordinate() is None or before == after:
        return local_tensor
    assert_no_mixed_partial_types(before)
    assert_no_mixed_partial_types(after)
    steps = _planned(tuple(current_spec.shape), mesh, before, after)
    tensor = local_tensor
    for step in _optimize_transform_infos(steps, mesh, before, after) if len(steps) > 1 else steps:
        tensor = _carried_out(tensor, step, mesh, async_op and step is steps[-1])
    return tensor


# -- the plan -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TransformInfo:
    """Step of a redistribution: a new placement on one dimension of the mesh. `logical_shape` is the common shape of the ranks along it."""

    mesh_dim: int
    src_dst_placements: tuple[Placement, Placement]
    logical_shape: Sequence[int]

    def __post_init__(self) -> None:
        if self.mesh_dim < 0 or self.src_dst_placements[0] == self.src_dst_placements[1]:
            raise AssertionError("TransformInfo should only be created if it is an op with some effect, not a no-op")

    def _comm_type_key(self) -> str | None:
        """Return the collective that the step needs; None if every rank can do it alone."""
        source, target = self.src_dst_placements
        if source.is_partial():
            return "all_reduce" if target.is_replicate() else "reduce_scatter" if _is_shard_like(target) else None
        if _is_shard_like(source):
            return "all_gather" if target.is_replicate() else "all_to_all" if _is_shard_like(target) else None
        return None


@dataclass(frozen=True)
class _FlattenedTransformInfo(_TransformInfo):
    """Steps along several dimensions of the mesh merged into one, along the flattened mesh. Averages along some are added, and divided by
    `avg_scale` at the end."""

    mesh: Any
    original_mesh_dims: tuple[int, ...]
    avg_scale: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.avg_scale is not None and self.avg_scale <= 1:
            raise AssertionError(f"avg_scale must be > 1 if set, got {self.avg_scale}")


def _planned(
    shape: tuple[int, ...], mesh: Any, before: tuple[Placement, ...], after: tuple[Placement, ...]
) -> list[_TransformInfo]:
    now, steps = list(before), list[_TransformInfo]()

    def step(i: int, wanted: Placement) -> None:
        if now[i].is_partial() and wanted.is_partial():
            raise AssertionError(
                f"Redistribution from one partial type ({now[i]}) to another ({wanted}) is unsupported."
            )
        logical = [_length(shape, mesh, now, i, dim) for dim in range(len(shape))]
        steps.append(_TransformInfo(i, (now[i], wanted), logical))
        now[i] = wanted

    for i in reversed(range(mesh.ndim)):
        if _must_be_gathered(now, after, i):
            step(i, Replicate())
    for i in range(mesh.ndim):
        if now[i] != after[i]:
            step(i, after[i])
    return steps


logger = logging.getLogger("torch.distributed.tensor._redistribute")  # the name that programs know it by
_warned_flatten_issues: set[tuple] = set()
_MERGED = ("all_gather", "all_reduce", "reduce_scatter")
_apart = [False]


@contextlib.contextmanager
def disable_redistribute_transform_optimization(disabled: bool = True) -> Iterator[None]:
    """Context manager: use a separate collective for every dimension of the mesh."""
    before, _apart[0] = _apart[0], disabled
    try:
        yield
    finally:
        _apart[0] = before


@contextlib.contextmanager
def use_min_cost_redistribution_plan(enabled: bool = True) -> Iterator[None]:
    """Context manager for PyTorch's plans of least cost. It has no effect: the planner here always minimises the number of steps."""
    yield


def _optimize_transform_infos(
    transform_infos: list[_TransformInfo],
    device_mesh: Any,
    src_placements: tuple[Placement, ...],
    dst_placements: tuple[Placement, ...],
) -> list[_TransformInfo]:
    """Merge successive collectives of one kind along several dimensions of the mesh, if the program has flattened these dimensions
    (`mesh["a", "b"]._flatten()`)."""
    if len(transform_infos) < 2 or _apart[0]:
        return transform_infos
    found: list[_TransformInfo] = []
    for kind, group in _alike(transform_infos):
        if kind not in _MERGED or len(group) < 2:
            found += group
            continue
        merged, problem = _merged(kind, group, device_mesh)
        if merged is None:
            _tell(device_mesh, group, (src_placements, dst_placements), kind, problem)
        found += group if merged is None else [merged]
    return found


def _alike(infos: list[_TransformInfo]) -> list[tuple[str | None, list[_TransformInfo]]]:
    """Return steps in groups that may be merged: of the same kind, where sums and averages count as one."""
    groups: list[tuple[str | None, list[_TransformInfo]]] = []
    for info in infos:
        kind = info._comm_type_key()
        if groups and kind in _MERGED and _same_step(groups[-1][1][0], info):
            groups[-1][1].append(info)
        else:
            groups.append((kind, [info]))
    return groups


def _same_step(one: _TransformInfo, other: _TransformInfo) -> bool:
    (source, target), (second, aim) = one.src_dst_placements, other.src_dst_placements
    sums = all(type(p) is Partial and p.linear for p in (source, second))
    return target == aim and (source == second or sums)


def _merged(kind: str, group: list[_TransformInfo], mesh: Any) -> tuple[_FlattenedTransformInfo | None, str]:
    """Return the step that replaces several, or the reason why there is none."""
    dims = [info.mesh_dim for info in group]
    if (kind == "reduce_scatter" and dims != sorted(dims)) or (kind == "all_gather" and dims != sorted(dims)[::-1]):
        return None, "non_ascending_mesh_dims"
    flat = _flattened_mesh(mesh, sorted(dims))
    if flat is None:
        return None, "no_flattened_mesh"
    source, target = group[0].src_dst_placements
    outermost = group[0]
    if kind != "all_reduce":
        cut = source if kind == "all_gather" else target
        assert _is_shard_like(cut)
        dim = cut.dim
        outermost = max(group, key=lambda info: info.logical_shape[dim])
        if outermost.logical_shape[dim] % math.prod(mesh.size(i) for i in dims):
            return None, "uneven_tensor_shape"
    scale = math.prod(mesh.size(i.mesh_dim) for i in group if i.src_dst_placements[0].is_partial("avg"))
    if scale > 1:
        source = Partial("sum")
    shape = outermost.logical_shape
    return _FlattenedTransformInfo(
        0, (source, target), shape, flat, tuple(sorted(dims)), scale if scale > 1 else None
    ), ""


def _flattened_mesh(mesh: Any, dims: list[int]) -> Any:
    """Return the one-dimensional mesh into which the program has flattened some dimensions, or None."""
    root, coordinate = mesh._root or mesh, mesh.get_coordinate()
    index = tuple(slice(None) if i in dims else coordinate[i] for i in range(mesh.ndim))
    ranks = mesh._array[index].reshape(-1).tolist()
    return next((flat for flat in root._flattened.values() if flat._array.tolist() == ranks), None)


def _tell(mesh: Any, group: list[_TransformInfo], way: tuple, kind: str, problem: str) -> None:
    """Warn once that several collectives run where one would suffice."""
    dims = tuple(sorted(info.mesh_dim for info in group))
    key = (hash(mesh), dims, problem)
    if key in _warned_flatten_issues:
        return
    _warned_flatten_issues.add(key)
    names = ", ".join(f'"{mesh.mesh_dim_names[i]}"' if mesh.mesh_dim_names else str(i) for i in dims)
    reasons = {
        "no_flattened_mesh": f"Flatten the mesh dimensions [{names}], and one operation does it.",
        "uneven_tensor_shape": "The tensor dimension is not evenly divisible by the ranks of all these mesh dimensions.",
        "non_ascending_mesh_dims": f"{kind} operations along mesh dimensions in non-ascending order cannot be one.",
    }
    logger.warning(
        "While redistributing from %s to %s, %d sequential %s operations will be performed. This is suboptimal: each waits for all"
        " ranks, and sums may differ in their last digits. %s", *way, len(group), kind, reasons[problem],
    )  # fmt: skip


def _must_be_gathered(now: list[Placement], wanted: tuple[Placement, ...], i: int) -> bool:
    """Return whether parts along mesh dimension i must be gathered first: another dimension of the mesh shards the same dimension of the
    tensor, and the order of sharding would change."""
    here, there = now[i], wanted[i]
    if not _is_shard_like(here):
        return False
    dim = here.dim
    others = [j for j in range(len(now)) if j != i and any(_cuts(p, dim) for p in (now[j], wanted[j]))]
    if here != there:
        return bool(others) or (_is_shard_like(there) and _shared(now, wanted, i, there.dim))
    return any(j < i and now[j] != wanted[j] for j in others)


def _shared(now: list[Placement], wanted: tuple[Placement, ...], i: int, dim: int) -> bool:
    return any(j != i and (_cuts(now[j], dim) or _cuts(wanted[j], dim)) for j in range(len(now)))


def _cuts(placement: Placement, dim: int) -> bool:
    return _is_shard_like(placement) and placement.dim == dim


def _length(shape: tuple[int, ...], mesh: Any, placements: list[Placement], i: int, dim: int) -> int:
    """Return the length of a dimension that the ranks along mesh dimension i have together, after sharding by the dimensions before it."""
    length = shape[dim]
    coordinate = mesh.get_coordinate()
    for j, placement in enumerate(placements[:i]):
        if _is_shard_like(placement) and placement.dim == dim:
            length = placement.sizes(length, mesh.size(j))[coordinate[j]]
    return length


# -- carrying it out ----------------------------------------------------------------------------------------------------------------


def _carried_out(tensor: Tensor, info: _TransformInfo, mesh: Any, later: bool = False) -> Tensor:
    """Carry out one step of a redistribution. With `later` the result need not be waited for yet."""
    placement: Any
    target: Any
    (placement, target), i, scale = info.src_dst_placements, info.mesh_dim, None
    if isinstance(info, _FlattenedTransformInfo):
        mesh, scale = info.mesh, info.avg_scale
    parts, rank = mesh.size(i), mesh.get_local_rank(i)
    if parts == 1:  # one rank has it all, however it is called
        return tensor
    if _is_shard_like(placement):
        if type(placement) is Shard and type(target) is Shard:
            length, other = info.logical_shape[placement.dim], info.logical_shape[target.dim]
            return exchanged(tensor, mesh, i, placement, target, length, other)
        tensor = placement._to_replicate_tensor(tensor, mesh, i, info.logical_shape, later)
    elif placement.is_partial() and _is_shard_like(target):
        tensor = placement._reduce_shard_value(tensor, mesh, i, target)
        return tensor if scale is None else tensor / scale
    elif placement.is_partial():
        if later and scale is None and type(placement) is Partial and target.is_replicate():
            return funcol.all_reduce(tensor, placement.reduce_op, (mesh, i))
        tensor = placement._reduce_value(tensor, mesh, i)
        tensor = tensor if scale is None else tensor / scale
    if _is_shard_like(target):
        return target.part_of(tensor, parts, rank)
    return target._partition_value(tensor, mesh, i) if target.is_partial() else tensor


def exchanged(tensor: Tensor, mesh: Any, i: int, before: Shard, after: Shard, length: int, other: int) -> Tensor:
    """Exchange shards along one dimension for shards along another: each rank sends each other one a piece."""
    parts, rank = mesh.size(i), mesh.get_local_rank(i)
    pieces, _ = after._split_tensor(tensor, parts, with_padding=False)
    sends = [piece.numel() for piece in pieces]
    flat = _torch["cat"]([piece.reshape(-1) for piece in pieces])
    mine = after.sizes(other, parts)[rank]
    shapes = []
    for size in before.sizes(length, parts):
        piece = list(tensor.shape)
        piece[before.dim], piece[after.dim] = size, mine
        shapes.append(tuple(piece))
    if tensor.device.type == "meta":  # shapes, and nothing to send
        return _torch["cat"]([tensor.new_empty(one) for one in shapes], before.dim)
    takes = [math.prod(one) for one in shapes]
    found = funcol.all_to_all_single(flat, takes, sends, (mesh, i), now=True)
    return _torch["cat"]([piece.reshape(one) for piece, one in zip(found.split(takes), shapes)], before.dim)


# Microseconds to begin and for each neighbour; bytes in one of them.
_START, _HOP, _BYTES = 6.6, 0.6, 87.7 * 1024**3 / 1e6


def redistribute_cost(placement: Placement, wanted: Placement, nbytes: float, parts: int) -> float:
    """Return the cost of redistributing one dimension of the mesh, in microseconds between GPUs of one machine, by PyTorch's model, so that
    placements are chosen as there. `nbytes`: of this rank's part. Infinite for impossible changes."""
    if placement == wanted:
        return 0.0
    if isinstance(wanted, Partial):
        return 0.0 if placement.is_replicate() and wanted.reduce_op != "product" else float("inf")
    if placement.is_replicate():
        return 0.0
    if placement.is_partial():
        return _ring(nbytes, parts, 1 if _is_shard_like(wanted) else 2)
    if _is_shard_like(wanted):
        return _ring(nbytes, parts, 1) + 1.0
    return _ring(nbytes * parts, parts, 1)


def _ring(nbytes: float, parts: int, rounds: int) -> float:
    hops = rounds * (parts - 1)
    return _START + hops * _HOP + nbytes * hops / parts / _BYTES


class Redistribute(Function):
    """Autograd function of `DTensor.redistribute`: the gradient gets the input's placements, with Partial replaced by Replicate."""

    @staticmethod
    def forward(
        ctx: Any, input: Any, device_mesh: Any, placements: Any, async_op: bool = False, dtypes: tuple = (None, None)
    ) -> Any:
        forward_dtype, backward_dtype = dtypes
        ctx.placements, ctx.dtype = input.placements, input.dtype
        ctx.backward_dtype = backward_dtype or input.dtype
        source = input if forward_dtype in (None, input.dtype) else input.to(forward_dtype)
        spec = source._spec.with_placements(tuple(placements))
        local = redistribute_local_tensor(source._local_tensor, source._spec, spec, async_op=async_op)
        return type(input)(local._bare_alias(), spec, requires_grad=False)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple:
        if gradient.dtype is not ctx.backward_dtype:
            gradient = gradient.to(ctx.backward_dtype)
        placements = tuple(
            Replicate() if was.is_partial() and not now.is_partial() else was
            for was, now in zip(ctx.placements, gradient.placements)
        )
        found = Redistribute.apply(gradient, gradient.device_mesh, placements, False, (None, None))
        return found if found.dtype is ctx.dtype else found.to(ctx.dtype), None, None, None, None
