"""Arithmetic on the indices of COO tensors: one key per entry, sorting, grouping, lookup."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.sparse import SparseCoo
from ...core.tensor import Tensor, copy_of_array, numel_of
from ...kernels.library import sparse as kernels
from ..machinery.memory import bare, values_on_host
from ..machinery.watched import watched
from .places import Places, repeated


def keys_of(indices: Any, sizes: tuple[int, ...]) -> np.ndarray:
    """Return each column of `indices` (rows) as one number, in row-major order of the places."""
    if numel_of(sizes) >= 1 << 63:
        raise RuntimeError(f"sparse sizes {list(sizes)} have more places than an int64 can count")
    if not sizes:
        return np.zeros(indices.shape[1], np.int64)
    keys, *others = indices
    for row, size in zip(others, sizes[1:]):
        keys = keys * size + row
    return keys


_NUMBERS = {"cpu": values_on_host}  # what there is besides memory that NumPy can see is a device's


@watched(reads_values=True, batching="each")
def on_host(t: Tensor) -> Any:
    """Return a tensor's values as an array: the entries decide what sparse operators do. On other devices than the CPU the numbers stay
    there, behind an array-like interface."""
    read = _NUMBERS.get(t.device.type)
    return Places(bare(t)) if read is None else read(t)


@watched(kind="creation")
def index_tensor(array: Any) -> Tensor:
    """Return a new int64 tensor with an array's values."""
    if isinstance(array, Places):
        return array.t.to(dt.int64).contiguous()
    return copy_of_array(np.ascontiguousarray(array, np.int64), dt.int64)


def packed(array: Any) -> Any:
    """Return an array whose elements are contiguous."""
    return Places(array.t.contiguous()) if isinstance(array, Places) else np.ascontiguousarray(array)


def not_zero(t: Tensor) -> Any:
    """Return as an array where a tensor of any dtype is not zero."""
    return on_host(t._bare_alias().ne(0))


def within_bounds(t: Any) -> Any:
    """Return the tensor itself; raise if an index is outside its shape, on which kernels rely."""
    if not t._in_bounds:
        for i, row in enumerate(on_host(t._index_part)):
            if row.size and (row.min() < 0 or row.max() >= t.shape[i]):
                bad = row.min() if row.min() < 0 else row.max()
                what = f"found negative index {bad}" if bad < 0 else f"but found index {bad}"
                raise RuntimeError(f"size is inconsistent with indices: for dim {i}, size is {t.shape[i]} {what}")
        t._in_bounds = True
    return t


def entry_keys(t: SparseCoo) -> np.ndarray:
    """Return the key of every entry; raise if an index is outside the tensor."""
    indices = on_host(within_bounds(t)._index_part)
    return keys_of(indices, tuple(t.shape[: indices.shape[0]]))


def places_of(keys: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Return the coordinates that keys stand for: the inverse of keys_of."""
    rows, rest = [], keys
    for size in reversed(sizes):
        rows.append(rest % max(size, 1))
        rest = rest // max(size, 1)
    return np.stack(rows[::-1]) if rows else np.zeros((0, keys.size), np.int64)


def compressed_entries(starts: Any, places: Any) -> tuple[Any, Any]:
    """Return the line of every entry of a batch of compressed matrices, counted over all of them, and its place in the line."""
    counts = np.diff(starts).reshape(-1)
    return repeated(np.arange(counts.size), counts), places.reshape(-1).astype(np.int64)


def grouped(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a stable order of the keys, the group of each entry in that order, and each group's first entry in it."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    new = np.concatenate([np.ones(min(keys.size, 1), bool), ordered[1:] != ordered[:-1]])
    return order, np.cumsum(new) - 1, np.flatnonzero(new)


def groups_of(keys: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the number of each entry's group, and the number of groups."""
    order, group, first = grouped(keys)
    return group[np.argsort(order, kind="stable")], first.size


def found_at(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where each wanted key is among the sorted `keys`, and whether it occurs."""
    if not keys.size:
        return np.zeros(wanted.size, np.int64), np.zeros(wanted.size, bool)
    at = np.searchsorted(keys, wanted).clip(None, keys.size - 1)
    return at, keys[at] == wanted


@watched(batching="each")
def merged(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where the entries of two lists go in their merged list, and that list (see kernels.merge_places)."""
    if isinstance(a, Places):
        keys: Any = np.unique(np.concatenate([a, b]))
        return np.searchsorted(keys, a), np.searchsorted(keys, b), keys
    place_a, place_b = np.empty(a.size, np.int64), np.empty(b.size, np.int64)
    total = np.zeros(1, np.int64)
    if a.size + b.size:
        kernels.merge_places(place_a, place_b, total, a, b, a.size, b.size)
    both = np.empty(total[0], np.int64)
    both[place_a], both[place_b] = a, b
    return place_a, place_b, both


@watched(batching="each")
def by_row(rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return where each of `count` rows starts, and the order that lists entries by row: None if they are sorted already."""
    if not rows.size or (rows[1:] >= rows[:-1]).all():
        return np.searchsorted(rows, np.arange(count + 1)).astype(np.int64), None
    if isinstance(rows, Places):
        by: Any = np.argsort(rows, kind="stable")
        return np.searchsorted(rows[by], np.arange(count + 1)), by
    starts, order = np.empty(count + 1, np.int64), np.empty(rows.size, np.int64)
    kernels.sort_by_row(order, starts, rows, rows.size, count)
    return starts, order
