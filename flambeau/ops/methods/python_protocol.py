"""Tensors as Python objects: printing, numbers, iteration, NumPy and DLPack protocols, copying and pickling."""

from __future__ import annotations

import copy
import ctypes
import struct
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core import dlpack, printing, watching
from ...core import dtype as dt
from ...core.backend import BACKENDS
from ...core.batched import BatchedTensor
from ...core.device import default_device
from ...core.dtype import dtype
from ...core.float8 import readable
from ...core.graph import grad_mode, unrecorded
from ...core.html import tensor_html
from ...core.layout import strided
from ...core.named import NamedTensor, is_named
from ...core.object_state import object_state, set_object_state
from ...core.overrides import DisableTorchFunctionSubclass
from ...core.promotion import get_default_dtype
from ...core.quantized import QuantizedTensor
from ...core.sharded import SpreadTensor
from ...core.size import make_size
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, from_array, is_contiguous_layout, numel_of
from ...core.tensor import new_tensor as header
from ...core.wrapped import is_wrapper, make_wrapper
from ..creation.convert import on_host
from ..machinery.declare import composite

# -- numbers --------------------------------------------------------------------------------------------------------

_C_TYPES: dict[dtype, Any] = {
    d: getattr(ctypes, f"c_{d.c_type.removesuffix('_t')}") for d in dt.ALL_DTYPES if d is dt.opmath(d) and not d.is_complex
} | {dt.bool_: ctypes.c_bool}  # fmt: skip
_MEMORY_LETTERS: dict[dtype, Any] = {d: c._type_ for d, c in _C_TYPES.items()}  # what memoryview calls them
_SMALL = 1 << 12  # bytes
_READERS: dict[dtype, Any] = {d: c.from_address for d, c in _C_TYPES.items()}


def read_number(t: Tensor) -> Any:
    """Return the element at t's first position, which must exist, as a Python number."""
    d, where, storage, offset = t.dtype, t.device, t._storage, t._offset  # a tensor without memory refuses here
    address = BACKENDS[where.type].fetch(storage.ptr and storage.ptr + offset * d.itemsize, d.itemsize, where)
    read = _READERS.get(d)
    if read is not None:
        return read(address).value
    raw = ctypes.string_at(address, d.itemsize)
    if d is dt.bfloat16:
        return struct.unpack("f", b"\0\0" + raw)[0]
    return readable(np.frombuffer(raw, d.numpy), d)[0].item()


@composite(function=False, kind="primitive", reads_values=True, tells="number")
def item(self: Tensor) -> Any:
    """The only element, as a Python number."""
    if self.shape and numel_of(self.shape) != 1:
        raise RuntimeError(f"a Tensor with {numel_of(self.shape)} elements cannot be converted to Scalar")
    return read_number(self)


@composite(function=False, kind="primitive", reads_values=True, tells="list")
def tolist(self: Tensor) -> Any:
    """Nested Python lists of the elements."""
    self = on_host(self)
    shape, letter = self.shape, _MEMORY_LETTERS.get(self.dtype)
    if letter is not None and self._contig and shape and 0 < (nbytes := self.nbytes) <= _SMALL:
        start = self._storage.ptr + self._offset * self.dtype.itemsize
        if watching.active:
            watching.tell_converted(start, nbytes)
        raw = ctypes.string_at(start, nbytes)
        return memoryview(raw).cast(letter, shape).tolist()  # an array of NumPy costs more than its elements
    if self.dtype.kind == "n":
        raise RuntimeError(f"load_scalar: invalid type: elements of {self.dtype} are no numbers")
    return readable(self._array(), self.dtype).tolist()


def to_bool(self: Tensor) -> bool:
    n = numel_of(self.shape)
    if n != 1:
        kind = "no values" if n == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {kind} is ambiguous")
    return bool(item(self))


def to_int(self: Tensor) -> int:
    return int(_real_number(self))


def to_float(self: Tensor) -> float:
    return float(_real_number(self))


def _real_number(self: Tensor) -> Any:
    if numel_of(self.shape) != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    _warn_of_gradient(self)
    value = item(self)
    if isinstance(value, complex):
        if value.imag != 0:
            raise RuntimeError("value cannot be converted to type double without overflow")
        return value.real
    return value


_warned_of_gradient: list[bool] = []


def _warn_of_gradient(t: Tensor) -> None:
    """Warn once that a number has no history, so that results computed from float(loss) have no gradient."""
    if t._autograd is not None and not _warned_of_gradient and grad_mode.enabled and t.requires_grad:
        _warned_of_gradient.append(True)
        warnings.warn(
            "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
            "Consider using tensor.detach() first.",
            UserWarning,
            stacklevel=4,
        )


def to_complex(self: Tensor) -> complex:
    if numel_of(self.shape) != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    _warn_of_gradient(self)
    return complex(item(self))


def to_index(self: Tensor) -> int:
    if self.dtype.category > 1 or numel_of(self.shape) != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(item(self))


# -- containers ----------------------------------------------------------------------------------------------------


def length(self: Tensor) -> int:
    if not self.shape:
        raise TypeError("len() of a 0-d tensor")
    return self.shape[0]


def iterate(self: Tensor) -> Iterator[Tensor]:
    if not self.shape:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def reverse(self: Tensor) -> Tensor:
    """reversed(x): the first dimension in reverse order."""
    return self.flip(0) if self.shape else self


def contains(self: Tensor, element: Any) -> bool:
    if isinstance(element, (Tensor, bool, int, float, complex)):
        return bool((self == element).any().item())
    raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")


def listing(self: Tensor) -> list[str]:
    names = set(dir(type(self))) | set(self.__dict__)
    return sorted(n for n in names if not n[:1].isdigit())


# -- printing ------------------------------------------------------------------------------------------------------


def text(self: Tensor, *, tensor_contents: str | None = None) -> str:
    with DisableTorchFunctionSubclass():
        return _text(self, tensor_contents)


def _text(self: Tensor, contents: str | None, names: tuple[Any, ...] | None = None) -> str:
    if is_named(self):
        return _text(self._value, contents, self._dims)
    try:
        grad_fn = self.grad_fn
        grad_fn_name = None if grad_fn is None else grad_fn.name()
    except RuntimeError:  # a view made in no_grad mode whose memory was changed since has no history to show
        grad_fn_name = "Invalid"
    plain = type(self) is Tensor or getattr(type(self), "_prints_as_tensor", False)
    meta = self.device.type == "meta"
    tangent = self.__dict__.get("_tangent", (None, None))[1]  # of forward-mode derivatives
    where = None if self.device is default_device() else str(self.device)
    return printing.tensor_repr(
        None if meta else np.broadcast_to(np.uint8(0), self.shape) if contents is not None else on_host(self)._array(),
        self.dtype,
        default_float_dtype=get_default_dtype(),
        requires_grad=self.requires_grad,
        grad_fn_name=grad_fn_name,
        device="meta" if meta else where,
        shape=self.shape if meta else None,
        contents=contents,
        tangent=None if tangent is None else _text(tangent, None),
        names=names,
        prefix="tensor(" if plain else f"{type(self).__name__}(",
    )


# With elements that are not simply in memory.
_OTHER_KINDS = (BatchedTensor, NamedTensor, QuantizedTensor, SpreadTensor)


def html(self: Tensor) -> str | None:
    """Return a notebook's view of the tensor: a table, statistics and a histogram. None for tensors with only a text form, such as sparse
    ones."""
    if self.layout is not strided or self.is_nested or isinstance(self, _OTHER_KINDS) or is_wrapper(self):
        return None
    facts = [] if self.device is default_device() else [str(self.device)]
    if self.requires_grad:
        facts.append("requires_grad" if self.grad_fn is None else f"grad_fn {self.grad_fn.name()}")
    return tensor_html(
        None if self.device.type == "meta" else on_host(self.detach())._array(), self.dtype, self.shape, facts
    )


def formatted(self: Tensor, spec: str) -> str:
    return printing.format_tensor(self, spec, Tensor)


# -- NumPy and DLPack ----------------------------------------------------------------------------------------------


@composite(function=False, kind="primitive", reads_values=True, tells="NumPy array")
def numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
    """A NumPy array that shares memory; force=True detaches (and copies from other devices) first."""
    t = self.detach().cpu() if force else self
    if grad_mode.enabled and t.requires_grad:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if not t.dtype.has_numpy and t.dtype.kind != "q":
        raise TypeError(f"Got unsupported ScalarType {t.dtype.scalar_type}")
    t._storage.fix()
    return t._array()


def as_array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    array = numpy(self)
    if dtype is not None and array.dtype != np.dtype(dtype):
        if copy is False:
            raise ValueError("a copy is needed to convert the dtype, and copy=False was given")
        return array.astype(dtype)
    return array.copy() if copy else array


def wrap_array(self: Tensor, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Tensor:
    """Return the result of a NumPy function called on a tensor as a tensor."""
    array = np.asarray(array)
    return from_array(array.astype("uint8") if array.dtype == bool else array)


def to_dlpack(
    self: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
) -> Any:
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if not (self.is_cpu or self.is_cuda):
        raise BufferError(f"Cannot pack tensors on {self.device}")
    if stream is not None and not isinstance(stream, int):
        raise TypeError(f"stream must be int or None, got {type(stream).__name__}")
    if self.is_cuda:
        BACKENDS[self.device.type].hand_over(self.device, stream)
    elif stream not in (None, -1):
        raise AssertionError(f"stream should be None on cpu, got {stream}")
    place = dlpack_device(self)
    if dl_device is not None and tuple(dl_device) != place:
        raise BufferError(f"cannot move a tensor from {self.device} to the DLPack device {dl_device}")
    t = self.clone() if copy else self
    versioned = max_version is not None and max_version[0] >= 1
    t._storage.fix()
    return dlpack.export(t.data_ptr(), t.shape, t._strides, t.dtype, t._storage, versioned, place)


def dlpack_device(self: Tensor) -> tuple[int, int]:
    if self.is_cuda:
        return (dlpack.CUDA, self.device.index or 0)
    if not self.is_cpu:
        raise ValueError(f"Unknown device type {self.device.type} for Dlpack")
    return (dlpack.CPU, 0)


# -- copying and pickling ------------------------------------------------------------------------------------------


def rebuild_tensor(
    storage: UntypedStorage,
    d: dtype,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    requires_grad: bool,
) -> Tensor:
    """Return a leaf tensor over `storage`: the inverse of pickling."""
    t = header(
        storage, make_size(shape), tuple(strides), offset, d, storage.device, is_contiguous_layout(shape, strides)
    )
    if requires_grad:
        t.requires_grad = True
    return t


def rebuild_subclass(function: Any, cls: type, args: tuple[Any, ...], state: Any) -> Tensor:
    """Return a tensor of class `cls`, with its pickled attributes."""
    t = function(*args)
    if type(t) is not cls:
        t = t.as_subclass(cls) if not t.requires_grad else Tensor._make_subclass(cls, t.detach(), True)
    return set_object_state(t, state)


def reduce_ex(self: Tensor, protocol: int) -> tuple[Any, ...]:
    state = object_state(self)
    if is_wrapper(self):
        made = (
            type(self),
            self.shape,
            self.stride(),
            self.storage_offset(),
            None,
            self.dtype,
            self.layout,
            self.device,
        )
        return (rebuild_subclass, (make_wrapper, type(self), (*made, False, self.requires_grad), state))
    args = (self._storage, self.dtype, self._offset, tuple(self.shape), tuple(self._strides), self.requires_grad)
    if type(self) is Tensor and not state:
        return (rebuild_tensor, args)
    return (rebuild_subclass, (rebuild_tensor, type(self), args, state))


def set_state(self: Tensor, state: Any) -> None:
    self.__dict__.update(state)


def shallow_copy(self: Tensor) -> Tensor:
    """Return another tensor object over the same memory, for copy.copy."""
    function, args = reduce_ex(self, 2)
    return function(*args)


def deep_copy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment. "
            " If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage,"
            " see https://github.com/pytorch/pytorch/pull/103001"
        )
    if is_wrapper(self):
        return _deep_copy_of_wrapper(self, memo)
    storage = self._storage
    fresh_storage = memo.get(id(storage))
    if fresh_storage is None:
        fresh_storage = memo[id(storage)] = storage.clone()
        memo.setdefault(id(memo), []).append(storage)  # its id must stay taken
    t: Tensor = object.__new__(type(self))
    plain = rebuild_tensor(fresh_storage, self.dtype, self._offset, self.shape, self._strides, False)
    t._adopt(plain)
    t._autograd = t._base = None
    if self.requires_grad:
        t.requires_grad = True
    if self.grad is not None:
        t._ensure_autograd().grad = copy.deepcopy(self.grad, memo)
    memo[id(self)] = t
    state = object_state(self)
    return set_object_state(t, copy.deepcopy(state, memo)) if state else t


def _deep_copy_of_wrapper(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """Return a clone, which the class makes of its contents."""
    t = unrecorded(self.clone)
    if type(t) is not type(self):
        raise RuntimeError(
            "The default implementation of __deepcopy__() for wrapper subclasses only works for subclass types that properly"
            " implement clone(), for which cloning returns another instance of the same subclass. Define __deepcopy__(), or return"
            f" a {type(self).__name__} from __torch_dispatch__ for aten.clone."
        )
    if self.requires_grad:
        t.requires_grad = True
    if self.grad is not None:
        t._ensure_autograd().grad = copy.deepcopy(self.grad, memo)
    memo[id(self)] = t
    return t


_SPECIAL = {
    "__bool__": to_bool, "__int__": to_int, "__float__": to_float, "__complex__": to_complex, "__index__": to_index,
    "__len__": length, "__iter__": iterate, "__reversed__": reverse, "__contains__": contains, "__dir__": listing, "__repr__": text,
    "_repr_html_": html,
    "__format__": formatted, "__array__": as_array, "__array_wrap__": wrap_array, "__dlpack__": to_dlpack,
    "__dlpack_device__": dlpack_device, "__reduce_ex__": reduce_ex, "__setstate__": set_state, "__copy__": shallow_copy,
    "__deepcopy__": deep_copy,
}  # fmt: skip

for _name, _function in _SPECIAL.items():
    _function.__name__ = _name  # an override of operators asks by it
    setattr(Tensor, _name, _function)
Tensor.__array_priority__ = 1000
