"""Arithmetic on the indices of COO tensors: one key per entry, sorting, grouping, looking up."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.sparse import SparseCoo
from ...core.tensor import Tensor, copy_of_array, numel_of
from ...kernels.library import sparse as kernels
from ..machinery.memory import values_on_host
from ..machinery.watched import watched


def keys_of(indices: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Each column of `indices` as one number, in row-major order of the places."""
    if numel_of(sizes) >= 1 << 63:
        raise RuntimeError(f"sparse sizes {list(sizes)} have more places than an int64 can count")
    keys = np.zeros(indices.shape[1], np.int64)
    for row, size in zip(indices, sizes):
        keys *= size
        keys += row
    return keys


@watched(reads_values=True, batching="each")
def on_host(t: Tensor) -> np.ndarray:
    """What a tensor holds, as an array: which entries there are decides what sparse operators do."""
    return values_on_host(t)


@watched(kind="creation")
def index_tensor(array: Any) -> Tensor:
    """A new tensor of int64 with an array's values."""
    return copy_of_array(np.ascontiguousarray(array, np.int64), dt.int64)


def within_bounds(t: Any) -> Any:
    """The tensor itself; raises if an index lies outside its shape: kernels rely on it."""
    if not t._in_bounds:
        for i, row in enumerate(on_host(t._index_part)):
            if row.size and (row.min() < 0 or row.max() >= t.shape[i]):
                bad = row.min() if row.min() < 0 else row.max()
                what = f"found negative index {bad}" if bad < 0 else f"but found index {bad}"
                raise RuntimeError(f"size is inconsistent with indices: for dim {i}, size is {t.shape[i]} {what}")
        t._in_bounds = True
    return t


def entry_keys(t: SparseCoo) -> np.ndarray:
    """The key of every entry; raises where an index lies outside the tensor."""
    indices = on_host(within_bounds(t)._index_part)
    return keys_of(indices, tuple(t.shape[: indices.shape[0]]))


def places_of(keys: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """The inverse of keys_of."""
    rows = np.empty((len(sizes), keys.size), np.int64)
    rest = keys
    for i in range(len(sizes) - 1, -1, -1):
        rest, rows[i] = np.divmod(rest, max(sizes[i], 1))
    return rows


def grouped(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A stable order of the keys, the group each entry of that order belongs to, and each group's first entry in it."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    new = np.ones(keys.size, bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return order, np.cumsum(new) - 1, np.flatnonzero(new)


def groups_of(keys: np.ndarray) -> tuple[np.ndarray, int]:
    """For every entry the number of its group, and how many groups there are."""
    order, group, first = grouped(keys)
    result = np.empty(keys.size, np.int64)
    result[order] = group
    return result, first.size


def found_at(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each wanted key stands among the sorted `keys`, and whether it does at all."""
    if not keys.size:
        return np.zeros(wanted.size, np.int64), np.zeros(wanted.size, bool)
    at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return at, keys[at] == wanted


@watched(batching="each")
def merged(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Where the entries of two lists go in their merged list, and how long that is (see kernels.merge_places)."""
    place_a, place_b = np.empty(a.size, np.int64), np.empty(b.size, np.int64)
    total = np.zeros(1, np.int64)
    if a.size + b.size:
        kernels.merge_places(place_a, place_b, total, a, b, a.size, b.size)
    return place_a, place_b, int(total[0])


@watched(batching="each")
def by_row(rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Where each of `count` rows starts, and the order that lists entries by row: None if they lie that way already."""
    if not rows.size or (rows[1:] >= rows[:-1]).all():
        return np.searchsorted(rows, np.arange(count + 1)).astype(np.int64), None
    starts, order = np.empty(count + 1, np.int64), np.empty(rows.size, np.int64)
    kernels.sort_by_row(order, starts, rows, rows.size, count)
    return starts, order
