"""Making tensors: empty, zeros, ones, full, and their `_like` and `new_` forms."""

from __future__ import annotations

import ctypes
import math
from typing import Any

from ...core import dtype as dt
from ...core.backend import backend_of
from ...core.caching import remember
from ...core.device import default_device, device
from ...core.dtype import dtype
from ...core.layout import (
    channels_last,
    channels_last_3d,
    channels_last_strides,
    dense_strides,
    memory_format,
    preserve_format,
    strides_in_order,
)
from ...core.promotion import get_default_dtype
from ...core.raw_memory import set_bytes
from ...core.settings import fills_empty
from ...core.size import Size
from ...core.tensor import Tensor, contiguous_strides, numel_of
from ...core.tensor import empty as raw_empty
from ...core.tensor import empty_strided as raw_empty_strided
from ...core.watching import active as _watched
from ..machinery.arguments import Options, as_ints, as_number, as_shape, need_tensor, read_options
from ..machinery.aten_form import aten_parts
from ..machinery.declare import composite, effect
from ..machinery.door import new as laid_out
from ..machinery.dtype_rules import check_fits, integer_limits
from ..machinery.inplace import copy_values
from ..machinery.out import resize_out

_SMALL = 1 << 17  # bytes that one core clears before others would have started
_memset = ctypes.memset


def number_result_dtype(value: Any) -> dtype:
    """Return the dtype of full(shape, value): bool, int64, the default dtype, or complex64 and complex128."""
    if isinstance(value, bool):
        return dt.bool_
    if isinstance(value, int):
        return dt.int64
    default = get_default_dtype()
    return (dt.complex128 if default is dt.float64 else dt.complex64) if isinstance(value, complex) else default


def finish(t: Tensor, requires_grad: bool) -> Tensor:
    if requires_grad:
        if not (t.dtype.is_floating_point or t.dtype.is_complex):
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        t.requires_grad = True
    return t


def uninitialised(t: Tensor) -> Tensor:
    """Return t unchanged or, if memory must be the same in every run, filled with NaN or the largest number."""
    if fills_empty():
        d = t.dtype
        if d.is_floating_point or d.is_complex:
            fill_raw(t, math.nan)
        else:
            fill_raw(t, True if d is dt.bool_ else integer_limits(d)[1])
    return t


@effect(batching="each", runs_empty=True, aten="fill_", formula=lambda t, value: (copy_values, (value,)))
def fill_raw(t: Tensor, value: complex) -> Tensor:
    """Set every element to `value`. No autograd, no version bump."""


@fill_raw.op.as_aten
def _(recorder: Any, t: Tensor, value: complex) -> Tensor:
    """Record a fill: a number that becomes a tensor in the process (x[0] = 2) is a constant of the graph."""
    if id(t) in getattr(recorder, "known", ()):
        return recorder.aten.fill_.Scalar(t, value)
    return recorder.unseen(lambda: fill_raw(t, value))


_fill = fill_raw._unwatched  # for operators that modes have seen already


@fill_raw.on("cpu")
def _(t: Tensor, value: complex) -> None:
    if value or not t._contig or not (type(value) is int or _is_zero(value)):
        value = check_fits(value, t.dtype)
    else:
        size = t.dtype.itemsize
        nbytes = numel_of(t.shape) * size
        if nbytes <= _SMALL or t.dtype.is_complex:
            place = t._storage.ptr + t._offset * size
            set_bytes(place, 0, nbytes) if _watched else _memset(place, 0, nbytes)
            return
        value = 0  # on all cores
    found = _fill_kernels.get((t.shape, t._strides, t.dtype, type(value), t.device))
    if 0 in t.shape:
        return
    if found is None:
        _fill_anew(t, value)
    else:
        found[0](found[1], t._storage.ptr + t._offset * t.dtype.itemsize, value)


@fill_raw.on("any")
def _(t: Tensor, value: complex) -> None:
    if 0 in t.shape:
        return
    if t._contig and _is_zero(value):
        backend_of(t.device).fill(t._storage.ptr + t._offset * t.dtype.itemsize, 0, t.nbytes, t.device)
    else:
        copy_values.into(t, (check_fits(value, t.dtype),))


def _is_zero(value: Any) -> bool:
    """Return whether all bytes of this number are zero; those of -0.0 are not."""
    return value == 0 and not isinstance(value, complex) and math.copysign(1.0, value) > 0


_fill_kernels: dict[tuple[Any, ...], tuple[Any, Any]] = {}


def _fill_anew(t: Tensor, value: Any) -> None:
    """Fill a tensor of a new layout, and cache the kernel for it if there is one."""
    kind, plan = type(value), copy_values.into(t, (value,))
    if (kind is int or kind is float) and plan.fn is not None:
        remember(_fill_kernels, (t.shape, t._strides, t.dtype, kind, t.device), (plan.fn, plan.first))


def format_layout(shape: Size, d: dtype, where: device, fmt: memory_format | None) -> tuple[Any, ...]:
    """Return the layout of a tensor in a memory format (see `Op.layout`)."""
    if fmt is channels_last or fmt is channels_last_3d:
        rank = 4 if fmt is channels_last else 5
        if len(shape) != rank:
            raise RuntimeError(f"required rank {rank} tensor to use {fmt.name} format")
        return shape, d, where, channels_last_strides(shape)
    return shape, d, where


def new(shape: Size, options: Options, d: dtype, where: device | None = None) -> Tensor:
    """Return an uninitialised tensor, of dtype `d` on `where` unless `options` set others."""
    place = options.device or where or default_device()
    if options.format is preserve_format:
        raise RuntimeError(
            "memory format option is only supported by strided tensors and cannot be preserve_format here"
        )
    return laid_out(*format_layout(shape, options.dtype or d, place, options.format))


def prepare_out(name: str, out: Any, shape: Size, options: Options) -> Tensor:
    """Return the tensor given as out=, resized to the result's shape; its dtype and device must fit."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if options.dtype is not None and options.dtype is not out.dtype:
        raise RuntimeError(
            f"dtype {options.dtype.scalar_type} does not match dtype of out parameter ({out.dtype.scalar_type})"
        )
    if options.device is not None and options.device is not out.device:
        raise RuntimeError(f"device {options.device} does not match device of out parameter ({out.device})")
    resize_out(out, shape)
    return out


def filled(name: str, shape: Size, value: Any, out: Any, options: Options, d: dtype | None = None) -> Tensor:
    if out is not None:
        t = prepare_out(name, out, shape, options)
        fill_raw(t, value)
        t._bump(name)
        return t
    return finish(fill_raw(new(shape, options, d or get_default_dtype()), value), options.requires_grad)


def _sizes(size: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """Return the sizes of a call, which may be given by name: zeros(size=(2, 3))."""
    return (options.pop("size"),) if not size and "size" in options else size


@composite(kind="creation", unfilled=True, method=False)
def empty(*size: Any, out: Any = None, **options: Any) -> Tensor:
    """An uninitialised tensor.

    >>> empty(2, 3, dtype=float32).shape
    torch.Size([2, 3])
    """
    shape = as_shape(_sizes(size, options), "empty")
    chosen = read_options("empty", options, takes_format=True)
    if out is not None:
        return uninitialised(prepare_out("empty", out, shape, chosen))
    return finish(uninitialised(new(shape, chosen, get_default_dtype())), chosen.requires_grad)


@composite(kind="creation", method=False)
def zeros(*size: Any, out: Any = None, **options: Any) -> Tensor:
    """A tensor of zeros."""
    if out is None and not options:
        return _fill(raw_empty(as_shape(size, "zeros"), get_default_dtype(), default_device()), 0)
    shape = as_shape(_sizes(size, options), "zeros")
    return filled("zeros", shape, 0, out, read_options("zeros", options))


@composite(kind="creation", method=False)
def ones(*size: Any, out: Any = None, **options: Any) -> Tensor:
    """A tensor of ones."""
    if out is None and not options:
        return fill_raw(raw_empty(as_shape(size, "ones"), get_default_dtype(), default_device()), 1)
    shape = as_shape(_sizes(size, options), "ones")
    return filled("ones", shape, 1, out, read_options("ones", options))


@aten_parts("zeros")
def _(aten: Any, size: Any, *, dtype: dtype | None = None, **options: Any) -> Tensor:
    return aten.full.default(size, 0, dtype=dtype or get_default_dtype(), **options)


@aten_parts("ones")
def _(aten: Any, size: Any, *, dtype: dtype | None = None, **options: Any) -> Tensor:
    return aten.full.default(size, 1, dtype=dtype or get_default_dtype(), **options)


def fill_number(value: Any, name: str) -> Any:
    if isinstance(value, Tensor) and value.shape != ():
        raise TypeError(f"{name}(): argument 'fill_value' (position 2) must be Number, not Tensor")
    return as_number(value, name, "fill_value", 2)


@composite(kind="creation", method=False)
def full(size: Any, fill_value: Any, *, out: Any = None, **options: Any) -> Tensor:
    """A tensor filled with one value; its dtype is the value's unless given."""
    value = fill_number(fill_value, "full")
    shape = as_shape((as_ints(size, "full"),), "full")
    return filled("full", shape, value, out, read_options("full", options), number_result_dtype(value))


@composite(kind="creation", method=False)
def scalar_tensor(s: Any, **options: Any) -> Tensor:
    """A 0-dim tensor of one number, by default of the default dtype."""
    return filled(
        "scalar_tensor", Size(()), as_number(s, "scalar_tensor", "s", 1), None, read_options("scalar_tensor", options)
    )


@composite(kind="creation", unfilled=True, method=False)
def empty_strided(size: Any, stride: Any, **options: Any) -> Tensor:
    """An uninitialised tensor with the given strides."""
    return _strided("empty_strided", size, stride, read_options("empty_strided", options), get_default_dtype(), None)


def _strided(name: str, size: Any, stride: Any, options: Options, d: dtype, where: device | None) -> Tensor:
    shape = as_shape((as_ints(size, name),), name)
    strides = as_ints(stride, name, "stride", 2)
    if len(strides) != len(shape):
        raise RuntimeError(
            f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(strides)})"
        )
    if any(s < 0 for s in strides):
        raise RuntimeError(f"{name}: negative strides are not supported, got strides: {list(strides)}")
    t = raw_empty_strided(shape, strides, options.dtype or d, options.device or where or default_device())
    return finish(uninitialised(t), options.requires_grad)


@composite(kind="creation", unfilled=True, method=False)
def empty_permuted(size: Any, physical_layout: Any, **options: Any) -> Tensor:
    """An uninitialised tensor without gaps whose dimensions are stored in the order `physical_layout`."""
    shape = as_shape((as_ints(size, "empty_permuted"),), "empty_permuted")
    order = as_ints(physical_layout, "empty_permuted", "physical_layout", 2)
    if len(order) != len(shape):
        raise RuntimeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) ="
            f" {len(shape)} is not equal to len(physical_layout) = {len(order)}"
        )
    for d in order:
        if not 0 <= d < len(shape):
            raise RuntimeError(
                f"Dimension out of range (expected to be between 0 and {len(shape) - 1}, but got {d} at index"
                f" {order.index(d)}). NB: negative dims not currently supported; file an issue if you want it."
            )
        if order.count(d) > 1:
            raise RuntimeError("Duplicate dim not allowed")
    chosen = read_options("empty_permuted", options)
    strides = strides_in_order(shape, list(reversed(order)))
    t = raw_empty_strided(shape, strides, chosen.dtype or get_default_dtype(), chosen.device or default_device())
    return finish(uninitialised(t), chosen.requires_grad)


# -- like another tensor -------------------------------------------------------------------------------------------


def layout_as(
    t: Tensor, d: dtype | None = None, where: device | None = None, fmt: memory_format | None = None
) -> tuple[Any, ...]:
    """Return the layout of a new tensor of t's shape (see `Op.layout`), with its strides unless a memory format is given."""
    shape, d, where = t.shape, d or t.dtype, where or t.device
    if fmt is None or fmt is preserve_format:
        strides = t._strides if t._contig and 0 not in shape else dense_strides(shape, t._strides)
        return (shape, d, where) if strides == contiguous_strides(shape) else (shape, d, where, strides)
    return format_layout(shape, d, where, fmt)


def empty_as(
    t: Tensor, d: dtype | None = None, where: device | None = None, fmt: memory_format | None = None
) -> Tensor:
    """Return an uninitialised tensor of t's shape, with its strides unless a memory format is given."""
    return laid_out(*layout_as(t, d, where, fmt))


def _like(name: str, input: Tensor, options: dict[str, Any]) -> tuple[Tensor, Options]:
    need_tensor(name, input)
    chosen = read_options(name, options, takes_format=True)
    return empty_as(input, chosen.dtype, chosen.device, chosen.format), chosen


@composite(kind="creation", unfilled=True, method=False, batching="fronted", sharding="empty")
def empty_like(input: Tensor, **options: Any) -> Tensor:
    """An uninitialised tensor of the same shape (and, by default, dtype and layout)."""
    t, chosen = _like("empty_like", input, options)
    return finish(uninitialised(t), chosen.requires_grad)


@composite(kind="creation", method=False, batching="fronted")
def zeros_like(input: Tensor, **options: Any) -> Tensor:
    """Zeros of the same shape."""
    t, chosen = _like("zeros_like", input, options)
    return finish(fill_raw(t, 0), chosen.requires_grad)


@composite(kind="creation", method=False, batching="fronted")
def ones_like(input: Tensor, **options: Any) -> Tensor:
    """Ones of the same shape."""
    t, chosen = _like("ones_like", input, options)
    return finish(fill_raw(t, 1), chosen.requires_grad)


@composite(kind="creation", method=False, batching="fronted")
def full_like(input: Tensor, fill_value: Any, **options: Any) -> Tensor:
    """A tensor of the same shape filled with one value."""
    value = fill_number(fill_value, "full_like")
    t, chosen = _like("full_like", input, options)
    return finish(fill_raw(t, value), chosen.requires_grad)


def _new_filled(name: str, self: Tensor, size: tuple[Any, ...], value: Any, options: dict[str, Any]) -> Tensor:
    shape = as_shape(_sizes(size, options), name)
    chosen = read_options(name, options)
    t = new(shape, chosen, self.dtype, self.device)
    return finish(t if value is None else fill_raw(t, value), chosen.requires_grad)


@composite(kind="creation", unfilled=True, function=False)
def new_empty(self: Tensor, *size: Any, **options: Any) -> Tensor:
    """An uninitialised tensor with this one's dtype and device."""
    return _new_filled("new_empty", self, size, None, options)


@composite(kind="creation", function=False)
def new_zeros(self: Tensor, *size: Any, **options: Any) -> Tensor:
    """Zeros with this tensor's dtype and device."""
    return _new_filled("new_zeros", self, size, 0, options)


@aten_parts("new_zeros")
def _(aten: Any, self: Tensor, size: list[Any], *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    return aten.full.default(size, 0, dtype=dtype or self.dtype, device=device or self.device, pin_memory=False)


@composite(kind="creation", function=False)
def new_ones(self: Tensor, *size: Any, **options: Any) -> Tensor:
    """Ones with this tensor's dtype and device."""
    return _new_filled("new_ones", self, size, 1, options)


@composite(kind="creation", function=False)
def new_full(self: Tensor, size: Any, fill_value: Any, **options: Any) -> Tensor:
    """A filled tensor with this one's dtype and device."""
    value = fill_number(fill_value, "new_full")
    return _new_filled("new_full", self, (as_ints(size, "new_full"),), value, options)


@composite(kind="creation", unfilled=True, function=False)
def new_empty_strided(self: Tensor, size: Any, stride: Any, **options: Any) -> Tensor:
    """Return an uninitialised tensor of the given strides, with this tensor's dtype and device."""
    chosen = read_options("new_empty_strided", options)
    return _strided("new_empty_strided", size, stride, chosen, self.dtype, self.device)
