"""From one way of lying on a mesh to another: which collectives it takes."""

from __future__ import annotations

from typing import Any

from ...autograd.function import Function
from ...core.tensor import Tensor
from ...ops import namespace
from .. import _functional_collectives as funcol
from ._dtensor_spec import DTensorSpec
from ._utils import assert_no_mixed_partial_types
from .placement_types import Partial, Placement, Replicate, Shard, _is_shard_like, padded

_torch = namespace("torch")


def redistribute_local_tensor(
    local_tensor: Tensor, current_spec: DTensorSpec, target_spec: DTensorSpec, *, async_op: bool = False, **_: Any
) -> Tensor:
    """The part of this rank of a tensor that lies as `current_spec` says, as `target_spec` wants it."""
    mesh = current_spec.mesh
    if mesh != target_spec.mesh:
        raise NotImplementedError("Cross device mesh comm not supported yet!")
    now, wanted = list(current_spec.cuts), target_spec.cuts
    assert_no_mixed_partial_types(now)
    assert_no_mixed_partial_types(wanted)
    if mesh.get_coordinate() is None or tuple(now) == wanted:
        return local_tensor
    shape = tuple(current_spec.shape)
    tensor = local_tensor
    for i in reversed(range(mesh.ndim)):
        if _must_be_gathered(now, wanted, i):
            tensor = _step(tensor, shape, mesh, now, i, Replicate())
    steps = [i for i in range(mesh.ndim) if now[i] != wanted[i]]
    for i in steps:
        tensor = _step(tensor, shape, mesh, now, i, wanted[i], async_op and i == steps[-1])
    return tensor


def _must_be_gathered(now: list[Placement], wanted: tuple[Placement, ...], i: int) -> bool:
    """Whether parts along mesh dimension i must be put together first: another dimension of the mesh cuts the same dimension of the
    tensor, and the order in which they do so would change."""
    if not _is_shard_like(now[i]):
        return False
    dim = now[i].dim  # type: ignore[attr-defined]
    others = [j for j in range(len(now)) if j != i and any(_cuts(p, dim) for p in (now[j], wanted[j]))]
    if now[i] != wanted[i]:
        return bool(others) or (_is_shard_like(wanted[i]) and _shared(now, wanted, i))
    return any(j < i and now[j] != wanted[j] for j in others)


def _shared(now: list[Placement], wanted: tuple[Placement, ...], i: int) -> bool:
    dim = wanted[i].dim  # type: ignore[attr-defined]
    return any(j != i and (_cuts(now[j], dim) or _cuts(wanted[j], dim)) for j in range(len(now)))


def _cuts(placement: Placement, dim: int) -> bool:
    return _is_shard_like(placement) and placement.dim == dim  # type: ignore[attr-defined]


def _length(shape: tuple[int, ...], mesh: Any, placements: list[Placement], i: int, dim: int) -> int:
    """How long a dimension is for the ranks along mesh dimension i together, which those before it have cut already."""
    length = shape[dim]
    coordinate = mesh.get_coordinate()
    for j in range(i):
        if _cuts(placements[j], dim):
            length = placements[j].sizes(length, mesh.size(j))[coordinate[j]]  # type: ignore[attr-defined]
    return length


def _step(
    tensor: Tensor,
    shape: tuple[int, ...],
    mesh: Any,
    now: list[Placement],
    i: int,
    wanted: Placement,
    later: bool = False,
) -> Tensor:
    """One dimension of the mesh to another placement; `now` is told. `later`: nobody need wait for the result yet."""
    placement: Any = now[i]
    target: Any = wanted
    parts, rank = mesh.size(i), mesh.get_local_rank(i)
    if parts == 1:  # one rank has it all, however it is called
        now[i] = wanted
        return tensor
    if _is_shard_like(placement):
        length = _length(shape, mesh, now, i, placement.dim)
        if type(placement) is Shard and type(wanted) is Shard:
            other = _length(shape, mesh, now, i, target.dim)
            tensor = exchanged(tensor, mesh, i, placement, target, length, other)
            now[i] = wanted
            return tensor
        longest = max(placement.sizes(length, parts))
        filled = padded(tensor, placement.dim, longest - tensor.shape[placement.dim])
        as_it_comes = later and placement == Shard(0) and longest * parts == length
        gathered = funcol.all_gather_tensor(filled, placement.dim, (mesh, i), now=not as_it_comes)
        tensor = gathered if as_it_comes else placement.whole_of(gathered, length, parts)
        if not as_it_comes and not tensor.is_contiguous():
            tensor = tensor.contiguous()
    elif placement.is_partial():
        if _is_shard_like(wanted):
            tensor = placement._reduce_shard_value(tensor, mesh, i, wanted)
            now[i] = wanted
            return tensor
        if later and type(placement) is Partial and wanted.is_replicate():
            tensor = funcol.all_reduce(tensor, placement.reduce_op, (mesh, i))
        else:
            tensor = placement._reduce_value(tensor, mesh, i)
    if _is_shard_like(wanted):
        tensor = target.part_of(tensor, parts, rank)
    elif wanted.is_partial():
        tensor = target._partition_value(tensor, mesh, i)
    now[i] = wanted
    return tensor


def exchanged(tensor: Tensor, mesh: Any, i: int, before: Shard, after: Shard, length: int, other: int) -> Tensor:
    """Parts along one dimension to parts along another: each rank sends each other one a piece."""
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
    takes = [_product(one) for one in shapes]
    found = funcol.all_to_all_single(flat, takes, sends, (mesh, i), now=True)
    return _torch["cat"]([piece.reshape(one) for piece, one in zip(found.split(takes), shapes)], before.dim)


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


_START, _HOP, _BYTES = (
    6.6,
    0.6,
    87.7 * 1024**3 / 1e6,
)  # microseconds to begin and for each neighbour; bytes in one of them


def redistribute_cost(placement: Placement, wanted: Placement, nbytes: float, parts: int) -> float:
    """How dear one dimension of the mesh is, in microseconds between GPUs of one machine (as PyTorch reckons, so that tensors come to
    lie as they do there). `nbytes`: of this rank's part. Infinite for what makes no sense."""
    if placement == wanted or parts == 1:
        return 0.0
    if wanted.is_partial():
        return 0.0 if placement.is_replicate() and wanted.reduce_op != "product" else float("inf")  # type: ignore[attr-defined]
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
    """`DTensor.redistribute`; the gradient goes back to where its tensor was, values waiting for a sum excepted: those need it whole."""

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
