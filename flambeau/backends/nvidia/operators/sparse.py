"""Sparse tensors on NVIDIA GPUs: adding values at places, and products of sparse matrices with dense ones.

Rows are summed in a fixed order: each belongs to one thread block."""

from __future__ import annotations

from typing import Any

from ....core import dtype as dt
from ....core.tensor import Tensor, numel_of
from ....kernels.library import sparse as kernels
from ....ops.creation.filled import fill_raw
from ....ops.machinery.inplace import raw_copy
from ....ops.machinery.memory import bare, dense
from ....ops.machinery.record import lookup
from ....ops.sparse.coo import add_at
from ....ops.sparse.index import index_tensor
from ....ops.sparse.products import rows_times_matrix, sampled_products


@add_at.on("cuda")
def _(out: Tensor, keys: Any, values: Tensor) -> None:
    width = numel_of(values.shape[1:])
    rows = numel_of(out.shape) // width if width else 0
    if not keys.size or not rows:
        return
    table: Any = bare(out).reshape(rows, width)
    places, given = _numbers(keys, out), bare(values).reshape(-1, width)
    if out.dtype is dt.bool_:
        counts = table.to(dt.int64).index_add(0, places, given.to(dt.int64))
        raw_copy(table, counts != 0)
    else:
        raw_copy(table, table.index_add(0, places, given.to(out.dtype)))


def _numbers(keys: Any, out: Tensor) -> Any:
    """Return indices as a tensor on the device of `out`."""
    found: Any = index_tensor(keys)
    return found.to(out.device)


@rows_times_matrix.on("cuda")
def _(out: Tensor, starts: Any, order: Any, columns: Any, values: Tensor, table: Tensor) -> None:
    n, width = out.shape
    begins, places = _numbers(starts, out), _numbers(columns, out)
    sequence = None if order is None else _numbers(order, out)
    if table.dtype.is_complex:
        held, rows = (bare(values), bare(table))  # type: tuple[Any, Any]
        if sequence is not None:
            held, places = held.index_select(0, sequence), places.index_select(0, sequence)
        fill_raw(out, 0)
        total: Any = bare(out)
        raw_copy(out, total.index_add(0, _lines(begins), held.unsqueeze(1) * rows.index_select(0, places)))
        return
    kernels.rows_times_matrix(out, begins, sequence, places, dense(values), dense(table), n, width, values.shape[0])


def _lines(begins: Any) -> Any:
    """Return the row of each entry of a compressed sparse tensor."""
    counts = begins.diff()
    rows = lookup("arange").function(counts.shape[0], device=begins.device)
    return rows.repeat_interleave(counts)


@sampled_products.on("cuda")
def _(out: Tensor, rows: Any, columns: Any, left: Tensor, right: Tensor) -> None:
    places, others = _numbers(rows, out), _numbers(columns, out)
    kernels.sampled_products(out, places, others, dense(left), dense(right), rows.size, left.shape[1])
