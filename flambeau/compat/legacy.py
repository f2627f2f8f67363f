"""PyTorch's older constructors and type names: Tensor(2, 3), FloatTensor([[1.0]]), x.type("torch.DoubleTensor")."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core.backend import has_backend, why_absent
from ..core.device import cpu, set_default_device
from ..core.device import device as Device
from ..core.dtype import ALL_DTYPES, QUANTIZED_DTYPES, dtype
from ..core.layout import sparse_coo, strided
from ..core.promotion import get_default_dtype, set_default_dtype
from ..core.size import Size, make_size
from ..core.storage import UntypedStorage
from ..core.tensor import OpenTensor, Tensor
from ..core.tensor import empty as raw_empty
from ..core.tensor import new_tensor as header
from ..core.typed_storage import TypedStorage
from ..core.typenames import type_name
from ..ops.creation.construct import from_data
from ..ops.machinery.arguments import as_device, as_shape, is_int
from ..ops.machinery.declare import composite
from ..ops.methods.attributes import type_string
from ..ops.sparse.coo import sparse_coo_tensor


def legacy_tensor(name: str, args: tuple, kwargs: dict, d: dtype, where: Any = None) -> Tensor:
    """Make a tensor: sizes give an uninitialised one, a sequence its values, a tensor or storage is shared."""
    place = kwargs.pop("device", where)
    kind = str(place).partition(":")[0]
    if where is None and kind not in ("None", "cpu"):
        raise RuntimeError(f"legacy constructor expects device type: cpu but device type: {kind} was passed")
    place = cpu if place is None else as_device(place)
    size, data = kwargs.pop("size", None), kwargs.pop("data", None)
    if kwargs:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kwargs))}'")
    if size is not None or data is not None:
        args = (Size(size),) if size is not None else (data,)
    if not args:
        return raw_empty(make_size((0,)), d, place)
    first = args[0]
    if len(args) > 1 or is_int(first) or isinstance(first, Size):
        return raw_empty(as_shape(args, name), d, place)
    if isinstance(first, Tensor):
        if first.dtype is not d:
            raise TypeError(f"expected {d.scalar_type} (got {first.dtype.scalar_type})")
        return first.detach()
    if isinstance(first, (UntypedStorage, TypedStorage)):
        if isinstance(first, TypedStorage) and first.dtype is not d:
            raise RuntimeError(
                f"Expected a Storage of type {d.scalar_type} or an UntypedStorage, but got type {first.dtype.scalar_type} for argument 1"
                " 'storage'"
            )
        storage = first if isinstance(first, UntypedStorage) else first.untyped()
        return header(storage, make_size((storage.size_bytes // d.itemsize,)), (1,), 0, d, storage.device, True)
    if isinstance(first, (list, tuple, range, np.ndarray)) or hasattr(first, "__len__"):
        return from_data(first, d, place)
    raise TypeError(f"{name}(): expected sizes or a sequence of numbers, got {type_name(first)}")


def _construct(cls: type, *args: Any, **kwargs: Any) -> Any:
    # Of any dtype, unlike FloatTensor and its kin.
    shared = len(args) == 1 and isinstance(args[0], Tensor) and not kwargs
    t = args[0].detach() if shared else legacy_tensor("new", args, kwargs, get_default_dtype())
    return t if cls is Tensor else Tensor._make_subclass(cls, t)


OpenTensor.__new__ = staticmethod(_construct)


class _TensorType(type):
    """The metaclass of FloatTensor and the like: calling one makes a plain tensor, isinstance tests its dtype."""

    dtype: dtype
    device_type: str
    is_sparse: bool

    def __new__(mcs, name: str, bases: tuple, fields: dict) -> Any:
        if bases:
            raise TypeError(f"type 'torch.{bases[0].__name__}' is not an acceptable base type")
        return super().__new__(mcs, name, bases, fields)

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        if cls.device_type != "cpu" and not has_backend(Device(cls.device_type)):
            raise TypeError(f"type torch.cuda.{cls.__name__} not available. Torch not compiled with CUDA enabled.")
        if cls.is_sparse:
            return _legacy_sparse(args, kwargs, cls.dtype)
        made = legacy_tensor(cls.__name__, args, kwargs, cls.dtype)
        return made if cls.device_type == "cpu" else made.to(cls.device_type)

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, Tensor)
            and instance.dtype is cls.dtype
            and instance.device.type == cls.device_type
            and instance.is_sparse == cls.is_sparse
        )

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__name__}'>"


def _legacy_sparse(args: tuple, kwargs: dict, d: dtype) -> Tensor:
    """Make torch.sparse.FloatTensor(indices, values, size): the values keep their dtype; sizes alone give an empty one of dtype `d`."""
    warnings.warn("torch.sparse.SparseTensor() is deprecated.  Please use torch.sparse_coo_tensor.", stacklevel=3)
    if len(args) in (2, 3) and isinstance(args[0], Tensor) and isinstance(args[1], Tensor):
        return sparse_coo_tensor(*args, **kwargs)
    if len(args) == 1 and isinstance(args[0], (list, tuple)) and not isinstance(args[0], Size):
        raise TypeError(
            "torch.sparse.SparseTensor(sequence) only accepts sizes.  Please use torch.sparse_coo_tensor() or construct a"
            " strided tensor and convert it to sparse via to_sparse."
        )
    if not all(is_int(arg) or isinstance(arg, Size) for arg in args):
        given = ", ".join("Tensor" if isinstance(arg, Tensor) else type_name(arg) for arg in args)
        raise TypeError(
            f"new() received an invalid combination of arguments - got ({given}), but expected (Tensor indices, Tensor"
            " values, tuple of ints size) or (tuple of ints size)"
        )
    return sparse_coo_tensor(as_shape(args, "new") if args else (0,), dtype=d, **kwargs)


def _tensor_type(d: dtype, module: str) -> Any:
    sparse, cuda = module == "torch.sparse", module == "torch.cuda"
    fields = {
        "dtype": d,
        "layout": sparse_coo if sparse else strided,
        "device_type": "cuda" if cuda else "cpu",
        "is_cuda": cuda,
        "is_sparse": sparse,
        "__module__": module,
        "__doc__": f"{'Sparse tensors' if sparse else 'Tensors'} of dtype {d.name} on {'a GPU' if cuda else 'the CPU'}.",
    }
    return _TensorType(f"{d.scalar_type}Tensor", (), fields)


_DTYPES = [d for d in ALL_DTYPES if d.method and not d.is_complex]
TENSOR_TYPES: dict[str, type[Tensor]] = {f"{d.scalar_type}Tensor": _tensor_type(d, "torch") for d in _DTYPES}
SPARSE_TENSOR_TYPES: dict[str, Any] = {
    f"{d.scalar_type}Tensor": _tensor_type(d, "torch.sparse") for d in _DTYPES if d is not dt.bool_
}
CUDA_TENSOR_TYPES: dict[str, type[Tensor]] = {f"{d.scalar_type}Tensor": _tensor_type(d, "torch.cuda") for d in _DTYPES}
_BY_STRING = {
    f"{kind.__module__}.{name}": kind
    for name, kind in (*TENSOR_TYPES.items(), *SPARSE_TENSOR_TYPES.items(), *CUDA_TENSOR_TYPES.items())
}


class _StorageType(type):
    """The metaclass of FloatStorage and the like: calling one makes a TypedStorage, isinstance tests its dtype."""

    dtype: dtype
    device_type: str

    def __call__(cls, *args: Any, **kwargs: Any) -> TypedStorage:
        source = kwargs.get("wrap_storage", args[0] if args else None)
        return TypedStorage(source, cls.dtype, device=cls.device_type)

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, TypedStorage)
            and instance.dtype is cls.dtype
            and instance.is_cuda == (cls.device_type == "cuda")
        )

    def from_buffer(cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0) -> TypedStorage:
        """Return a storage with a copy of an object's bytes, read in the given byte order."""
        order = "native" if byte_order is None and cls.dtype.itemsize == 1 else byte_order
        bytes_ = UntypedStorage.from_buffer(buffer, order, count, offset, dtype=cls.dtype)
        return TypedStorage(bytes_, cls.dtype)

    _from_buffer = from_buffer

    def from_file(cls, filename: str, shared: bool = False, size: int = 0) -> TypedStorage:
        """Return the elements in a file; with shared=True, changes go to the file."""
        return TypedStorage(UntypedStorage.from_file(filename, shared, size * cls.dtype.itemsize), cls.dtype)

    def __repr__(cls) -> str:
        return f"<class 'torch.storage.{cls.__name__}'>"


def _storage_type(d: dtype, device_type: str) -> Any:
    home = "torch" if device_type == "cpu" else f"torch.{device_type}"
    fields = {"dtype": d, "device_type": device_type, "__module__": home, "__doc__": f"Storages of {d.name} elements."}
    return _StorageType(str(d.storage_name), (), fields)


def _storage_types(dtypes: Iterable[dtype], device_type: str) -> dict[str, Any]:
    return {kind.__name__: kind for kind in (_storage_type(d, device_type) for d in dtypes)}


STORAGE_TYPES = _storage_types((d for d in ALL_DTYPES if d.method), "cpu") | _storage_types(QUANTIZED_DTYPES, "cpu")
CUDA_STORAGE_TYPES: dict[str, type[TypedStorage]] = _storage_types((d for d in ALL_DTYPES if d.method), "cuda")


def dtype_and_device(kind: Any) -> tuple[dtype, str]:
    """Return the dtype and type of device that x.type(kind) converts to; `kind` is a dtype, a tensor class or its name."""
    if isinstance(kind, dtype):
        return kind, ""
    if kind is Tensor or kind == "torch.Tensor":
        return get_default_dtype(), "cpu"
    if not isinstance(kind, (str, type)):
        raise TypeError("dtype must be a type, str, or dtype object")
    found = _BY_STRING.get(kind) if isinstance(kind, str) else kind
    if not isinstance(found, _TensorType):
        raise ValueError(f"invalid type: '{kind if isinstance(kind, str) else kind.__name__}'")
    return found.dtype, found.device_type


@composite(name="type", function=False)
def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> str | Tensor:
    """Return the name of the tensor's type, or the tensor converted to another one."""
    if dtype is None:
        return type_string(self)
    kind, place = dtype_and_device(dtype)
    if place == "cuda" and not has_backend(Device("cuda")):
        raise RuntimeError(
            f"type {dtype if isinstance(dtype, str) else f'torch.cuda.{dtype.__name__}'} not available: there is no device of type"
            f" 'cuda' here: {why_absent('cuda')}"
        )
    return self.to(place or self.device, kind, non_blocking)


@composite(function=False)
def storage_type(self: Tensor) -> Any:
    """Return the typed storage class that belongs to a tensor type."""
    return STORAGE_TYPES[str(self.storage().dtype.storage_name)]


@composite(function=False)
def new(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Make a tensor with this tensor's dtype and device: the legacy constructor."""
    return legacy_tensor("new", args, kwargs, self.dtype, self.device)


def set_default_tensor_type(t: Any) -> None:
    """Set the default dtype by a legacy type or its name."""
    if isinstance(t, dtype):
        raise TypeError(f"invalid type object: expected a tensor type such as torch.FloatTensor, got {t}")
    kind, place = dtype_and_device(t)
    if place == "cuda" and not has_backend(Device("cuda")):
        name = t if isinstance(t, str) else f"torch.cuda.{t.__name__}"
        raise TypeError(f"type {name} not available. Torch not compiled with CUDA enabled.")
    set_default_dtype(kind)
    if place == "cuda":
        set_default_device(place)


def typename(obj: Any) -> str:
    """Return the full name of an object's type; for a tensor its legacy type."""
    if isinstance(obj, Tensor):
        return type_string(obj)
    module = getattr(obj, "__module__", None) or ""
    if isinstance(obj, type) or hasattr(obj, "__qualname__"):
        qualified = obj.__qualname__
    else:
        module, qualified = type(obj).__module__ or "", type(obj).__qualname__
    return qualified if module in ("", "builtins") else f"{module}.{qualified}"


def is_storage(obj: Any) -> bool:
    """Return whether `obj` is a storage."""
    return isinstance(obj, (UntypedStorage, TypedStorage))
