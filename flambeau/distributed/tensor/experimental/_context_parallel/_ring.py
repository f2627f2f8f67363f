"""Ring attention: each rank has a part of the sequence, and keys and values rotate.

Each rank applies its own queries to every part of the keys and values, and merges the results by the log-sum-exp of the weights; so the
result is that of the whole sequence, and no rank ever holds all of it. Positions decide what a causal query may see, so a rank's part need
not be contiguous: with load balancing it has one part from the front and one from the back, and all ranks have equal work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

from .....autograd.function import Function
from .....core.dtype import float32
from .....core.tensor import Tensor
from .....ops import namespace
from .....ops.nn import attention
from .... import _functional_collectives as funcol
from .... import groups
from ....device_mesh import DeviceMesh
from ..._dtensor import DTensor
from ...placement_types import Shard
from ._load_balancer import _cp_options, _head_and_tail, _RotateMethod

_torch = namespace("torch")


class _CausalBehavior(Enum):
    """Treatment of another rank's keys: skip them, use all of them, or use those that are not later."""

    SKIP = None
    NOT_IS_CAUSAL = False
    IS_CAUSAL = True


def set_rotate_method(rotate_method: str) -> None:
    """Set how keys and values reach the other ranks: "allgather", all at once, or "alltoall", round by round."""
    methods = {"allgather": _RotateMethod.ALL_GATHER, "alltoall": _RotateMethod.ALL_TO_ALL}
    if rotate_method not in methods:
        raise NotImplementedError(f"Context Parallel does not support using {rotate_method} for kv shards rotation")
    _cp_options.rotate_method = methods[rotate_method]


def _is_causal_behavior(rank: int, world_size: int, i: int, is_causal: bool) -> _CausalBehavior:
    """Return how a rank treats the keys that reach it in round i."""
    if not is_causal:
        return _CausalBehavior.NOT_IS_CAUSAL
    if i == 0:
        return _CausalBehavior.IS_CAUSAL
    earlier = (rank - i) % world_size < rank
    return _CausalBehavior.NOT_IS_CAUSAL if earlier or _cp_options.enable_load_balance else _CausalBehavior.SKIP


def _positions(length: int, parts: int, rank: int, balanced: bool) -> list[int]:
    """Return the positions of the sequence that a rank holds."""
    size = length // parts
    order = _head_and_tail(0, length, parts) if balanced else range(length)
    return list(order[rank * size : (rank + 1) * size])


def _attend_spread(
    query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool, scale: Any, groups: bool
) -> Any:
    """Compute attention of DTensors that are sharded along the sequence; NotImplemented for others."""
    cut = Shard(query.ndim - 2)
    if not isinstance(query, DTensor) or cut not in query.placements:
        return NotImplemented
    mesh, along = query.device_mesh, query.placements.index(cut)
    line = mesh if mesh.ndim == 1 else mesh[(mesh.mesh_dim_names or ())[along]]
    balanced = _cp_options.enable_load_balance and query.shape[-2] % (2 * line.size()) == 0
    parts: Any = [t.redistribute(placements=query.placements).to_local() for t in (query, key, value)]
    found = _Ring(line, balanced)(parts[0], parts[1], parts[2], mask, dropout, causal, scale, groups)
    return DTensor.from_local(found, mesh, query.placements, run_check=False)


def _enable_context_parallel_dispatcher() -> None:
    """Switch on ring attention for distributed tensors sharded along the sequence."""
    attention.around.attend = _attend_spread


def _disable_context_parallel_dispatcher() -> None:
    """Switch off ring attention: distributed tensors sharded along the sequence are gathered first."""
    attention.around.attend = None


class _Passed(Function):
    """Autograd function that receives a tensor from the rank `step` places before; its gradient is sent back there."""

    @staticmethod
    def forward(ctx: Any, mine: Tensor, group: Any, step: int) -> Tensor:
        ctx.group, ctx.step = group, step
        size = groups.get_world_size(funcol._resolve_group(group))
        return funcol.permute_tensor(mine, [(r + step) % size for r in range(size)], group, now=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        return _Passed.apply(gradient, ctx.group, -ctx.step), None, None


class _Ring:
    """Attention of this rank's queries with every rank's keys and values."""

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
        if _cp_options.rotate_method is _RotateMethod.ALL_GATHER:
            both = funcol.all_gather_tensor_autograd(both, both.ndim - 2, (self.mesh, 0))
            everybody = [p for r in range(size) for p in _positions(length, size, r, self.balanced)]
            hidden = self._hidden(own, everybody, query) if causal else None
            return _attended(query * factor, both[..., :width], both[..., width:], hidden)[0].to(given)
        total = logs = None
        for turn in range(size):
            if turn:
                both = _Passed.apply(both, (self.mesh, 0), 1)
            theirs = _positions(length, size, (rank - turn) % size, self.balanced)
            if causal and max(own) < min(theirs):
                continue
            hidden = self._hidden(own, theirs, query) if causal else None
            found, sums = _attended(query * factor, both[..., :width], both[..., width:], hidden)
            total, logs = (found, sums) if total is None else _joined(total, logs, found, sums)
        assert total is not None
        return total.to(given)

    @staticmethod
    def _hidden(own: Sequence[int], theirs: Sequence[int], like: Tensor) -> Tensor | None:
        if min(own) >= max(theirs):
            return None
        rows, columns = (_torch["tensor"](list(p), device=like.device) for p in (own, theirs))
        return rows.unsqueeze(1) < columns


def _attended(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the attention to one part of the keys, and the log-sum-exp of its weights."""
    scores = query @ key.mT
    if hidden is not None:
        scores = scores.masked_fill(hidden, -float("inf"))
    largest = scores.detach().amax(-1, keepdim=True).clamp_min(-1e30)
    weights = (scores - largest).exp()
    total = weights.sum(-1, keepdim=True)
    nothing = total == 0
    return (weights @ value) / total.masked_fill(nothing, 1), total.masked_fill(nothing, 1e-38).log() + largest


def _joined(one: Tensor, logs: Any, other: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """Merge two partial results by the log-sum-exp of their weights."""
    share = (sums - logs).sigmoid()
    return one + share * (other - one), _torch["logaddexp"](logs, sums)
