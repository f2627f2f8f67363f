"""TypedStorage: a storage as a vector of one dtype, PyTorch's older view of the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import dtype as dt
from .device import cpu
from .device import device as Device
from .dtype import dtype
from .float8 import readable, storable
from .promotion import get_default_dtype
from .storage import UntypedStorage


class TypedStorage:
    """Elements of a tensor's memory (`tensor.storage()`): indexing reads and writes them."""

    def __init__(
        self,
        storage: Any = None,
        d: dtype | None = None,
        *,
        wrap_storage: Any = None,
        dtype: dtype | None = None,
        device: Any = cpu,
        _internal: bool = False,
    ):
        source = wrap_storage if wrap_storage is not None else storage
        if wrap_storage is not None and dtype is None:
            raise RuntimeError("TypedStorage(): argument 'dtype' is required with 'wrap_storage'")
        self.dtype = d or dtype or get_default_dtype()
        if isinstance(source, UntypedStorage):
            self._untyped = source
        elif isinstance(source, (int, np.integer)) or source is None:
            self._untyped = UntypedStorage(int(source or 0) * self.dtype.itemsize, Device(device))
        else:
            self._untyped = UntypedStorage(len(source) * self.dtype.itemsize, Device(device))
            if self._untyped.device is cpu:
                self[:] = source

    @property
    def device(self) -> Device:
        return self._untyped.device

    @property
    def is_cuda(self) -> bool:
        return self._untyped.is_cuda

    @property
    def _cdata(self) -> int:
        return self._untyped._cdata

    @property
    def _untyped_storage(self) -> UntypedStorage:
        return self._untyped

    def untyped(self) -> UntypedStorage:
        return self._untyped

    def data_ptr(self) -> int:
        return self._untyped.ptr

    def nbytes(self) -> int:
        return self._untyped.size_bytes

    def element_size(self) -> int:
        return self.dtype.itemsize

    def size(self) -> int:
        return self._untyped.size_bytes // self.dtype.itemsize

    __len__ = size

    def _elements(self) -> np.ndarray[Any, Any]:
        n = self.size()
        return self._untyped.numpy()[: n * self.dtype.itemsize].view(self.dtype.numpy)

    def tolist(self) -> list[Any]:
        return readable(self._elements(), self.dtype).tolist()

    def _position(self, index: Any) -> int:
        n = self.size()
        if not -n <= index < n:
            raise IndexError(f"index {index} out of range for storage of size {n}")
        return index

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(index, int):
            raise RuntimeError(f"can't index a {type(self).__name__} with {type(index).__name__}")
        return readable(self._elements()[[self._position(index)]], self.dtype)[0].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, (int, slice)):
            raise RuntimeError(f"can't index a {type(self).__name__} with {type(index).__name__}")
        if isinstance(index, int):
            self._position(index)
        self._elements()[index] = storable(np.asarray(value), self.dtype)

    def fill_(self, value: Any) -> TypedStorage:
        self[0 : self.size()] = value
        return self

    def copy_(self, source: TypedStorage, non_blocking: bool | None = None) -> TypedStorage:
        """Copy the bytes of a storage of as many bytes, whatever its dtype."""
        self._untyped.copy_(source._untyped)
        return self

    def clone(self) -> TypedStorage:
        return TypedStorage(self._untyped.clone(), self.dtype)

    def cpu(self) -> TypedStorage:
        self._untyped.cpu()
        return self

    def resizable(self) -> bool:
        return self._untyped.resizable()

    def resize_(self, size: int) -> None:
        self._untyped.resize_(size * self.dtype.itemsize)

    def share_memory_(self) -> TypedStorage:
        self._untyped.share_memory_()
        return self

    def is_shared(self) -> bool:
        return self._untyped.is_shared()

    def pickle_storage_type(self) -> str:
        """Return the class name of this storage in saved files."""
        if self.dtype.storage_name is None:
            raise KeyError(f"dtype {self.dtype} has no storage class")
        return self.dtype.storage_name

    def type(self) -> str:
        name = self.dtype.storage_name
        return "torch.storage.TypedStorage" if name is None else f"torch.{name}"

    def to(self, d: dtype) -> TypedStorage:
        """Return a copy with elements of a dtype."""
        fresh = TypedStorage(self.size(), d)
        fresh[:] = self.tolist()
        return fresh

    __copy__ = clone

    def __deepcopy__(self, memo: dict[Any, Any]) -> TypedStorage:
        if id(self) not in memo:
            memo[id(self)] = TypedStorage(self._untyped.__deepcopy__(memo), self.dtype)
        return memo[id(self)]

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def is_pinned(self, device: Any = None) -> bool:
        return self._untyped.is_pinned(device)

    def get_device(self) -> int:
        return self._untyped.get_device()

    @property
    def filename(self) -> str | None:
        """Return the file that changes go to, or None if there is none."""
        return self._untyped.filename

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def __repr__(self) -> str:
        lines = " " + "\n ".join(map(str, self.tolist())) if self.device.type == "cpu" else "..."
        return f"{lines}\n[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {self.size()}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return (TypedStorage, (self._untyped, self.dtype))


def _converter(d: dtype) -> Any:
    def convert(self: Any) -> TypedStorage:
        return (self if isinstance(self, TypedStorage) else TypedStorage(self, dt.uint8)).to(d)

    convert.__doc__ = f"The elements as {d.name}."
    return convert


for _name, _dtype in dt.METHODS.items():
    _name = {"cfloat": "complex_float", "cdouble": "complex_double"}.get(_name, _name)
    setattr(TypedStorage, _name, _converter(_dtype))
    setattr(UntypedStorage, _name, _converter(_dtype))
