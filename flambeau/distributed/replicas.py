"""Consistency of a model's replicas: parameters are compared, tensors of one rank broadcast to the others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ..core.dtype import BY_NAME
from ..core.graph import unrecorded
from ..core.tensor import Tensor, empty
from . import records
from .buckets import assign_by_size
from .object_collectives import _object_to_tensor, _tensor_to_object
from .process_group import ProcessGroup


def _broadcast_coalesced(
    process_group: ProcessGroup, tensors: Sequence[Tensor], buffer_size: int, src: int = 0
) -> None:
    """Broadcast rank `src`'s tensors, several of them in one message."""
    if not tensors:
        return
    for indices in assign_by_size(tensors, [buffer_size])[0]:
        parts = [tensors[i] for i in indices]
        flat = empty((sum(p.numel() for p in parts),), parts[0].dtype, parts[0].device)
        starts = list(itertools.accumulate([0, *(p.numel() for p in parts)]))
        pieces = [unrecorded(lambda a=a, b=b, whole=flat: whole[a:b]) for a, b in itertools.pairwise(starts)]
        if process_group.rank() == src:
            for piece, part in zip(pieces, parts):
                unrecorded(piece.copy_, part.detach().reshape(-1))
        records.broadcast_(flat, src, process_group)
        if process_group.rank() != src:
            for piece, part in zip(pieces, parts):
                unrecorded(part.detach().copy_, unrecorded(piece.view, part.shape))


def _verify_params_across_processes(process_group: ProcessGroup, tensors: Sequence[Tensor], logger: Any = None) -> None:
    """Raise unless all ranks have parameters of the same shapes."""
    mine = [[str(t.dtype), list(t.shape)] for t in tensors]
    told = _gather_objects(process_group, mine)
    for rank, theirs in enumerate(told):
        if theirs == mine:
            continue
        if len(theirs) != len(mine):
            message = (
                f"DDP expects same model across all ranks, but Rank {process_group.rank()} has {len(mine)} params, while rank"
                f" {rank} has inconsistent {len(theirs)} params."
            )
        else:
            place = next(i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b)
            message = (
                f"[{process_group.rank()}]: params[{place}] in this process with sizes {mine[place][1]} appears not to match sizes"
                f" of the same param in process {rank}."
            )
        if logger is not None:
            logger.set_error_and_log(message)
        raise RuntimeError(message)


def _gather_objects(group: ProcessGroup, value: Any) -> list:
    data, size = _object_to_tensor(value)
    sizes = [empty((1,), BY_NAME["int64"]) for _ in range(group.size())]
    records.all_gather_(sizes, size, group)
    outputs = [empty((int(n),), BY_NAME["uint8"]) for n in sizes]
    records.all_gather_(outputs, data, group)
    return [_tensor_to_object(output, int(n)) for output, n in zip(outputs, sizes)]
