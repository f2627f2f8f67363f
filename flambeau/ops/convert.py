"""Copies and conversions: clone, contiguous, to, copy_, NumPy in and out, Python numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core.bfloat16 import bits_to_float32
from ..core.device import cpu, device
from ..core.dtype import dtype
from ..core.graph import mode
from ..core.layout import (
    broadcast_two,
    channels_last,
    channels_last_3d,
    contiguous_format,
    is_channels_last,
    memory_format,
    preserve_format,
)
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, copy_of_array, from_array
from ..core.tensor import empty as raw_empty
from .creation import as_device, empty_as
from .declare import composite, primitive
from .inplace import check_writable, raw_copy, rebase_history


def is_laid_out(t: Tensor, fmt: memory_format) -> bool:
    if fmt is contiguous_format:
        return t._contig
    if fmt is channels_last or fmt is channels_last_3d:
        return len(t.shape) == (4 if fmt is channels_last else 5) and is_channels_last(t.shape, t._strides)
    return True


@composite(function=False)
def is_contiguous(self: Tensor, memory_format: Any = contiguous_format) -> bool:
    """Whether the elements lie in memory in that order without gaps."""
    return self._contig if memory_format is contiguous_format else is_laid_out(self, memory_format)


@primitive(grads={"input": lambda g: g})
def clone(input: Tensor, *, memory_format: Any = preserve_format) -> Tensor:
    """A copy with memory of its own."""
    out = empty_as(input, fmt=memory_format)
    raw_copy(out, input)
    return out


@composite(function=False)
def contiguous(self: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    """Itself if laid out that way, else a copy that is."""
    return self if is_laid_out(self, memory_format) else clone(self, memory_format=memory_format)


def _convert_backward(g: Tensor, input: Tensor) -> Tensor:
    if g.dtype.is_complex and not input.dtype.is_complex:
        g = g.real
    return g.to(device=input.device, dtype=input.dtype)


@primitive(grads={"input": _convert_backward}, label="ToCopyBackward0", function=False, method=False)
def convert(input: Tensor, d: dtype, where: device, fmt: memory_format) -> Tensor:
    """A copy with another dtype, device or memory format."""
    out = empty_as(input, d, where, fmt)
    if where is cpu and input.device is cpu:
        raw_copy(out, input)
    elif where.type != "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    return out


def parse_to(args: tuple, kwargs: dict) -> tuple[Any, Any, bool, bool, Any]:
    """to(dtype), to(device), to(device, dtype), to(other), with non_blocking, copy and memory_format."""
    d, where = kwargs.pop("dtype", None), kwargs.pop("device", None)
    copy, fmt = kwargs.pop("copy", False), kwargs.pop("memory_format", None)
    non_blocking = kwargs.pop("non_blocking", False)
    other = kwargs.pop("other", None)
    if kwargs:
        raise TypeError(f"to() received an invalid combination of arguments: unexpected {', '.join(kwargs)}")
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
    if other is not None:
        d, where = other.dtype, other.device
    elif rest and (isinstance(rest[0], (device, str, int)) or rest[0] is None) and not isinstance(rest[0], bool):
        where = rest.pop(0) if rest[0] is not None else (rest.pop(0), None)[1]
    if rest and isinstance(rest[0], dtype):
        d = rest.pop(0)
    elif rest and rest[0] is None:
        rest.pop(0)
    if rest:
        if not isinstance(rest[0], bool):
            raise TypeError(f"to() received an invalid combination of arguments - got ({type(rest[0]).__name__})")
        non_blocking = rest.pop(0)
    if rest:
        copy = rest.pop(0)
    return d, where, non_blocking, copy, fmt


@composite(function=False)
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The same values with another dtype, device or memory format; itself if nothing changes."""
    d, where, _, copy, fmt = parse_to(args, kwargs)
    d = d or self.dtype
    where = self.device if where is None else as_device(where)
    fmt = fmt or preserve_format
    if d is self.dtype and where is self.device and not copy and is_laid_out(self, fmt):
        return self
    if where.type == "cuda":
        raise AssertionError("Torch not compiled with CUDA enabled")
    return convert(self, d, where, fmt)



@primitive(
    grads={"input": lambda g: g * 0, "src": lambda g, src: _convert_backward(g.sum_to_size(src.shape), src)},
    label="CopyBackwards",
    function=False,
    method=False,
)
def copied(input: Tensor, src: Tensor) -> Tensor:
    """What `input` becomes by copy_: src's values in input's shape and dtype (a node for autograd, no work)."""
    return src._bare_alias()


@composite(function=False)
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Take the values of `src`, broadcast and converted."""
    if not isinstance(src, Tensor):
        raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(src).__name__}")
    check_writable(self, "copy_")
    if broadcast_two(self.shape, src.shape) != self.shape:
        raise RuntimeError(
            f"The size of tensor a ({self.shape[-1] if self.shape else 1}) must match the size of tensor b"
            f" ({src.shape[-1]}) at non-singleton dimension {len(src.shape) - 1}"
        )
    node = None
    if mode.enabled and (self.requires_grad or src.requires_grad) and (self.dtype.is_floating_point or self.dtype.is_complex):
        twin = copied(self, src)
        node = twin.grad_fn
    if self.device is cpu and src.device is cpu:
        raw_copy(self, src)
    elif self.device.type != "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    self._bump("copy_")
    if node is not None:
        rebase_history(self, node, 0)
    return self


@composite(function=False)
def item(self: Tensor) -> Any:
    """The only element, as a Python number."""
    if self.numel() != 1:
        raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
    value = self._array().reshape(-1)
    return bits_to_float32(value)[0].item() if self.dtype is dt.bfloat16 else value[0].item()


@composite(function=False)
def tolist(self: Tensor) -> Any:
    """Nested Python lists of the elements."""
    array = self._array()
    return (bits_to_float32(array) if self.dtype is dt.bfloat16 else array).tolist()


@composite(function=False)
def numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
    """A NumPy array that shares memory."""
    t = self.detach() if force else self
    if t.requires_grad:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if t.dtype is dt.bfloat16:
        raise TypeError("Got unsupported ScalarType BFloat16")
    return t._array()


@composite(method=False)
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor that shares memory with a NumPy array."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    if ndarray.dtype not in dt.FROM_NUMPY:
        raise TypeError(
            f"can't convert np.ndarray of type {ndarray.dtype.type.__module__}.{ndarray.dtype.type.__name__}. The only supported"
            " types are: float64, float32, float16, complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16,"
            " uint8, and bool."
        )
    if any(s < 0 for s in ndarray.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently"
            " supported. (You can probably work around this by making a copy of your array with array.copy().) "
        )
    if any(s % ndarray.itemsize for s in ndarray.strides):
        raise ValueError("given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate the memory.")
    return from_array(ndarray)


@composite(function=False)
def detach(self: Tensor) -> Tensor:
    """The same data, cut off from the graph."""
    return self._bare_alias()


def get_data(self: Tensor) -> Tensor:
    """The same memory outside autograd: changes through it are not counted."""
    t = self._bare_alias()
    t._storage = self._storage.alias() if self._storage.ptr else self._storage
    return t


def set_data(self: Tensor, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
    self._adopt(value)


Tensor.data = property(get_data, set_data)  # type: ignore[attr-defined]

__all__ = ["UntypedStorage", "convert", "copy_of_array", "is_laid_out", "raw_empty"]
