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
from ...core.layout import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    is_channels_last,
    memory_format,
    preserve_format,
    suggests_channels_last,
)
from ...core.raw_memory import transfers
from ...core.settings import is_warn_always_enabled
from ...core.tensor import OpenTensor, Tensor
from ...core.typenames import type_name
from ..machinery.arguments import as_device, as_dtype, refuse_quantized
from ..machinery.aten_form import aten_parts
from ..machinery.declare import composite, internal, primitive
from ..machinery.inplace import copy_into, copy_kernel, copy_values, raw_copy
from ..machinery.quirks import Quirks
from .filled import layout_as


def is_laid_out(t: Tensor, fmt: memory_format) -> bool:
    if fmt is contiguous_format:
        return t._contig
    if fmt is channels_last or fmt is channels_last_3d:
        return len(t.shape) == (4 if fmt is channels_last else 5) and is_channels_last(t.shape, t._strides)
    return True


def _is_of_format(t: Tensor, fmt: memory_format) -> bool:
    """Return whether the strides are those of a memory format, also in dimensions of size 1, which may fit two formats at once."""
    if fmt is preserve_format:
        return True
    last = suggests_channels_last(t.shape, t._strides)
    return is_laid_out(t, fmt) and last is (fmt is not contiguous_format)


@composite(function=False)
def is_contiguous(self: Tensor, memory_format: Any = contiguous_format) -> bool:
    """Return whether the elements are stored without gaps in the order of the memory format."""
    return self._contig if memory_format is contiguous_format else is_laid_out(self, memory_format)


class CopyPlan:
    """The kernel that copies one layout to another, once it was looked up: None if there is none."""

    __slots__ = ("known", "fn", "first")

    fn: Any
    first: Any

    def __init__(self) -> None:
        self.known = False


_copy_layouts: dict[tuple[Any, ...], tuple[Any, ...]] = {}


def _copy_layout(input: Tensor, d: dtype, where: device, fmt: memory_format) -> tuple[Any, ...]:
    """Return the layout of a copy, and the plan that makes it."""
    key = (input.shape, input._strides, input.dtype, input.device, d, where, fmt)
    found = _copy_layouts.get(key)
    if found is None:
        shape, _, _, *strides = layout_as(input, d, where, fmt)
        found = remember(_copy_layouts, key, (shape, d, where, strides[0] if strides else None, CopyPlan()))
    return found


def _copy(out: Tensor, plan: CopyPlan, input: Tensor, *_: Any, **__: Any) -> None:
    """Copy the values of input, converted, into new memory, also on another device."""
    if not plan.known:
        plan.fn, plan.first = copy_kernel(out, input) if out.device is input.device else (None, None)
        plan.known = True
    fn = plan.fn
    if fn is None:
        copy_into(out, input)
    else:
        fn(plan.first, out._storage.ptr, input._storage.ptr + input._offset * input.dtype.itemsize)


def _clone_layout(input: Tensor, *, memory_format: Any = preserve_format) -> tuple[Any, ...]:
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
    """Copy source to out, on any devices."""
    if out.device.type != "meta":
        raw_copy(out, source)


@composite(function=False, batching="fronted", sharding="same")
def contiguous(self: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    """The tensor itself if it has this memory format, else a copy that has."""
    if memory_format is preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    return self if is_laid_out(self, memory_format) else clone(self, memory_format=memory_format)


@contiguous.op.as_aten
def _(recorder: Any, self: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    if not recorder.reads_python and self.is_contiguous(memory_format=memory_format):
        return self  # only traces show calls in their written form, and those without effect
    return recorder.aten.contiguous.default(self, memory_format=memory_format)


@aten_parts("contiguous")
def _(aten: Any, self: Tensor, *, memory_format: Any = contiguous_format) -> Tensor:
    return aten.clone.default(self, memory_format=memory_format)


def _convert_backward(g: Tensor, input_dtype: dtype, input_device: device) -> Tensor:
    if g.dtype.is_complex and not input_dtype.is_complex:
        g = g.real
    if type(g) is Tensor and not _active:  # no mode needs to see the call of `to`
        return converted(g, input_dtype, input_device)
    return g.to(device=input_device, dtype=input_dtype)


_warned_of_imaginary_parts: list[bool] = []


def _warn_of_imaginary_parts(target: dtype) -> None:
    """Warn once, as PyTorch does, that a conversion to real numbers drops imaginary parts."""
    if target.is_complex or target is dt.bool_ or (_warned_of_imaginary_parts and not is_warn_always_enabled()):
        return
    _warned_of_imaginary_parts.append(True)
    warnings.warn("Casting complex values to real discards the imaginary part", UserWarning, stacklevel=4)


def _convert_layout(input: Tensor, d: dtype, where: device, fmt: memory_format) -> tuple[Any, ...]:
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
    """Return a copy with another dtype, device or memory format."""


convert.on("any")(_copy)
_active, _convert = modes.active, convert.op.impl.fn


def _bad_to(args: tuple[Any, ...]) -> TypeError:
    given = ", ".join(type_name(a) for a in args)
    return TypeError(
        f"to() received an invalid combination of arguments - got ({given}), but expected one of: (torch.device"
        " device, torch.dtype dtype, bool non_blocking, bool copy), (torch.dtype dtype, bool non_blocking, bool copy),"
        " (Tensor tensor, bool non_blocking, bool copy)"
    )


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dtype | None, Any, bool, bool, Any]:
    """Parse the arguments of to(dtype), to(device), to(device, dtype), to(other), with non_blocking, copy and memory_format."""
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
        if rest:  # a dtype follows a device, never a flag
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
    """Convert as `converted` does, with asynchronous copies between host and device (see `non_blocking`)."""
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
    """Return the values of t where the host can read them: t itself, or a copy of it."""
    return t if BACKENDS[t.device.type].on_host else converted(t._bare_alias(), t.dtype, cpu)


def _cast_method(name: str, d: dtype) -> Any:
    def cast(self: Tensor, memory_format: Any = preserve_format) -> Tensor:
        if memory_format is preserve_format:
            if d is self.dtype:
                return self
            if not _active and self._autograd is None and self._base is None:  # no mode is on, and nothing is recorded
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


@composite(function=False, method=False, aten="to")
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


# -- the memory behind a tensor ------------------------------------------------------------------------------------


@composite(batching="same")
def detach(input: Tensor) -> Tensor:
    """A tensor of the same data, detached from the graph."""
    return input._bare_alias()


aten_parts("detach")(lambda aten, self: self)
aten_parts("detach_", "lift_fresh", unseen=True)(lambda aten, self: self)
aten_parts("lift_fresh_copy")(lambda aten, self: aten.clone.default(self))


@composite(function=False)
def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: Any = None) -> Tensor:
    """The tensor itself: strided tensors are dense already."""
    return self if dtype is None else converted(self, as_dtype(dtype, "to_dense"), self.device)
