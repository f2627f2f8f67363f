"""The memory behind a tensor: alias, data, set_, resize_, and views as subclasses."""

from __future__ import annotations

from typing import Any

from ...core.dtype import dtype
from ...core.graph import grad_mode
from ...core.layout import (
    channels_last,
    channels_last_3d,
    channels_last_strides,
    memory_span,
    preserve_format,
    suggests_channels_last,
)
from ...core.overrides import register_instance
from ...core.settings import fills_empty
from ...core.size import make_size
from ...core.storage import UntypedStorage
from ...core.tensor import OpenTensor, Tensor, contiguous_strides, is_contiguous_layout
from ...core.tensor import empty as raw_empty
from ...core.tensor import new_tensor as header
from ...core.typed_storage import TypedStorage
from ...core.typenames import type_name
from ..machinery.arguments import as_ints, varargs_ints
from ..machinery.declare import composite, view
from ..machinery.quirks import Quirks
from .filled import uninitialised


@view(
    grads={"input": lambda g: g}, quirks=Quirks(label="AliasBackward0"), function=False, method=False, batching="same"
)
def alias(input: Tensor) -> Tensor:
    """A view of the whole tensor, as a separate tensor for autograd: the result of x[...]."""
    return input._view(input.shape, input._strides, input._offset)


@composite(function=False, quirks=Quirks(unasked=True))
def as_subclass(self: Tensor, cls: type) -> Any:
    """Return the tensor as an instance of `cls`, with the same memory and history."""
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


def check_bounds(
    storage: UntypedStorage, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, d: dtype
) -> None:
    """Raise unless all elements are inside the storage."""
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if any(n < 0 for n in (*shape, *strides)):
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)} and strides={list(strides)}")
    _, end = memory_span(shape, strides, offset)
    if 0 not in shape and end * d.itemsize > storage.size_bytes:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {offset}, and itemsize"
            f" {d.itemsize} requiring a storage size of {end * d.itemsize} are out of bounds for storage of size"
            f" {storage.size_bytes}"
        )


@composite(function=False)
def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Refer to other memory: a storage (with offset, size and strides) or another tensor's."""
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
    if shape != self.shape or not same_strides:  # else PyTorch takes the storage unchanged
        _grow(storage, shape, strides, storage_offset, self.dtype)
    check_bounds(storage, shape, strides, storage_offset, self.dtype)
    contig = is_contiguous_layout(shape, strides)
    self._adopt(header(storage, make_size(shape), tuple(strides), storage_offset, self.dtype, storage.device, contig))
    self._bump("set_")
    return self


def _grow(storage: UntypedStorage, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, d: dtype) -> None:
    _, end = memory_span(shape, strides, offset)
    if 0 not in shape and end * d.itemsize > storage.size_bytes and storage.resizable():
        storage.resize_(end * d.itemsize)


@composite(function=False)
def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Change the shape over the same storage, which grows if necessary; new elements are uninitialised."""
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
    """Resize to another tensor's shape, with preserve_format also to its layout."""
    if memory_format is preserve_format:
        like_image = suggests_channels_last(the_template.shape, the_template._strides)
        memory_format = (channels_last if the_template.ndim == 4 else channels_last_3d) if like_image else None
    return resize_(self, the_template.shape, memory_format=memory_format)
