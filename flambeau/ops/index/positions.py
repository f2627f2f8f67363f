"""Which places in memory index tensors and masks name."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from ...core import dtype as dt
from ...core.caching import remember
from ...core.device import cpu
from ...core.layout import broadcast_shapes, output_strides
from ...core.size import make_size
from ...core.tensor import Tensor, copy_of_array, empty, numel_of
from ...kernels.library import advanced_index as kernels

_MAX_PLACES = 1024
_FIRST_OFFSETS = kernels.add_offsets.with_constants(first=True)
_MORE_OFFSETS = kernels.add_offsets.with_constants(first=False)
take_dense = kernels.take_positions.with_constants(dense=True)
take_spread = kernels.take_positions.with_constants(dense=False)
START = copy_of_array(np.zeros(1, np.int64), dt.int64)  # the offset 0
_LARGE = 1 << 16  # lists of offsets longer than this are not kept


class Places:
    """What shapes and strides tell about t[indices]: before x picked x after offsets, and the result's layout."""

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
        self.before = _offsets(t, before)
        self.after = _offsets(t, [] if self.dense else after)
        self.shape = make_size([*(t.shape[d] for d in before), *self.picked_shape, *(t.shape[d] for d in after)])
        self.strides = output_strides(self.shape, _layouts(t, tensors, before, after, self.shape))
        self.empty = 0 in self.shape

    def picked(self, indices: Sequence[Tensor | None]) -> Tensor:
        """Offsets of the places that the index tensors name together (and one element more), or IndexError."""
        count = self.count
        offsets = empty((count + 1,), dt.int64)
        wrong = ctypes.c_int64.from_address(offsets._storage.ptr + 8 * count)
        wrong.value = 0
        kernel = _FIRST_OFFSETS
        for d, size, stride in self.indexed:
            index = indices[d]
            assert index is not None
            if index.device is not cpu:
                raise RuntimeError(
                    f"indices should be either on cpu or on the same device as the indexed tensor (cpu), got {index.device}"
                )
            if index.shape != self.picked_shape:
                index = index.expand(self.picked_shape)
            kernel(offsets, index if index._contig else index.contiguous(), count, size, stride)
            kernel = _MORE_OFFSETS
        if wrong.value:
            self._raise_out_of_bounds(indices)
        return offsets

    def _raise_out_of_bounds(self, indices: Sequence[Tensor | None]) -> None:
        for d, size, _ in self.indexed:
            if size and not self.blocks * self.inner:
                continue  # as in PyTorch, positions that are never read are not looked at
            values = indices[d]._array()  # type: ignore[union-attr]
            low, high = int(values.min()), int(values.max())
            if not size:
                raise IndexError("index is out of bounds for dimension with size 0")
            if high >= size or low < -size:
                bad = high if high >= size else low
                raise IndexError(f"index {bad} is out of bounds for dimension {d} with size {size}")


_places: dict[tuple, Places] = {}


def places(t: Tensor, indices: Sequence[Tensor | None]) -> Places:
    """The places of t[indices], from an earlier call with such layouts if there was one."""
    key = (t.shape, t._strides, *[None if i is None else (i.shape, i._strides) for i in indices])
    found = _places.get(key)
    if found is None:
        found = Places(t, indices)
        if found.blocks + found.inner <= _LARGE:
            remember(_places, key, found, _MAX_PLACES)
    return found


def _layouts(t: Tensor, tensors: list, before: list[int], after: list[int], shape: tuple[int, ...]) -> list[tuple]:
    """Shapes and strides that decide the result's layout: of the tensor, repeated along the indices, and of the indices."""
    picked, tail = len(shape) - len(before) - len(after), (0,) * len(after)
    head = tuple(t._strides[d] for d in before)
    layouts: list[tuple] = [(shape, head + (0,) * picked + tuple(t._strides[d] for d in after))]
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


def _offsets(t: Tensor, dims: Sequence[int]) -> Tensor:
    result = np.zeros(1, np.int64)
    for d in dims:
        result = (result[:, None] + np.arange(t.shape[d], dtype=np.int64) * t._strides[d]).reshape(-1)
    return copy_of_array(result, dt.int64)


# -- masks ------------------------------------------------------------------------------------------------------------


def true_positions(mask: Tensor) -> Tensor:
    """The places of the elements that are not zero, counted row by row."""
    if mask.device is not cpu:
        raise NotImplementedError(f"the places of a mask on device {mask.device} are not known")
    n = numel_of(mask.shape)
    if not n:
        return empty((0,), dt.int64)
    if mask.dtype.is_complex or mask.dtype in dt.FLOAT8:
        mask = mask != 0
    if not mask._contig or mask._autograd is not None:
        mask = mask._bare_alias().contiguous()
    blocks = (n + kernels.ROWS - 1) // kernels.ROWS
    ends = empty((blocks,), dt.int64)
    kernels.count_true(ends, mask, n)
    if blocks > 1:
        np.cumsum(ends._array(), out=ends._array())
    total = ctypes.c_int64.from_address(ends._storage.ptr + 8 * (blocks - 1)).value
    found = empty((total,), dt.int64)
    if total:
        kernels.list_true(found, ends, mask, n)
    return found


def split_positions(positions: Tensor, shape: Sequence[int], out: Tensor) -> None:
    """The coordinates of positions in a tensor of this shape: column by column into a matrix laid out by columns."""
    count = positions.shape[0]
    if not count:
        return
    inner = numel_of(tuple(shape))
    for d, size in enumerate(shape):
        inner //= size
        kernels.coordinates(out, positions, count, d * count, inner, size)
