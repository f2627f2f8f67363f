"""Sum of sparse tensors of all ranks, by gathering every rank's indices and values."""

from __future__ import annotations

from typing import Any

from ..core.graph import unrecorded
from ..core.sparse import SparseCoo
from ..core.tensor import Tensor
from ..ops import namespace
from .pieces import memory_of
from .reduce_op import RedOpType


def _gather(engine: Any, tensor: Tensor, counts: list[int], timeout: float) -> list[Tensor]:
    """Gather the tensors of all ranks, which differ in their first size only."""
    torch = namespace("torch")
    outputs = [torch["empty"]((n, *tensor.shape[1:]), dtype=tensor.dtype) for n in counts]
    engine.all_to_all([memory_of(tensor)] * engine.size, [memory_of(o) for o in outputs], timeout)
    return outputs


def sparse_all_reduce(engine: Any, tensor: Any, op: RedOpType, timeout: float) -> None:
    """Replace a sparse tensor by the coalesced sum of the tensors of all ranks, in place."""
    if op is not RedOpType.SUM:
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with sparse tensors: only SUM is supported")
    if not isinstance(tensor, SparseCoo):
        raise RuntimeError("all_reduce of sparse tensors needs the COO layout")
    torch = namespace("torch")

    def reduce() -> None:
        own = tensor.detach().coalesce()
        indices, values = own.indices().t().contiguous(), own.values().contiguous()
        mine = torch["tensor"]([indices.shape[0]])
        counts = [torch["zeros"](1, dtype=mine.dtype) for _ in range(engine.size)]
        engine.all_gather(memory_of(mine), [memory_of(c) for c in counts], timeout)
        sizes = [int(c) for c in counts]
        all_indices = torch["cat"](_gather(engine, indices, sizes, timeout)).t()
        all_values = torch["cat"](_gather(engine, values, sizes, timeout))
        total = torch["sparse_coo_tensor"](all_indices, all_values, tuple(tensor.shape)).coalesce()
        tensor.copy_(total)

    unrecorded(reduce)
