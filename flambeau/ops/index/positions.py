"""Places in memory that index tensors and masks select."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core import watching
from ...core.backend import BACKENDS
from ...core.caching import remember
from ...core.device import device
from ...core.layout import broadcast_shapes, output_strides
from ...core.size import make_size
from ...core.tensor import Tensor, contiguous_strides, copy_of_array, empty, numel_of
from ...kernels.library import advanced_index as kernels
from ..machinery.declare import internal
from ..machinery.record import NewTensor
from .bad_index import bad_index

_MAX_PLACES = 1024
_FIRST_OFFSETS = kernels.add_offsets.with_constants(first=True)
_MORE_OFFSETS = kernels.add_offsets.with_constants(first=False)
take_dense = kernels.take_positions.with_constants(dense=True)
_take_spread = kernels.take_positions.with_constants(dense=False)
_take_indexed = {dense: kernels.take_indexed.with_constants(dense=dense) for dense in (True, False)}
_FEW = 4096
_LARGE = 1 << 16  # lists of offsets longer than this are not kept


class Places:
    """The facts about t[indices] that follow from shapes and strides: offsets before, at and after the picked dimensions, and the result's
    layout."""

    def __init__(self, t: Tensor, indices: Sequence[Tensor | None]):
        ndim = len(t.shape)
        where = [d for d, i in enumerate(indices) if i is not None]
        tensors = [i for i in indices if i is not None]
        try:
            self.picked_shape = make_size(broadcast_shapes(*[i.shape for i in tensors]))
        except RuntimeError:
            shapes = ", ".join(str(list(i.shape)) for i in tensors)
            raise IndexError(
                f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
            ) from None
        self.count = numel_of(self.picked_shape)
        self.indexed = [(d, t.shape[d], t._strides[d]) for d in where]
        together = where[-1] - where[0] == len(where) - 1
        first = where[0] if together else 0
        others = [d for d in range(ndim) if d not in where]
        before = [d for d in others if d < first]
        after = [d for d in others if d >= first]
        self.blocks = numel_of(tuple(t.shape[d] for d in before))
        self.inner = numel_of(tuple(t.shape[d] for d in after))
        self.dense = _is_range(t, after)
        self.steps = tuple(
            [(t.shape[d], t._strides[d]) for d in dims] for dims in (before, [] if self.dense else after)
        )
        self.shape = make_size([*(t.shape[d] for d in before), *self.picked_shape, *(t.shape[d] for d in after)])
        strides = output_strides(self.shape, _layouts(t, tensors, before, after, self.shape))
        self.strides = None if strides == contiguous_strides(self.shape) else strides  # None: the usual ones
        self.empty = 0 in self.shape
        # One index tensor is read and checked while elements are taken, unless that would be repeated many times.
        short = self.blocks == 1 or self.blocks * self.count <= _FEW
        at_once = short and len(where) == 1 and t.shape[where[0]] and not self.empty
        self.taking = _take_indexed[self.dense] if at_once else None
        self._offsets: dict[device, list[Tensor]] = {}

    def offsets(self, where: device) -> list[Tensor]:
        """Return the offsets before and after the picked ones, in the memory of a device."""
        found = self._offsets.get(where)
        if found is None:
            found = self._offsets[where] = [_moved(_offsets(steps), where) for steps in self.steps]
        return found

    def picked(self, indices: Sequence[Tensor | None], where: device) -> Tensor:
        """Return the offsets of the places that the index tensors select together, or raise IndexError."""
        count = self.count
        offsets, error = empty((count,), dt.int64, where), bad_index.on(where, "index")
        kernel = _FIRST_OFFSETS
        for d, size, stride in self.indexed:
            index: Any = indices[d]
            if index.shape != self.picked_shape:
                index = index.expand(self.picked_shape)
            kernel(offsets, index if index._contig else index.contiguous(), error, count, size, stride)
            kernel = _MORE_OFFSETS
        if bad_index.taken(where) is not None:
            self._raise_out_of_bounds(indices)
        return offsets

    def take(self, out: Tensor, t: Tensor, indices: Sequence[Any]) -> None:
        """Copy t[indices] into contiguous memory."""
        where = out.device
        if self.taking is None:
            picked = self.picked(indices, where)
            if not self.empty:
                before, after = self.offsets(where)
                take = take_dense if self.dense else _take_spread
                take(out, t, before, picked, after, self.blocks, self.count, self.inner)
            return
        before, after = self._offsets.get(where) or self.offsets(where)
        d, size, stride = self.indexed[0]
        index, error = indices[d], bad_index.on(where, "index")
        if not index._contig:
            index = index.contiguous()
        self.taking(out, t, before, index, after, error, self.blocks, self.count, size, stride, self.inner)
        if bad_index.taken(where) is not None:
            self._raise_out_of_bounds(indices)

    def _raise_out_of_bounds(self, indices: Sequence[Any]) -> None:
        for d, size, _ in self.indexed:
            if size and not self.blocks * self.inner:
                continue  # as in PyTorch, positions that are never read are not looked at
            if not size:
                raise IndexError("index is out of bounds for dimension with size 0")
            low, high = int(indices[d].amin().item()), int(indices[d].amax().item())
            if high >= size or low < -size:
                bad = high if high >= size else low
                raise IndexError(f"index {bad} is out of bounds for dimension {d} with size {size}")


_places: dict[tuple[Any, ...], Places] = {}


def places(t: Tensor, indices: Sequence[Tensor | None]) -> Places:
    """Return the places of t[indices], cached for such layouts."""
    key = (t.shape, t._strides, *[None if i is None else (i.shape, i._strides) for i in indices])
    found = _places.get(key)
    if found is None:
        found = Places(t, indices)
        if found.blocks + found.inner <= _LARGE:
            remember(_places, key, found, _MAX_PLACES)
    return found


def beside(index: Any, t: Tensor) -> Tensor:
    """Return an index tensor on the device of the tensor that it indexes; it may come from the CPU."""
    if not BACKENDS[index.device.type].on_host:
        raise RuntimeError(
            f"indices should be either on cpu or on the same device as the indexed tensor ({t.device}), got {index.device}"
        )
    return index.to(t.device)


def _layouts(
    t: Tensor, tensors: list[Tensor], before: list[int], after: list[int], shape: tuple[int, ...]
) -> list[tuple[Any, ...]]:
    """Return the shapes and strides that decide the result's layout: of the tensor, repeated along the indices, and of the indices."""
    picked, tail = len(shape) - len(before) - len(after), (0,) * len(after)
    head = tuple(t._strides[d] for d in before)
    layouts: list[tuple[Any, ...]] = [(shape, head + (0,) * picked + tuple(t._strides[d] for d in after))]
    for i in tensors:
        lead = len(before) + picked - len(i.shape)
        layouts.append(((1,) * lead + tuple(i.shape) + (1,) * len(after), (0,) * lead + i._strides + tail))
    return layouts


def _is_range(t: Tensor, dims: Sequence[int]) -> bool:
    step = 1
    for d in reversed(dims):
        if t.shape[d] != 1 and t._strides[d] != step:
            return False
        step *= t.shape[d]
    return True


def _offsets(steps: Sequence[tuple[int, int]]) -> np.ndarray:
    result = np.zeros(1, np.int64)
    for size, stride in steps:
        result = (result[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
    return result


def _moved(array: np.ndarray, where: device) -> Tensor:
    made: Any = copy_of_array(array, dt.int64)
    return made.to(where)


@functools.cache
def start(where: device) -> Tensor:
    """Return the offset 0 in the memory of a device."""
    return _moved(np.zeros(1, np.int64), where)


# -- masks ------------------------------------------------------------------------------------------------------------


@internal(reads_values=True)
def true_positions(mask: Tensor) -> Tensor:
    """The positions of the elements that are not zero, in row-major order."""


def _ends(mask: Any) -> tuple[Tensor, Tensor, int]:
    """Return a contiguous mask, the number of nonzero elements in each of its blocks, and the number of elements."""
    n = numel_of(mask.shape)
    if mask.dtype.is_complex or mask.dtype in dt.FLOAT8:
        mask = mask != 0
    if not mask._contig or mask._autograd is not None:
        mask = mask._bare_alias().contiguous()
    counts = empty(((n + kernels.ROWS - 1) // kernels.ROWS,), dt.int64, mask.device)
    if n:
        kernels.count_true(counts, mask, n)
    return mask, counts, n


def _listed(mask: Tensor, ends: Tensor, total: int, n: int) -> Tensor:
    found = empty((total,), dt.int64, mask.device)
    if total:
        kernels.list_true(found, ends, mask, n)
    return found


@true_positions.on("cpu")
def _(mask: Tensor) -> Tensor:
    mask, ends, n = _ends(mask)
    blocks = ends.shape[0]
    if watching.active:
        watching.tell_looked()
    if blocks > 1:
        np.cumsum(ends._array(), out=ends._array())
    total = ctypes.c_int64.from_address(ends._storage.ptr + 8 * (blocks - 1)).value if n else 0
    return _listed(mask, ends, total, n)


@true_positions.on("any")
def _(mask: Tensor) -> Tensor:
    counted: Any
    mask, counted, n = _ends(mask)
    ends = counted.cumsum(0)
    return _listed(mask, ends, int(ends[-1].item()) if n else 0, n)


@internal(batching="each")
def coordinates(positions: Tensor, shape: tuple[int, ...]) -> NewTensor:
    """The coordinates of positions in a tensor of this shape: a row for each, stored by columns."""
    count = positions.shape[0]
    return make_size((count, len(shape))), dt.int64, positions.device, (1, max(count, 1))


@coordinates.on("any")
def _(out: Tensor, positions: Tensor, shape: tuple[int, ...]) -> None:
    count, inner = positions.shape[0], numel_of(tuple(shape))
    for d, size in enumerate(shape):
        inner //= size
        kernels.coordinates(out, positions, count, d * count, inner, size)
