"""Sparse tensors on the GPU: values move there, and the places of entries are looked at on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.tensor import Tensor, copy_of_array, numel_of
from ..creation.filled import fill_raw
from ..machinery.inplace import raw_copy
from ..sparse.coo import add_at
from ..sparse.products import rows_times_matrix, sampled_products


def _there(array: Any, like: Tensor) -> Tensor:
    """An index array of the host on the device of a tensor."""
    return copy_of_array(np.ascontiguousarray(array, np.int64), dt.int64).to(like.device)  # type: ignore[attr-defined]


@add_at.on("cuda")
def _(out: Tensor, keys: np.ndarray, values: Tensor) -> None:
    width = numel_of(values.shape[1:])
    rows = numel_of(out.shape) // width if width else 0
    if keys.size and rows:
        places = _there(keys, out)
        table: Any = out.view(rows, width)  # type: ignore[attr-defined]
        if out.dtype is dt.bool_:
            counted = table.to(dt.int32).index_add_(0, places, values.reshape(-1, width).to(dt.int32))  # type: ignore[attr-defined]
            table.copy_(counted != 0)
        else:
            table.index_add_(0, places, values.reshape(-1, width))  # type: ignore[attr-defined]


@rows_times_matrix.on("cuda")
def _(out: Tensor, starts: np.ndarray, order: Any, columns: np.ndarray, values: Tensor, table: Tensor) -> None:
    fill_raw(out, 0)
    rows = np.repeat(np.arange(out.shape[0]), np.diff(starts))
    entries: Any = values
    if order is not None:
        entries, columns = values.index_select(0, _there(order, values)), columns[order]  # type: ignore[attr-defined]
    if rows.size:
        products = entries.unsqueeze(1) * table.index_select(0, _there(columns, table))  # type: ignore[attr-defined]
        out.index_add_(0, _there(rows, out), products.to(out.dtype))  # type: ignore[attr-defined]


@sampled_products.on("cuda")
def _(out: Tensor, rows: np.ndarray, columns: np.ndarray, left: Tensor, right: Tensor) -> None:
    a: Any = left.index_select(0, _there(rows, left))  # type: ignore[attr-defined]
    b: Any = right.index_select(0, _there(columns, right))  # type: ignore[attr-defined]
    raw_copy(out, (a * b).sum(1))
