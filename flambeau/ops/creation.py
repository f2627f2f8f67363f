"""Making tensors: empty, zeros, ones, full, and their `_like` and `new_` forms."""

from __future__ import annotations

import ctypes
from typing import Any

from ..core import dtype as dt
from ..core.device import cpu, default_device, device
from ..core.dtype import dtype
from ..core.graph import mode
from ..core.layout import (
    channels_last,
    channels_last_3d,
    channels_last_strides,
    dimension_order,
    is_non_overlapping_and_dense,
    memory_format,
    preserve_format,
    strides_in_order,
)
from ..core.promotion import default_complex, get_default_dtype
from ..core.size import Size
from ..core.tensor import Tensor, contiguous_strides
from ..core.tensor import empty as raw_empty
from ..core.tensor import empty_strided as raw_empty_strided
from .declare import composite
from .inplace import copy_values


def as_device(where: Any) -> device:
    return default_device() if where is None else device(where)


def as_shape(size: tuple, name: str) -> Size:
    """zeros(2, 3), zeros((2, 3)), zeros([2, 3]), zeros(Size) all mean one shape."""
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = size[0]
    shape = []
    for n in size:
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise TypeError(f"{name}(): argument 'size' must be tuple of ints, but found element of type {type(n).__name__}")
        n = n.__index__()
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {[int(k) for k in size]}")
        shape.append(n)
    return Size(shape)


def number_result_dtype(value: Any) -> dtype:
    """The dtype full(shape, value) has: bool, int64, the default float or complex dtype."""
    if isinstance(value, bool):
        return dt.bool_
    if isinstance(value, int):
        return dt.int64
    return default_complex() if isinstance(value, complex) else get_default_dtype()


def finish(t: Tensor, requires_grad: bool) -> Tensor:
    if mode.inference:
        t._ensure_meta().inference = True
    if requires_grad:
        t.requires_grad = True
    return t


def fill_raw(t: Tensor, value: Any) -> Tensor:
    """Every element becomes `value`. No autograd, no version bump."""
    if t._storage.size_bytes and t.device is cpu:
        if value == 0 and t._contig and not isinstance(value, complex):
            n = t.numel() * t.dtype.itemsize
            ctypes.memset(t.data_ptr(), 0, n)
            if value == 0.0 and str(value).startswith("-"):
                copy_values.into(t, (value,))
        else:
            copy_values.into(t, (value,))
    return t


def allocate(shape: Size, d: dtype, where: device, fmt: memory_format | None = None) -> Tensor:
    if fmt is channels_last or fmt is channels_last_3d:
        return raw_empty_strided(shape, channels_last_strides(shape), d, where)
    return raw_empty(shape, d, where)


@composite(kind="creation", method=False, out=True)
def empty(
    *size: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """An uninitialised tensor."""
    return finish(allocate(as_shape(size, "empty"), dtype or get_default_dtype(), as_device(device), memory_format), requires_grad)


@composite(kind="creation", method=False, out=True)
def zeros(
    *size: Any, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A tensor of zeros."""
    return finish(fill_raw(raw_empty(as_shape(size, "zeros"), dtype or get_default_dtype(), as_device(device)), 0), requires_grad)


@composite(kind="creation", method=False, out=True)
def ones(
    *size: Any, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A tensor of ones."""
    return finish(fill_raw(raw_empty(as_shape(size, "ones"), dtype or get_default_dtype(), as_device(device)), 1), requires_grad)


@composite(kind="creation", method=False, out=True)
def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor filled with one value; its dtype is the value's unless given."""
    if isinstance(fill_value, Tensor):
        dtype = dtype or fill_value.dtype
        fill_value = fill_value.item()
    t = raw_empty(as_shape((size,) if isinstance(size, (tuple, list)) else (size,), "full"), dtype or number_result_dtype(fill_value), as_device(device))
    return finish(fill_raw(t, fill_value), requires_grad)


def like_strides(t: Tensor, shape: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Strides of a new tensor that preserves t's layout: its own if dense, else its dimension order."""
    if is_non_overlapping_and_dense(t.shape, t._strides):
        return t._strides
    return strides_in_order(t.shape, dimension_order(t.shape, [t._strides]))


def empty_as(t: Tensor, d: dtype | None = None, where: device | None = None, fmt: memory_format | None = None) -> Tensor:
    """An uninitialised tensor of t's shape; its strides too unless a memory format says otherwise."""
    d, where = d or t.dtype, where or t.device
    if fmt is None or fmt is preserve_format:
        if t._contig:
            return raw_empty(t.shape, d, where)
        return raw_empty_strided(t.shape, like_strides(t), d, where)
    return allocate(t.shape, d, where, fmt)


@composite(kind="creation", method=False)
def empty_like(
    input: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """An uninitialised tensor of the same shape (and, by default, dtype and layout)."""
    where = None if device is None else as_device(device)
    return finish(empty_as(input, dtype, where, memory_format), requires_grad)


def _filled_like(value: int) -> Any:
    def like(
        input: Tensor,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        where = None if device is None else as_device(device)
        return finish(fill_raw(empty_as(input, dtype, where, memory_format), value), requires_grad)

    return like


zeros_like = composite(_filled_like(0), name="zeros_like", kind="creation", method=False)
ones_like = composite(_filled_like(1), name="ones_like", kind="creation", method=False)


@composite(kind="creation", method=False)
def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of the same shape filled with one value."""
    where = None if device is None else as_device(device)
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    return finish(fill_raw(empty_as(input, dtype, where, memory_format), value), requires_grad)


@composite(kind="creation", function=False)
def new_empty(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, layout: Any = None, pin_memory: bool = False) -> Tensor:
    """An uninitialised tensor with this one's dtype and device."""
    where = self.device if device is None else as_device(device)
    return finish(raw_empty(as_shape(size, "new_empty"), dtype or self.dtype, where), requires_grad)


@composite(kind="creation", function=False)
def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, layout: Any = None, pin_memory: bool = False) -> Tensor:
    """A filled tensor with this one's dtype and device."""
    where = self.device if device is None else as_device(device)
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    return finish(fill_raw(raw_empty(as_shape((size,) if isinstance(size, (tuple, list)) else (size,), "new_full"), dtype or self.dtype, where), value), requires_grad)


@composite(kind="creation", function=False)
def new_zeros(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, layout: Any = None, pin_memory: bool = False) -> Tensor:
    """Zeros with this tensor's dtype and device."""
    where = self.device if device is None else as_device(device)
    return finish(fill_raw(raw_empty(as_shape(size, "new_zeros"), dtype or self.dtype, where), 0), requires_grad)


@composite(kind="creation", function=False)
def new_ones(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, layout: Any = None, pin_memory: bool = False) -> Tensor:
    """Ones with this tensor's dtype and device."""
    where = self.device if device is None else as_device(device)
    return finish(fill_raw(raw_empty(as_shape(size, "new_ones"), dtype or self.dtype, where), 1), requires_grad)


@composite(kind="creation", method=False)
def empty_strided(size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """An uninitialised tensor with the given strides."""
    shape = as_shape((tuple(size),), "empty_strided")
    if len(stride) != len(shape):
        raise RuntimeError(f"mismatch in length of strides and shape: {len(shape)} sizes, {len(stride)} strides")
    if any(s < 0 for s in stride):
        raise RuntimeError("as_strided: Negative strides are not supported at the moment, got strides: " + str(list(stride)))
    return finish(raw_empty_strided(shape, tuple(stride), dtype or get_default_dtype(), as_device(device)), requires_grad)


@composite(kind="creation", function=False)
def new_empty_strided(self: Tensor, size: Any, stride: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, layout: Any = None, pin_memory: bool = False) -> Tensor:
    """Like empty_strided, with this tensor's dtype and device."""
    where = self.device if device is None else as_device(device)
    return finish(raw_empty_strided(as_shape((tuple(size),), "new_empty_strided"), tuple(stride), dtype or self.dtype, where), requires_grad)


__all__ = ["allocate", "as_device", "as_shape", "contiguous_strides", "empty_as", "fill_raw", "finish"]
