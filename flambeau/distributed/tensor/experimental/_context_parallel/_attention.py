"""Ring attention: each rank has a part of the sequence, and keys and values go round.

Each rank meets every part of the keys and values with its own queries, and joins what it finds by the logarithms of the weights' sums; so
the result is that of the whole sequence, and no rank ever has all of it. Positions decide what a causal query may see, so a rank's part
need not be contiguous: with load balancing it has one from the front and one from the back, and all have equally much to do."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .....autograd.function import Function
from .....core.dtype import float32
from .....core.tensor import Tensor
from .....ops import namespace
from .....ops.nn import attention
from .... import _functional_collectives as funcol
from ....device_mesh import DeviceMesh

_torch = namespace("torch")


@dataclass
class _Options:
    """`enable_load_balance`: whether ranks have parts from the front and the back. `rotate_method`: how parts go round."""

    convert_to_f32: bool = True
    enable_load_balance: bool = True
    rotate_method: str = "allgather"


_cp_options = _Options()


def set_rotate_method(rotate_method: str) -> None:
    """How keys and values reach the other ranks: "allgather", all at once, or "alltoall", round by round."""
    if rotate_method not in ("allgather", "alltoall"):
        raise NotImplementedError(f"Context Parallel does not support using {rotate_method} for kv shards rotation")
    _cp_options.rotate_method = rotate_method


def _positions(length: int, parts: int, rank: int, balanced: bool) -> list[int]:
    """Which positions of the sequence a rank has."""
    if not balanced:
        size = length // parts
        return list(range(rank * size, (rank + 1) * size))
    size = length // (2 * parts)
    last = 2 * parts - 1 - rank
    return [*range(rank * size, (rank + 1) * size), *range(last * size, (last + 1) * size)]


def _check(length: int, parts: int, balanced: bool) -> None:
    unit = 2 * parts if balanced else parts
    if length % unit:
        raise ValueError(f"the sequence of length {length} cannot be cut into {unit} equal parts")


def _part(tensor: Tensor, dim: int, mesh: DeviceMesh, balanced: bool) -> Tensor:
    _check(tensor.shape[dim], mesh.size(), balanced)
    where = _positions(tensor.shape[dim], mesh.size(), mesh.get_local_rank(), balanced)
    return tensor.index_select(dim, _torch["tensor"](where, device=tensor.device))


@contextlib.contextmanager
def context_parallel(
    mesh: DeviceMesh,
    *,
    buffers: list[Tensor] | None = None,
    buffer_seq_dims: list[int] | None = None,
    no_restore_buffers: set[Tensor] | None = None,
) -> Iterator[None]:
    """Inside, each rank has a part of the `buffers` along their dimensions `buffer_seq_dims`, and `scaled_dot_product_attention` of such
    parts is that of the whole. Afterwards buffers are whole again, except `no_restore_buffers`."""
    given, dims = list(buffers or ()), list(buffer_seq_dims or ())
    if len(given) != len(dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    kept = {id(b) for b in no_restore_buffers or ()}
    if any(not any(b is g for g in given) for b in no_restore_buffers or ()):
        raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
    balanced = _cp_options.enable_load_balance
    wholes = [b.detach() for b in given]
    for b, dim in zip(given, dims):
        b._adopt(_part(b.detach(), dim, mesh, balanced))
    before, attention.around.attend = attention.around.attend, _Ring(mesh, balanced)
    try:
        yield
    finally:
        attention.around.attend = before
        for b, whole in zip(given, wholes):
            if id(b) not in kept:
                b._adopt(whole)


def context_parallel_unshard(
    mesh: DeviceMesh, buffers: list[Tensor], seq_dims: list[int], load_balancer: Any = None
) -> list[Tensor]:
    """The whole tensors whose parts the ranks have."""
    return [_whole(b, dim, mesh, _cp_options.enable_load_balance) for b, dim in zip(buffers, seq_dims)]


def _whole(part: Tensor, dim: int, mesh: DeviceMesh, balanced: bool) -> Tensor:
    found = funcol.all_gather_tensor(part, dim, (mesh, 0), now=True)
    order: list[int] = []
    for rank in range(mesh.size()):
        order += _positions(found.shape[dim], mesh.size(), rank, balanced)
    places = [0] * len(order)
    for i, position in enumerate(order):
        places[position] = i
    return found.index_select(dim, _torch["tensor"](places, device=found.device))


class _Passed(Function):
    """What the rank before has; its gradient goes back there."""

    @staticmethod
    def forward(ctx: Any, mine: Tensor, group: Any, step: int) -> Tensor:
        ctx.group, ctx.step = group, step
        size = funcol._size(funcol._resolve_group(group))
        return funcol.permute_tensor(mine, [(r + step) % size for r in range(size)], group, now=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        return _Passed.apply(gradient, ctx.group, -ctx.step), None, None


class _Ring:
    """Attention of this rank's queries with everybody's keys and values."""

    def __init__(self, mesh: DeviceMesh, balanced: bool) -> None:
        self.mesh, self.balanced = mesh, balanced

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any,
        dropout: float,
        causal: bool,
        scale: Any,
        groups: bool,
    ) -> Tensor:
        if mask is not None:
            raise NotImplementedError("attn_mask is not supported where the sequence is spread over ranks")
        if dropout:
            raise NotImplementedError("dropout_p is not supported where the sequence is spread over ranks")
        size, rank = self.mesh.size(), self.mesh.get_local_rank()
        if groups and key.shape[-3] != query.shape[-3]:
            times = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
        factor = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
        given = query.dtype
        if given.itemsize < 4:
            query, key, value = query.to(float32), key.to(float32), value.to(float32)
        length = query.shape[-2] * size
        own = _positions(length, size, rank, self.balanced)
        width = key.shape[-1]
        both = _torch["cat"]([key, value], -1)
        total = logs = None
        for turn in range(size):
            if turn:
                both = _Passed.apply(both, (self.mesh, 0), 1)
            theirs = _positions(length, size, (rank - turn) % size, self.balanced)
            if causal and own[-1] < theirs[0]:
                continue
            hidden = self._hidden(own, theirs, query) if causal else None
            found, sums = _attended(query * factor, both[..., :width], both[..., width:], hidden)
            total, logs = (found, sums) if total is None else _joined(total, logs, found, sums)
        assert total is not None
        return total.to(given)

    @staticmethod
    def _hidden(own: Sequence[int], theirs: Sequence[int], like: Tensor) -> Tensor | None:
        if own[0] >= theirs[-1]:
            return None
        rows, columns = (_torch["tensor"](list(p), device=like.device) for p in (own, theirs))
        return rows.unsqueeze(1) < columns


def _attended(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
    """The result of one part, and the logarithm of the sum of the weights it was divided by."""
    scores = query @ key.mT
    if hidden is not None:
        scores = scores.masked_fill(hidden, -float("inf"))
    largest = scores.detach().amax(-1, keepdim=True).clamp_min(-1e30)
    weights = (scores - largest).exp()
    total = weights.sum(-1, keepdim=True)
    nothing = total == 0
    return (weights @ value) / total.masked_fill(nothing, 1), total.masked_fill(nothing, 1e-38).log() + largest


def _joined(one: Tensor, logs: Any, other: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """Two results weighted by what each was divided by."""
    share = (sums - logs).sigmoid()
    return one + share * (other - one), _torch["logaddexp"](logs, sums)
