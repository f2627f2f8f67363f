"""Copies and conversions: clone, contiguous, to, copy_, fill_, and the memory behind a tensor: set_, resize_, data."""

from __future__ import annotations

import warnings
from typing import Any

from ...core import dtype as dt
from ...core import modes
from ...core.backend import BACKENDS
from ...core.caching import remember
from ...core.device import cpu, device
from ...core.dtype import dtype
from ...core.graph import grad_mode
from ...core.layout import (
    broadcast_two,
    channels_last,
    channels_last_3d,
    channels_last_strides,
    contiguous_format,
    is_channels_last,
    memory_format,
    memory_span,
    preserve_format,
    suggests_channels_last,
)
from ...core.overrides import register_instance
from ...core.promotion import scalar_dtype
from ...core.settings import fills_empty, is_warn_always_enabled
from ...core.size import make_size
from ...core.storage import UntypedStorage, transfers
from ...core.tensor import OpenTensor, Tensor, contiguous_strides, is_contiguous_layout
from ...core.tensor import empty as raw_empty
from ...core.tensor import new_tensor as header
from ...core.typed_storage import TypedStorage
from ...core.typenames import type_name
from ..machinery.arguments import as_device, as_dtype, as_ints, as_number, refuse_quantized, varargs_ints
from ..machinery.aten_form import aten_parts
from ..machinery.declare import composite, internal, primitive, view
from ..machinery.inplace import (
    check_history_writable,
    check_partial_overlap,
    check_writable,
    copy_into,
    copy_kernel,
    copy_values,
    raw_copy,
    rebase_history,
)
from ..machinery.quirks import Quirks
from .filled import check_fits, fill_raw, layout_as, uninitialised


def is_laid_out(t: Tensor, fmt: memory_format) -> bool:
    if fmt is contiguous_format:
        return t._contig
    if fmt is channels_last or fmt is channels_last_3d:
        return len(t.shape) == (4 if fmt is channels_last else 5) and is_channels_last(t.shape, t._strides)
    return True


def _is_of_format(t: Tensor, fmt: memory_format) -> bool:
    """Return whether the strides say so, those of dimensions of size 1 included: these may be laid out in two formats at once."""
    if fmt is preserve_format:
        return True
    last = suggests_channels_last(t.shape, t._strides)
    return is_laid_out(t, fmt) and last is (fmt is not contiguous_format)


@composite(function=False)
def is_contiguous(self: Tensor, memory_format: Any = contiguous_format) -> bool:
    """Return whether the elements are stored in that order without gaps."""
    return self._contig if memory_format is contiguous_format else is_laid_out(self, memory_format)


class CopyPlan:
    """The kernel that copies one layout to another, once it was looked for: None where there is none."""

    __slots__ = ("known", "fn", "first")

    fn: Any
    first: Any

    def __init__(self) -> None:
        self.known = False


_copy_layouts: dict[tuple, tuple] = {}


def _copy_layout(input: Tensor, d: dtype, where: device, fmt: memory_format) -> tuple:
    """Return the layout of a copy, and the plan that makes it."""
    key = (input.shape, input._strides, input.dtype, input.device, d, where, fmt)
    found = _copy_layouts.get(key)
    if found is None:
        shape, _, _, *strides = layout_as(input, d, where, fmt)
        found = remember(_copy_layouts, key, (shape, d, where, strides[0] if strides else None, CopyPlan()))
    return found


def _copy(out: Tensor, plan: CopyPlan, input: Tensor, *_: Any, **__: Any) -> None:
    """The kernel: the values of input, converted, into new memory, on another device too."""
    if not plan.known:
        plan.fn, plan.first = copy_kernel(out, input) if out.device is input.device else (None, None)
        plan.known = True
    fn = plan.fn
    if fn is None:
        copy_into(out, input)
    else:
        fn(plan.first, out._storage.ptr, input._storage.ptr + input._offset * input.dtype.itemsize)


def _clone_layout(input: Tensor, *, memory_format: Any = preserve_format) -> tuple:
    return _copy_layout(input, input.dtype, input.device, memory_format)


@primitive(
    layout=_clone_layout,
    planned=True,
    grads={"input": lambda g: g},
    batching="same",
    formula=lambda input, memory_format: (copy_values, (input,)),
)
def clone(input: Tensor, *, memory_format: Any = preserve_format) -> Tensor:
    """A copy with memory of its own."""


clone.on("any")(_copy)


def copy_raw(out: Tensor, source: Tensor) -> None:
    """out[...] = source on whatever device both are."""
    if out.device.type != "meta":
        raw_copy(out, source)


@composite(function=False, batching="fronted", sharding="same")
def contiguous(self: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    """Itself if laid out that way, else a copy that is."""
    if memory_format is preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    return self if is_laid_out(self, memory_format) else clone(self, memory_format=memory_format)


@contiguous.op.as_aten
def _(recorder: Any, self: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    if not recorder.reads_python and self.is_contiguous(memory_format=memory_format):
        return self  # only traces show what the program wrote and what does nothing
    return recorder.aten.contiguous.default(self, memory_format=memory_format)


@aten_parts("contiguous")
def _(aten: Any, self: Tensor, *, memory_format: Any = contiguous_format) -> Tensor:
    return aten.clone.default(self, memory_format=memory_format)


def _convert_backward(g: Tensor, input_dtype: dtype, input_device: device) -> Tensor:
    if g.dtype.is_complex and not input_dtype.is_complex:
        g = g.real
    return g.to(device=input_device, dtype=input_dtype)


_warned_of_imaginary_parts: list[bool] = []


def _warn_of_imaginary_parts(target: dtype) -> None:
    """Complex numbers become real ones: PyTorch says so once."""
    if target.is_complex or target is dt.bool_ or (_warned_of_imaginary_parts and not is_warn_always_enabled()):
        return
    _warned_of_imaginary_parts.append(True)
    warnings.warn("Casting complex values to real discards the imaginary part", UserWarning, stacklevel=4)


def _convert_layout(input: Tensor, d: dtype, where: device, fmt: memory_format) -> tuple:
    if input.dtype.is_complex:
        _warn_of_imaginary_parts(d)
    return _copy_layout(input, d, where, fmt)


@internal(
    layout=_convert_layout,
    planned=True,
    grads={"input": _convert_backward},
    quirks=Quirks(label="ToCopyBackward0"),
    aten="_to_copy",
    batching="same",
    formula=lambda input, d, where, fmt: (copy_values, (input,)),
)
def convert(input: Tensor, d: dtype, where: device, fmt: memory_format) -> Tensor:
    """A copy with another dtype, device or memory format."""


convert.on("any")(_copy)
_active, _convert = modes.active, convert.op.impl.fn


def _bad_to(args: tuple) -> TypeError:
    given = ", ".join(type_name(a) for a in args)
    return TypeError(
        f"to() received an invalid combination of arguments - got ({given}), but expected one of: (torch.device"
        " device, torch.dtype dtype, bool non_blocking, bool copy), (torch.dtype dtype, bool non_blocking, bool copy),"
        " (Tensor tensor, bool non_blocking, bool copy)"
    )


def parse_to(args: tuple, kwargs: dict) -> tuple[dtype | None, Any, bool, bool, Any]:
    """to(dtype), to(device), to(device, dtype), to(other), with non_blocking, copy and memory_format."""
    d, where, fmt = kwargs.pop("dtype", None), kwargs.pop("device", None), kwargs.pop("memory_format", None)
    flags = [kwargs.pop("non_blocking", False), kwargs.pop("copy", False)]
    other = kwargs.pop("other", None)
    if kwargs:
        raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs))}'")
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
    elif rest and (rest[0] is None or isinstance(rest[0], (device, str)) or type(rest[0]) is int):
        where = rest.pop(0)
        if rest:  # behind a device stands a dtype, never a flag
            d = rest.pop(0)
            if not (d is None or isinstance(d, (dtype, type))):
                raise _bad_to(args)
    elif rest and isinstance(rest[0], (dtype, type)):
        d = rest.pop(0)
    if other is not None:
        d, where = other.dtype, other.device
    if len(rest) > 2 or not all(isinstance(flag, bool) for flag in rest):
        raise _bad_to(args)
    flags[: len(rest)] = rest
    return None if d is None else as_dtype(d, "to"), where, flags[0], flags[1], fmt


@composite(function=False)
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The values with another dtype, device or memory format; itself if nothing changes.

    >>> ones(2).to(int64)
    tensor([1, 1])
    """
    if len(args) == 1 and not kwargs:  # the common cases, without the general path
        kind = args[0]
        if type(kind) is dtype:
            return self if kind is self.dtype else converted(self, kind, self.device)
        where = self.device
        if kind is where or (type(kind) is str and kind == where.type and where.index is None):
            return self
    d, place, later, copy, fmt = parse_to(args, kwargs)
    where = self.device if place is None else as_device(place)
    if later and where is not self.device:
        return _converted_later(self, d or self.dtype, where, fmt, copy)
    return converted(self, d or self.dtype, where, fmt, copy)


@to.op.as_aten
def _(recorder: Any, self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    recorder.before_cast(self)
    packet = recorder.aten.to
    if (args and isinstance(args[0], (str, device))) or "device" in kwargs:
        where = device(args[0] if args else kwargs["device"])
        wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
        if wanted is not None:
            return packet.device(self, where, wanted)
        return packet.dtype_layout(self, dtype=self.dtype, layout=self.layout, device=where)
    given = args or (kwargs["dtype"] if "dtype" in kwargs else kwargs["other"],)
    options = {k: v for k, v in kwargs.items() if k in ("non_blocking", "copy", "memory_format")}
    return (packet.other if isinstance(given[0], Tensor) else packet.dtype)(self, *given, **options)


@aten_parts("to.dtype", "to.device", "to.dtype_layout", "to.other", "type_as")
def _(aten: Any, self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    other = next((a for a in args if isinstance(a, Tensor)), None)
    wanted = next((a for a in args if isinstance(a, dtype)), kwargs.get("dtype")) if other is None else other.dtype
    if (wanted is None or wanted is self.dtype) and not kwargs.get("copy", False):
        return self
    return aten._to_copy.default(self, dtype=wanted)


def _converted_later(*arguments: Any) -> Tensor:
    """`converted` for copies between host and device that nobody waits for (see `non_blocking`)."""
    before, transfers.wait = transfers.wait, False
    try:
        return converted(*arguments)
    finally:
        transfers.wait = before


def converted(t: Tensor, d: dtype, where: device, fmt: memory_format | None = None, copy: bool = False) -> Tensor:
    fmt = fmt or preserve_format
    if d is t.dtype and where is t.device and not copy and _is_of_format(t, fmt):
        return t
    if t.device.type == "meta" and where.type != "meta":
        raise NotImplementedError(
            "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of"
            " torch.nn.Module.to() when moving module from meta to a different device."
        )
    if d.kind == "q" and d is not t.dtype:
        refuse_quantized("to", d)
    return convert(t, d, where, fmt)


def on_host(t: Tensor) -> Tensor:
    """The values of t where the host can read them: t itself, or a copy of it."""
    return t if BACKENDS[t.device.type].on_host else converted(t._bare_alias(), t.dtype, cpu)


def _cast_method(name: str, d: dtype) -> Any:
    def cast(self: Tensor, memory_format: Any = preserve_format) -> Tensor:
        if memory_format is preserve_format:
            if d is self.dtype:
                return self
            if not _active and self._autograd is None and self._base is None:  # nobody watches or will differentiate
                return _convert(self, d, self.device, preserve_format)
        return converted(self, d, self.device, memory_format)

    cast.__doc__ = f"The values as {d.name}."
    made = composite(cast, name=name, function=False, batching="same")
    made.op.as_aten(lambda recorder, self, memory_format=None: to.op.aten_calls(recorder, self, d))
    return made


CASTS: dict[dtype, Any] = {d: _cast_method(name, d) for name, d in dt.METHODS.items()}


@composite(function=False)
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The values in other's dtype, on its device."""
    return converted(self, other.dtype, other.device)


@composite(function=False, aten="to")
def cpu_(self: Tensor, memory_format: Any = preserve_format) -> Tensor:
    """The tensor on the CPU."""
    return converted(self, self.dtype, cpu, memory_format)


OpenTensor.cpu = cpu_


@composite(function=False)
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = preserve_format) -> Tensor:
    """The tensor on a CUDA device."""
    where = as_device("cuda" if device is None else device)
    convert_it = _converted_later if non_blocking else converted
    return convert_it(self, self.dtype, where, memory_format)


# -- writing -------------------------------------------------------------------------------------------------------


def _copied_backward(g: Tensor, src_shape: Any, src_dtype: dtype, src_device: device) -> Tensor:
    return _convert_backward(g.sum_to_size(src_shape), src_dtype, src_device)


@internal(
    grads={"input": lambda g: g.new_zeros(g.shape), "src": _copied_backward},
    quirks=Quirks(label="CopyBackwards"),
    batching="each",
)
def copied(input: Tensor, src: Tensor) -> Tensor:
    """The value that `input` has after copy_: src's values in input's shape and dtype (a node for autograd, no work)."""
    return input._bare_alias()


@composite(function=False, sharding="pointwise")
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Take the values of `src`, broadcast and converted."""
    if not isinstance(src, Tensor):
        if not isinstance(src, (int, float, complex)):
            raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type_name(src)}")
        kind = scalar_dtype(src)
        src = fill_raw(raw_empty((), kind, self.device), src)
    check_writable(self)
    if self.shape != src.shape and broadcast_two(self.shape, src.shape) != self.shape:
        raise RuntimeError(f"output with shape {list(self.shape)} doesn't match the broadcast shape {list(src.shape)}")
    if self is not src:
        check_partial_overlap(self, src)
        if src.dtype.is_complex:
            _warn_of_imaginary_parts(self.dtype)
    node = None
    if grad_mode.enabled and (self.requires_grad or src.requires_grad) and self.dtype.category > 1:
        node = copied(self, src).grad_fn
    if self is not src:
        if non_blocking and self.device is not src.device:
            before, transfers.wait = transfers.wait, False
            try:
                copy_raw(self, src)
            finally:
                transfers.wait = before
        else:
            copy_raw(self, src)
    self._bump("copy_")
    if node is not None:
        rebase_history(self, node, 0)
    return self


def _filled_layout(input: Tensor, value: Any) -> tuple:
    return layout_as(input)


@internal(
    layout=_filled_layout,
    grads={"input": lambda g: g.new_zeros(g.shape), "value": lambda g: g.sum()},
    quirks=Quirks(label="FillBackward1"),
    batching="each",
)
def filled_with(input: Tensor, value: Tensor) -> Tensor:
    """A tensor like `input` whose elements are the only one of `value`."""


filled_with.on("any")(lambda out, input, value: raw_copy(out, value))


@internal(
    layout=_filled_layout,
    grads={"input": lambda g: g.new_zeros(g.shape)},
    quirks=Quirks(label="FillBackward0"),
    batching="each",
)
def filled_with_number(input: Tensor, value: complex) -> Tensor:
    """A tensor like `input` whose elements are `value`."""


filled_with_number.on("any")(lambda out, input, value: fill_raw(out, value))


def _fill_value(value: Any, d: dtype, name: str) -> Any:
    if isinstance(value, Tensor):
        if value.shape != ():
            raise RuntimeError(
                f"{name} only supports 0-dimension value tensor but got tensor with {len(value.shape)} dimensions."
            )
        return value
    return check_fits(as_number(value, name, "value", 2), d)


@composite
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor like this one with every element `value`."""
    value = _fill_value(value, input.dtype, "fill")
    if isinstance(value, Tensor):
        return filled_with(input, converted(value, value.dtype, input.device))
    return filled_with_number(input, value)


def _overwrite(self: Tensor, value: Any, name: str) -> Tensor:
    """Set every element to `value`, a number or a 0-dim tensor."""
    tensor_value = isinstance(value, Tensor)
    if tensor_value:
        check_writable(self)
    else:
        check_history_writable(self)
    node = None
    if grad_mode.enabled and (self.requires_grad or (tensor_value and value.requires_grad)):
        node = _overwrite_node(self, value, name)
    if tensor_value:
        raw_copy(self, value)
    else:
        fill_raw(self, value)
    self._bump(name)
    if node is not None:
        rebase_history(self, node, 0)
    return self


@internal(grads={"input": lambda g: g.new_zeros(g.shape)}, quirks=Quirks(label="FillBackward2"), batching="each")
def overwritten(input: Tensor) -> Tensor:
    return input._bare_alias()


@internal(
    grads={"input": lambda g: g.new_zeros(g.shape), "value": lambda g: g.sum()},
    quirks=Quirks(label="FillBackward3"),
    batching="each",
)
def overwritten_with(input: Tensor, value: Tensor) -> Tensor:
    return input._bare_alias()


@internal(grads={"input": lambda g: g.new_zeros(g.shape)}, quirks=Quirks(label="ZeroBackward0"), batching="each")
def zeroed(input: Tensor) -> Tensor:
    return input._bare_alias()


def _overwrite_node(self: Tensor, value: Any, name: str) -> Any:
    if name == "zero_":
        return zeroed(self).grad_fn
    return (overwritten_with(self, value) if isinstance(value, Tensor) else overwritten(self)).grad_fn


@composite(sharding="pointwise")
def fill_(self: Tensor, value: Any) -> Tensor:
    """Set every element to `value`."""
    return _overwrite(self, _fill_value(value, self.dtype, "fill_"), "fill_")


@composite(sharding="pointwise")
def zero_(self: Tensor) -> Tensor:
    """Set every element to zero."""
    if self._autograd is None and self._base is None:
        check_history_writable(self)
        fill_raw(self, 0)
        self._bump("zero_")
        return self
    return _overwrite(self, 0, "zero_")


# -- the memory behind a tensor ------------------------------------------------------------------------------------


@composite(batching="same")
def detach(input: Tensor) -> Tensor:
    """A tensor of the same data, cut off from the graph."""
    return input._bare_alias()


aten_parts("detach")(lambda aten, self: self)
aten_parts("detach_", "lift_fresh", unseen=True)(lambda aten, self: self)
aten_parts("lift_fresh_copy")(lambda aten, self: aten.clone.default(self))


@composite(function=False)
def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: Any = None) -> Tensor:
    """Itself: strided tensors are dense already."""
    return self if dtype is None else converted(self, as_dtype(dtype, "to_dense"), self.device)


@composite(function=False)
def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write `fill_value` on the main diagonal; `wrap` starts over below it in tall matrices."""
    n = len(self.shape)
    if n < 2:
        raise RuntimeError("dimensions must larger than 1")
    if n > 2 and len(set(self.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    step, side = sum(self._strides), min(self.shape)
    cells = self.as_strided((side,), (step,), self._offset)
    _overwrite(cells, _fill_value(fill_value, self.dtype, "fill_diagonal_"), "fill_diagonal_")
    if wrap and n == 2 and self.shape[0] > self.shape[1] + 1:
        below = self[self.shape[1] + 1 :]
        fill_diagonal_(below, fill_value, True)
    return self


@view(
    grads={"input": lambda g: g}, quirks=Quirks(label="AliasBackward0"), function=False, method=False, batching="same"
)
def alias(input: Tensor) -> Tensor:
    """The whole tensor as a view of itself, as far as autograd is concerned: what x[...] is."""
    return input._view(input.shape, input._strides, input._offset)


@composite(function=False)
def as_subclass(self: Tensor, cls: type) -> Any:
    """This tensor as an instance of `cls`: same memory, same history."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(
            "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. Make sure your class"
            f" inherits from Tensor: got {cls!r}"
        )
    register_instance(cls)
    source = alias(self)
    t = object.__new__(cls)
    t._adopt(source)
    t._autograd, t._base = source._autograd, source._base
    return t


def get_data(self: Tensor) -> Tensor:
    """A tensor over the same memory, outside autograd: changes through it are not counted."""
    t = self._bare_alias()
    t._storage = self._storage.alias() if self._storage.ptr else self._storage
    return t


def set_data(self: Tensor, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type_name(value)}")
    if self.requires_grad and value.dtype.category < 2:
        raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
    self._adopt(value)


OpenTensor.data = property(get_data, set_data)


def check_bounds(storage: UntypedStorage, shape: tuple, strides: tuple, offset: int, d: dtype) -> None:
    """Raise unless all elements are inside the storage."""
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    _, end = memory_span(shape, strides, offset)
    if 0 not in shape and end * d.itemsize > storage.size_bytes:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {offset}, and itemsize"
            f" {d.itemsize} requiring a storage size of {end * d.itemsize} are out of bounds for storage of size"
            f" {storage.size_bytes}"
        )


@composite(function=False)
def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Look at other memory: a storage (with offset, size and strides) or another tensor's."""
    if grad_mode.enabled and self.requires_grad and self.grad_fn is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if source is None:
        self._adopt(raw_empty(make_size((0,)), self.dtype, self.device))
        return self
    if isinstance(source, Tensor):
        if source.dtype is not self.dtype:
            raise RuntimeError(f"Could not set tensor of type {source.dtype} to a tensor of type {self.dtype}")
        if size is None:
            self._adopt(source)
            return self
    storage = source._storage if isinstance(source, Tensor) else source
    if isinstance(storage, TypedStorage):
        if storage.dtype is not self.dtype:
            raise RuntimeError(
                f"Expected a Storage of type {self.dtype} or an UntypedStorage, but got type {storage.dtype}"
            )
        storage = storage.untyped()
    if not isinstance(storage, UntypedStorage):
        raise TypeError(f"set_(): argument 'source' (position 1) must be Tensor or Storage, not {type_name(source)}")
    shape = (storage.size_bytes // self.dtype.itemsize,) if size is None else as_ints(size, "set_", "size", 3)
    strides = contiguous_strides(shape) if stride is None else as_ints(stride, "set_", "stride", 4)
    if len(shape) != len(strides):
        raise RuntimeError(f"unequal size length ({len(shape)}) and stride length ({len(strides)})")
    same_strides = stride is None or strides == self._strides
    if shape != self.shape or not same_strides:  # else PyTorch takes the storage as it is
        _grow(storage, shape, strides, storage_offset, self.dtype)
    check_bounds(storage, shape, strides, storage_offset, self.dtype)
    contig = is_contiguous_layout(shape, strides)
    self._adopt(header(storage, make_size(shape), tuple(strides), storage_offset, self.dtype, storage.device, contig))
    self._bump("set_")
    return self


def _grow(storage: UntypedStorage, shape: tuple, strides: tuple, offset: int, d: dtype) -> None:
    _, end = memory_span(shape, strides, offset)
    if 0 not in shape and end * d.itemsize > storage.size_bytes and storage.resizable():
        storage.resize_(end * d.itemsize)


@composite(function=False)
def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Another shape over the same storage, which grows if it must; new elements are uninitialised."""
    shape = varargs_ints(sizes, "resize_")
    if any(n < 0 for n in shape):
        raise RuntimeError(f"requested resize to {list(shape)} with a negative size")
    if self.requires_grad and not grad_mode.inference:
        raise RuntimeError("cannot resize variables that require grad")
    if tuple(shape) != tuple(self.shape) or memory_format is not None:
        before = self._storage.size_bytes
        resize_raw(self, shape, memory_format)
        if self._storage.size_bytes > before and fills_empty():
            start = -(-before // self.dtype.itemsize)
            new = make_size((self._storage.size_bytes // self.dtype.itemsize - start,))
            uninitialised(header(self._storage, new, (1,), start, self.dtype, self.device, True))
        self._bump("resize_")
    return self


@resize_.op.as_aten
def _(recorder: Any, self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    wanted = varargs_ints(sizes, "resize_")
    return self if tuple(wanted) == tuple(self.shape) else recorder.aten.resize_.default(self, list(wanted))


def resize_raw(t: Tensor, shape: tuple[int, ...], fmt: Any = None) -> None:
    if fmt is channels_last or fmt is channels_last_3d:
        strides = channels_last_strides(shape)
    else:
        strides = contiguous_strides(shape)
    _, end = memory_span(shape, strides, t._offset)
    if 0 not in shape and end * t.dtype.itemsize > t._storage.size_bytes:
        t._storage.resize_(end * t.dtype.itemsize)
    t.shape, t._strides = make_size(shape), strides
    t._contig = is_contiguous_layout(shape, strides)


@composite
def resize_as_(self: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """resize_ to another tensor's shape, and to its layout with preserve_format."""
    if memory_format is preserve_format:
        like_image = suggests_channels_last(the_template.shape, the_template._strides)
        memory_format = (channels_last if the_template.ndim == 4 else channels_last_3d) if like_image else None
    return resize_(self, the_template.shape, memory_format=memory_format)
