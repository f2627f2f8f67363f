"""The tensor header: shape, strides and offset over a storage, and its autograd fields.

What tensors *do* is declared in `ops`, which binds methods onto this class once, at import.
"""

from __future__ import annotations

import ctypes
import math
import warnings
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import dtype as dt
from . import naming, watching
from .caching import remember
from .device import cpu, device
from .dtype import dtype
from .graph import INFERENCE, AutogradState, Node, grad_mode
from .naming import above
from .overrides import (
    DisableTorchDispatch,
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    below,
    register_instance,
    register_plain,
    register_subclass,
)
from .shadowing import shadow
from .size import Size, make_size, new_size
from .storage import UntypedStorage
from .user_frames import user_frame

_new_object = object.__new__
_PLAIN = frozenset((Size, int, float, bool, str, type(None)))  # parts of structures that need not be looked into
_STRIDES: dict[tuple[Any, ...], tuple[int, ...]] = {}


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the row-major strides of `shape`, as PyTorch counts them (size 0 counts as 1)."""
    found = _STRIDES.get(shape)
    if found is None:
        strides, step = [], 1
        for size in reversed(shape):
            strides.append(step)
            step *= size if size > 1 else 1
        found = remember(_STRIDES, tuple(shape), tuple(reversed(strides)))
    return found


numel_of: Callable[[Iterable[int]], int] = math.prod


def is_contiguous_layout(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1:
            if stride != step:
                return 0 in shape  # without elements any strides will do
            step *= size
    return True


# Flambeau's operators are Python functions. PyTorch, which uses the same protocol, offers built-ins and their methods.
_BUILT_IN = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)


def _is_foreign(function: Any) -> bool:
    return type(function) in _BUILT_IN or (getattr(function, "__module__", None) or "").partition(".")[0] == "torch"


if TYPE_CHECKING:  # operators are bound by `ops`; type checkers and editors read about them in a stub (see utils.stubs)
    from .tensor_methods import TensorMethods
else:
    TensorMethods = object


class Tensor(TensorMethods):
    """A multi-dimensional array of one dtype, with PyTorch's interface."""

    __slots__ = {
        **dict.fromkeys(("_storage", "_strides", "_offset", "_contig", "_autograd", "_base", "__dict__", "__weakref__")),
        "shape": "Size of each dimension.", "dtype": "Type of the elements.", "device": "Device whose memory the elements are in.",
    }  # fmt: skip

    _storage: UntypedStorage
    shape: Size
    _strides: tuple[int, ...]
    _offset: int
    dtype: dtype
    device: device
    _contig: bool
    _autograd: AutogradState | None
    _base: Tensor | None

    # -- subclasses -------------------------------------------------------------------------------------------------
    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = getattr(cls.__torch_function__, "__func__", None) is not vars(Tensor)["__torch_function__"].__func__
        if register_subclass(cls) and own:
            shadow(cls, Tensor)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator on a subclass and return results of that subclass: the default, which a subclass may override."""
        if not all(issubclass(cls, t) for t in types) or _is_foreign(func):
            return NotImplemented
        with DisableTorchFunctionSubclass():
            result = below(func, args, kwargs or {})
        return result if func in _AS_THEY_ARE else _as_class(result, cls)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Compute an operator on a subclass by its memory: the default, which a subclass may override."""
        with DisableTorchDispatch():
            return func(*args, **(kwargs or {}))

    @staticmethod
    def _make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Any:
        """Return a header of class `cls` over data's memory, a leaf of the graph."""
        if not isinstance(data, Tensor):
            raise TypeError(f"_make_subclass(): argument 'data' (position 2) must be Tensor, not {type(data).__name__}")
        register_instance(cls)
        t: Any = _new_object(cls)
        with DisableTorchFunctionSubclass():
            t._adopt(data)
            t._autograd = t._base = None
            if require_grad:
                t.requires_grad = True
        return t

    @staticmethod
    def _make_wrapper_subclass(cls: type, size: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a tensor of class `cls` without memory, whose `__torch_dispatch__` answers operators (see core.wrapped)."""
        return naming.above("core.wrapped").make_wrapper(cls, size, *args, **kwargs)

    # -- memory -----------------------------------------------------------------------------------------------------
    def data_ptr(self) -> int:
        if self._storage.ptr == 0 or 0 in self.shape:  # no element has an address
            return 0
        return self._storage.ptr + self._offset * self.dtype.itemsize

    def storage_offset(self) -> int:
        return self._offset

    def untyped_storage(self) -> UntypedStorage:
        return self._storage

    def element_size(self) -> int:
        return self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Size of one element in bytes."""
        return self.dtype.itemsize

    def numel(self) -> int:
        return numel_of(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of all elements in bytes."""
        return numel_of(self.shape) * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def _array(self) -> np.ndarray[Any, Any]:
        """Return a NumPy array over the same memory (bfloat16 as raw uint16 bits), for immediate reading or writing."""
        d = self.dtype
        storage = self._storage
        if storage.device is not cpu:
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host"
                " memory first."
            )
        if numel_of(self.shape) == 0:
            return np.empty(self.shape, d.numpy)
        size = d.itemsize
        return np.ndarray(
            self.shape, d.numpy, storage.buffer(), self._offset * size, tuple([s * size for s in self._strides])
        )

    def _view(self, shape: Any, strides: tuple[int, ...], offset: int) -> Tensor:
        """Make another header over the same storage, marked as a view. No bounds check, no autograd."""
        t = _new_object(Tensor)
        t._storage = self._storage
        t.shape = shape if type(shape) is Size else make_size(shape)
        t._strides = strides
        t._offset = offset
        t.dtype = self.dtype
        t.device = self.device
        t._contig = is_contiguous_layout(t.shape, strides)
        t._autograd = None
        base = self._base
        t._base = self if base is None else base
        return t

    def _bare_alias(self) -> Tensor:
        """Return a tensor of the same data without any history."""
        t = _new_object(Tensor)
        t._storage = self._storage
        t.shape = self.shape
        t._strides = self._strides
        t._offset = self._offset
        t.dtype = self.dtype
        t.device = self.device
        t._contig = self._contig
        t._autograd = None
        t._base = None
        return t

    def _adopt(self, other: Tensor) -> None:
        """Refer to other's data from now on (as `x.data = y` and set_ do)."""
        self._storage = other._storage
        self.shape = other.shape
        self._strides = other._strides
        self._offset = other._offset
        self.dtype = other.dtype
        self.device = other.device
        self._contig = other._contig

    # -- autograd fields --------------------------------------------------------------------------------------------
    def _ensure_autograd(self) -> AutogradState:
        meta = self._autograd
        if meta is None:
            meta = self._autograd = AutogradState()
        return meta

    @property
    def requires_grad(self) -> bool:
        """Return whether autograd records what is done with this tensor."""
        meta = self._autograd
        if meta is not None and (meta.requires_grad or meta.grad_fn is not None):
            return True
        base = self._base  # a view made without recording still says what its base says
        if base is None or not base.requires_grad or self._storage.version >= INFERENCE:
            return False
        return self.dtype.is_floating_point or self.dtype.is_complex

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        value = bool(value)
        if value and not (self.dtype.is_floating_point or self.dtype.is_complex):
            raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
        meta = self._ensure_autograd()
        if meta.grad_fn is not None and not value:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a"
                " subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            )
        if value and self._storage.version >= INFERENCE and not grad_mode.inference:
            raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
        meta.requires_grad = value

    @property
    def is_leaf(self) -> bool:
        """Return whether no recorded operator made this tensor: gradients are collected in leaves."""
        return self._autograd is None or self.grad_fn is None

    @property
    def grad_fn(self) -> Node | None:
        """Node of the graph that made this tensor; None for a leaf."""
        base = self._base
        meta = self._autograd
        if base is not None:
            base_meta = base._autograd
            if base_meta is not None and (base_meta.requires_grad or base_meta.grad_fn is not None):
                known = -1 if meta is None else meta.view_version
                if (base_meta.rebase_version if known < 0 else self._storage.version) > known:
                    self._rebuild_view_history()
                    meta = self._autograd
        return None if meta is None else meta.grad_fn

    def _rebuild_view_history(self) -> None:
        raise NotImplementedError  # bound by ops.inplace, which knows as_strided

    @property
    def output_nr(self) -> int:
        """Position among the results of `grad_fn`."""
        return 0 if self._autograd is None else self._autograd.output_nr

    @property
    def grad(self) -> Tensor | None:
        """Gradient that `backward` has collected; None before."""
        meta = self._autograd
        if meta is None:
            return None
        if meta.grad is None and meta.grad_fn is not None and not meta.retains_grad:
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't"
                " be populated during autograd.backward(). If you indeed want the .grad field to be populated for a"
                " non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by"
                " mistake, make sure you access the leaf Tensor instead.",
                UserWarning,
                stacklevel=2,
            )
        return meta.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is None:
            del self.grad
            return
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {kind}")
        if value is self:
            raise RuntimeError("can't assign Variable as its own grad")
        if value.dtype is not self.dtype:
            raise RuntimeError(
                f"attempting to assign a gradient with dtype '{value.dtype.scalar_type.lower()}' to a tensor with grad_dtype"
                f" '{self.dtype.scalar_type}'. The gradient must match the tensor's grad_dtype (defaults to the tensor's dtype)."
            )
        if value.device is not self.device:
            raise RuntimeError(
                f"attempting to assign a gradient with device type '{value.device}' to a tensor with device type"
                f" '{self.device}'. Please ensure that the gradient and the tensor are on the same device"
            )
        if value.shape != self.shape:
            raise RuntimeError(
                f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size '{list(self.shape)}'."
                " Please ensure that the gradient and the tensor are the same size"
            )
        self._ensure_autograd().grad = value

    @grad.deleter
    def grad(self) -> None:
        if self._autograd is not None:
            self._autograd.grad = None

    _grad = grad

    @property
    def _version(self) -> int:
        version = self._storage.version
        if version >= INFERENCE:
            raise RuntimeError("Inference tensors do not track version counter.")
        return version

    def _set_history(self, node: Node, output_nr: int = 0) -> None:
        meta = self._autograd
        if meta is None:
            meta = self._autograd = AutogradState()
        meta.grad_fn = node
        meta.output_nr = output_nr

    def _bump(self, op: str) -> None:
        """Count an in-place change; if a graph has saved this memory, note the operator that changed it."""
        storage = self._storage
        storage.version += 1
        if storage.watched and storage.version < INFERENCE:
            storage.last_write = (op, user_frame())


register_plain(Tensor)
OpenTensor: Any = Tensor  # for the rooms that give tensors their methods


_AS_THEY_ARE = (Tensor.__dict__["grad"].__get__, Tensor.__dict__["_base"].__get__)


def _as_class(value: Any, cls: type) -> Any:
    """Return a result with its tensors converted to instances of `cls`."""
    if isinstance(value, Tensor):
        if isinstance(value, cls) or cls is Tensor:
            return value
        with DisableTorchFunction():  # no operator of the user's
            return value.as_subclass(cls)
    if isinstance(value, (tuple, list)):
        parts = [_as_class(v, cls) for v in value]
        return type(value)._make(parts) if hasattr(value, "_make") else type(value)(parts)
    return value


def new_tensor(
    storage: UntypedStorage, shape: Size, strides: tuple[int, ...], offset: int, d: dtype, where: device, contig: bool
) -> Tensor:
    """Make a tensor by setting every slot, without checks: the internal constructor."""
    t = _new_object(Tensor)
    t._storage = storage
    t.shape = shape
    t._strides = strides
    t._offset = offset
    t.dtype = d
    t.device = where
    t._contig = contig
    t._autograd = None
    t._base = None
    return t


def empty(shape: tuple[int, ...], d: dtype, where: device = cpu) -> Tensor:
    """Return an uninitialised contiguous tensor."""
    known = _CONTIGUOUS.get(shape)
    if known is None:
        known = _contiguous_layout(shape)
    if d.kind == "q":
        _refuse_quantized(d)
    t = _new_object(Tensor)
    t.shape, t._strides, numel = known
    t._storage = UntypedStorage(numel * d.itemsize, where)
    t._offset = 0
    t.dtype = d
    t.device = where
    t._contig = True
    t._autograd = None
    t._base = None
    return t


def _refuse_quantized(d: dtype) -> NoReturn:
    """Raise an error for a quantized dtype: an operator was about to compute with codes as if they were values."""
    raise above("core.quantized").QuantizedOperand(f"a strided tensor cannot have the dtype {d}")


_CONTIGUOUS: dict[tuple[Any, ...], tuple[Size, tuple[int, ...], int]] = {}


def _contiguous_layout(shape: Iterable[int]) -> tuple[Size, tuple[int, ...], int]:
    """Return size, strides and number of elements of a contiguous tensor."""
    shape = tuple([int(n) for n in shape])  # NumPy's integers and bool are equal to ints, but do not print like them
    return remember(_CONTIGUOUS, shape, (new_size(shape), contiguous_strides(shape), numel_of(shape)))


def empty_strided(shape: tuple[int, ...], strides: tuple[int, ...], d: dtype, where: device = cpu) -> Tensor:
    """Return an uninitialised tensor with the given strides; the storage is just large enough."""
    known = _STRIDED.get((shape, tuple(strides)))
    if known is None:
        known = _strided_layout(shape, strides)
    if d.kind == "q":
        _refuse_quantized(d)
    size, strides, extent, contig = known
    return new_tensor(UntypedStorage(extent * d.itemsize, where), size, strides, 0, d, where, contig)


_STRIDED: dict[tuple[Any, ...], tuple[Size, tuple[int, ...], int, bool]] = {}


def _strided_layout(shape: Iterable[int], strides: Iterable[int]) -> tuple[Size, tuple[int, ...], int, bool]:
    """Return size, strides, number of elements from the first to the last, and whether that is contiguous."""
    size, strides = new_size([int(n) for n in shape]), tuple([int(n) for n in strides])
    extent = 1 + sum([(n - 1) * step for n, step in zip(size, strides)]) if numel_of(size) else 0
    return remember(_STRIDED, (size, strides), (size, strides, extent, is_contiguous_layout(size, strides)))


_addressof: Any = ctypes.addressof
_first_byte: Any = ctypes.c_char.from_buffer


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Return the address of a contiguous array's first byte. `array.ctypes.data` is the same, but takes four times as long, and data sets
    need this for every sample."""
    return _addressof(_first_byte(array)) if array.flags.writeable else array.ctypes.data


def from_array(array: np.ndarray[Any, Any], d: dtype | None = None) -> Tensor:
    """Return a tensor that shares memory with a NumPy array (`d` is the dtype of uint16 bits)."""
    d = d or dt.FROM_NUMPY[array.dtype]
    size, flags = d.itemsize, array.flags
    strides = tuple([s // size for s in array.strides])
    shape = make_size(array.shape)
    contig = flags.c_contiguous  # NumPy's rule is the same: sizes 0 and 1 do not count
    if not array.size:
        return new_tensor(UntypedStorage(0), shape, strides, 0, d, cpu, contig)
    storage = UntypedStorage.borrow(address_of(array) if contig else array.ctypes.data, array.nbytes, array)
    if not contig:
        storage.size_bytes = (1 + sum((n - 1) * s for n, s in zip(shape, strides))) * size
    return new_tensor(storage, shape, strides, 0, d, cpu, contig)


def copy_of_array(array: np.ndarray[Any, Any], d: dtype) -> Tensor:
    """Return a new tensor that owns a copy of the array, which must already hold d's representation."""
    t = empty(array.shape, d)
    if t._storage.size_bytes:
        array = np.ascontiguousarray(array, d.numpy)
        ctypes.memmove(t._storage.ptr, address_of(array), t._storage.size_bytes)
        if watching.active:
            watching.tell_loaded(t._storage.ptr, t._storage.size_bytes)
    return t


def tensors_in(tree: Any) -> list[Tensor]:
    """Return all tensors in nested lists, tuples and dicts, in their order."""
    if type(tree) is not tuple and isinstance(tree, Tensor):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (tuple, list)) else ()
    found: list[Tensor] = []
    for part in parts:
        found += () if type(part) in _PLAIN else (part,) if type(part) is Tensor else tensors_in(part)
    return found
