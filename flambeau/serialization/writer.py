"""Writing of checkpoints in PyTorch's zip format (and its older one)."""

from __future__ import annotations

import inspect
import io
import os
import pickle
import struct
import sys
import types
import warnings
from collections import OrderedDict
from typing import Any, ClassVar

from ..core.dtype import dtype, uint8
from ..core.jagged import NestedTensor
from ..core.layout import layout
from ..core.named import is_named
from ..core.naming import PACKAGE
from ..core.object_state import object_state
from ..core.quantized import PER_BYTE, QuantizedTensor, qscheme
from ..core.sharded import SpreadTensor
from ..core.sparse import SparseCoo, SparseTensor
from ..core.storage import UntypedStorage
from ..core.strided_nested import StridedNestedTensor
from ..core.tensor import Tensor
from ..core.typed_storage import TypedStorage
from ..core.wrapped import is_wrapper
from ..nn.modules.module import Module
from ..nn.parameter import Parameter, UninitializedTensorMixin
from ..ops.creation.filled import zeros
from ..ops.kinds.strided_rows import places_of
from ..ops.quantizing.tensors import in_storage
from . import rebuild
from .archive import ArchiveWriter, write_all
from .destination import written_file
from .names import STORAGE_OF, STORAGE_TYPES, UNTYPED, StorageType, written_name
from .options import save_options
from .options import state as options_state
from .places import location_tag

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
DEFAULT_PROTOCOL = 2  # of pickle


_Pickler: Any = object  # a mixin: one of Python's picklers follows it in the order of classes


class _TorchNames(_Pickler):
    """Base of the picklers of checkpoints: writes PyTorch's names, and collects storages separately."""

    def __init__(self, file: Any, protocol: int, legacy: bool = False):
        super().__init__(file, protocol)
        self.legacy = legacy
        self.storages: dict[str, UntypedStorage] = {}
        self.numels: dict[str, tuple[int, dtype | None]] = {}
        self._keys: dict[tuple[int, int], str] = {}
        self._dtypes: dict[int, dtype | None] = {}
        self._classes: set[type] = set()  # of modules, written once with their source

    def key_of(self, storage: UntypedStorage) -> str:
        """Return the record key of a storage; tensors over the same memory share one record."""
        identity = (storage.ptr, storage.size_bytes) if storage.ptr else (id(storage), 0)
        key = self._keys.get(identity)
        if key is None:
            key = self._keys[identity] = str(len(self._keys))
            self.storages[key] = storage
        return key

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, UntypedStorage):
            obj = _StorageReference(obj, uint8 if self.legacy else None)  # PyTorch's old reader wants a dtype
        elif isinstance(obj, TypedStorage):
            obj = _StorageReference(obj.untyped(), obj.dtype)
        elif self.legacy and isinstance(obj, type) and issubclass(obj, Module):
            if obj in self._classes:
                return None
            self._classes.add(obj)
            return _module_source(obj)
        elif not isinstance(obj, _StorageReference):
            return None
        self._check_dtype(obj)
        key = self.key_of(obj.storage)
        kind = STORAGE_TYPES[STORAGE_OF[obj.dtype]] if obj.dtype in STORAGE_OF else UNTYPED
        numel = obj.storage.size_bytes // (obj.dtype.itemsize if kind is not UNTYPED else 1)
        self.numels[key] = (numel, obj.dtype if kind is not UNTYPED else None)
        base = ("storage", kind, key, location_tag(obj.storage), numel)
        return (*base, None) if self.legacy else base

    def _check_dtype(self, reference: _StorageReference) -> None:
        if reference.storage.ptr and reference.dtype is not None:
            known = self._dtypes.setdefault(reference.storage.ptr, reference.dtype)
            if known is not reference.dtype:  # a record has one dtype: the other tensor would come back wrong
                raise RuntimeError(
                    "Cannot save multiple tensors or storages that view the same data as different types: it is"
                    f" {known} and {reference.dtype}"
                )

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor) and _is_own_reduction(type(obj)):
            return _reduce_tensor(obj)
        above: Any = getattr(super(), "reducer_override", None)
        return NotImplemented if above is None else above(obj)

    def save_global(self, obj: Any, name: str | None = None) -> None:
        written = written_name(obj)
        if written is None:
            super().save_global(obj, name)
            return
        self._write_global(*written, obj)

    def _write_global(self, module: str, name: str, obj: Any) -> None:
        outer, dot, last = name.rpartition(".")
        if dot:  # a class inside a class: a name with a dot is not found by older protocols
            owner = sys.modules[obj.__module__]
            for part in outer.split("."):
                owner = getattr(owner, part)
            self.save_reduce(getattr, (owner, last), obj=obj)
            return
        self.write(pickle.GLOBAL + module.encode() + b"\n" + name.encode() + b"\n")
        self.memoize(obj)

    def save_dtype(self, obj: Any) -> None:
        self._write_global("torch", obj.name, obj)

    def save_scheme(self, obj: Any) -> None:
        self._write_global("torch", obj.name, obj)

    def save_layout(self, obj: Any) -> None:
        self.save_reduce(rebuild.layout, (repr(obj),), obj=obj)


def _save_named_or(otherwise: Any) -> Any:
    """Write a class or function under PyTorch's name, or else as the pickler would."""

    def save(self: Any, obj: Any) -> None:
        written = written_name(obj)
        if written is None:
            otherwise(self, obj)
        else:
            self._write_global(*written, obj)

    return save


def _over_python_code(kind: Any) -> Any:
    """Return a pickler's class (cloudpickle's, for example) based on pickle's Python code instead of its C code."""
    if kind is pickle.Pickler:
        return pickle._Pickler
    if not issubclass(kind, pickle.Pickler):
        return kind
    # The C pickler has no `dispatch`.
    own = {n: v for n, v in vars(kind).items() if n not in ("__dict__", "__weakref__", "dispatch")}
    made: Any = type(kind)(kind.__name__, tuple(map(_over_python_code, kind.__bases__)), own)
    for name, function in own.items():
        # `super()` means the new class.
        if inspect.isfunction(function) and "__class__" in function.__code__.co_freevars:
            cells = zip(function.__code__.co_freevars, function.__closure__ or ())
            closure = tuple(types.CellType(made) if free == "__class__" else cell for free, cell in cells)
            known = (function.__code__, function.__globals__, function.__name__, function.__defaults__, closure)
            again = types.FunctionType(*known)
            again.__kwdefaults__ = function.__kwdefaults__
            setattr(made, name, again)
    return made


def pickler_class(module: Any) -> Any:
    """Return the pickler of a module with pickle's interface, extended by PyTorch's names. For pickle itself it is the pure-Python one,
    because only that allows the names of classes and functions to be chosen."""
    base: Any = _over_python_code(module.Pickler)
    if not issubclass(base, pickle._Pickler):
        raise NotImplementedError(
            f"pickle_module={module!r}: its Pickler is not made of one of pickle's, so that it cannot write PyTorch's names"
        )

    class Taught(_TorchNames, base):
        dispatch: ClassVar[Any] = {
            **base.dispatch,
            dtype: _TorchNames.save_dtype,
            layout: _TorchNames.save_layout,
            qscheme: _TorchNames.save_scheme,
            StorageType: _TorchNames.save_global,
            type: _save_named_or(base.dispatch[type]),
            types.FunctionType: _save_named_or(base.dispatch[types.FunctionType]),
        }

    return Taught


StoragePickler: Any = pickler_class(pickle)


def _module_source(kind: type) -> tuple | None:
    """Return the older format's entry for a module's class: its source, to warn when that has changed. None without a source."""
    try:
        lines, _ = inspect.getsourcelines(kind)
        return ("module", kind, inspect.getsourcefile(kind), "".join(lines))
    except (OSError, TypeError):
        warnings.warn(
            f"Couldn't retrieve source code for container of type {kind.__name__}. It won't be checked for correctness upon"
            " loading.",
            stacklevel=2,
        )
        return ("module", kind, None, None)


class _StorageReference:
    """Reference to a storage, as a tensor writes it."""

    __slots__ = ("storage", "dtype")

    def __init__(self, storage: UntypedStorage, kind: dtype | None):
        self.storage, self.dtype = storage, kind


def _is_own_reduction(kind: Any) -> bool:
    """Return whether the class leaves pickling to this package, instead of defining its own."""
    return kind.__reduce_ex__.__module__.partition(".")[0] == PACKAGE and not issubclass(kind, UninitializedTensorMixin)


def _reduce_tensor(t: Tensor) -> tuple:
    if isinstance(t, SpreadTensor) or is_wrapper(t):
        return t.__reduce_ex__(2)  # type: ignore[return-value]
    if is_named(t):
        t.__reduce_ex__(2)  # which says that there is no form for names
    if not t.is_leaf:
        kind = type(t)
        extra = object_state(t)
        t = t.detach().requires_grad_(t.requires_grad)
        return _as_subclass(*_reduce_plain(t), kind, extra)
    state = object_state(t)
    if isinstance(t, Parameter):
        if state:
            return rebuild.parameter_with_state, (t.data, t.requires_grad, OrderedDict(), state)
        return rebuild.parameter, (t.data, t.requires_grad, OrderedDict())
    return _as_subclass(*_reduce_plain(t), type(t), state)


def _as_subclass(function: Any, args: tuple, kind: type, state: Any) -> tuple:
    if (kind is Tensor or issubclass(kind, (SparseTensor, QuantizedTensor, StridedNestedTensor))) and not state:
        return function, args
    return rebuild.from_type, (function, kind, args, state)


def _reduce_plain(t: Tensor) -> tuple[Any, tuple]:
    """Return the function and arguments that rebuild a tensor's values, as pickle's `__reduce__` does."""
    if isinstance(t, SparseTensor):
        parts: tuple = (*t._parts(), tuple(t.shape))
        if isinstance(t, SparseCoo):
            parts += (t._is_coalesced,)
        return rebuild.sparse_tensor, (t.layout, parts)
    if t.is_mkldnn:
        t.untyped_storage()  # raises: the layout is not for files
    if isinstance(t, NestedTensor):
        names = ("values", "offsets", "lengths", "_ragged_idx", "_metadata_cache", "requires_grad")
        known = {name: zeros(n, 0) for name, n in t._metadata_cache.items()}  # PyTorch keeps these numbers as sizes
        return rebuild.jagged_tensor, (
            dict(zip(names, (t._value, t._starts, t._lengths, t._ragged, known, t.requires_grad))),
        )
    if isinstance(t, StridedNestedTensor):
        return rebuild.nested_tensor, (t._value, *places_of(t))
    if isinstance(t, QuantizedTensor):
        q, codes = t._quantizer, t._codes
        parameters = (q.scheme, q.scale, q.zero_point) if q.per_tensor else (q.scheme, q.scale, q.zero_point, q.axis)
        if t.dtype in PER_BYTE:  # several codes to a byte
            codes = codes.contiguous()
            held = _StorageReference(in_storage(t)._storage, t.dtype)
        else:
            held = _StorageReference(codes._storage, t.dtype)
        place = 0 if t.dtype in PER_BYTE else codes._offset, tuple(codes.shape), tuple(codes._strides)
        return rebuild.quantized_tensor, (held, *place, parameters, False, OrderedDict())
    if t.device.type == "meta":
        if options_state.skip_data:
            warnings.warn(
                "Serializing tensors on the meta device under skip_data context manager is a no-op", stacklevel=2
            )
        return rebuild.meta_tensor, (t.dtype, tuple(t.shape), tuple(t._strides), t.requires_grad)
    reference = _StorageReference(t._storage, t.dtype)
    args: tuple = (reference, t._offset, tuple(t.shape), tuple(t._strides), t.requires_grad, OrderedDict())
    if t.dtype in STORAGE_OF:
        return rebuild.tensor_v2, args
    return rebuild.tensor_v3, (*args, t.dtype)


# -- the zip format -------------------------------------------------------------------------------------------------------


def write_zip(
    obj: Any, file: Any, pickler_type: Any, protocol: int, root: str = "archive", marked: bool = True
) -> None:
    """Write a stored (uncompressed) archive with everything in the folder `root`: data.pkl, one record per storage, and markers."""
    body = io.BytesIO()
    pickler = pickler_type(body, protocol)
    pickler.dump(obj)
    with ArchiveWriter(file, root) as archive:
        archive.write_record("data.pkl", body.getvalue())
        archive.write_record(".format_version", b"1")
        archive.write_record(".storage_alignment", str(save_options.storage_alignment))
        if marked:
            archive.write_record("byteorder", sys.byteorder)
        for key, storage in pickler.storages.items():
            if options_state.skip_data:
                archive.write_record_metadata(f"data/{key}", storage.size_bytes)
            else:
                archive.write_record(f"data/{key}", storage)


# -- the older format -----------------------------------------------------------------------------------------------------


def write_legacy(obj: Any, file: Any, pickler_type: Any, protocol: int) -> None:
    for header in (
        MAGIC,
        PROTOCOL,
        {
            "protocol_version": PROTOCOL,
            "little_endian": sys.byteorder == "little",
            "type_sizes": {"short": 2, "int": 4, "long": 4},
        },
    ):
        write_all(file, pickle.dumps(header, protocol))
    body = io.BytesIO()
    pickler = pickler_type(body, protocol, legacy=True)
    pickler.dump(obj)
    write_all(file, body.getbuffer())
    keys = sorted(pickler.storages)
    write_all(file, pickle.dumps(keys, protocol))
    for key in keys:
        storage = pickler.storages[key]
        kind = pickler.numels[key][1]
        write_all(file, struct.pack("<q", storage.size_bytes // (kind.itemsize if kind else 1)))
        write_all(file, storage.cpu().numpy())


# -- save -----------------------------------------------------------------------------------------------------------------


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write an object (tensors, modules, dictionaries of them ...) to a file that PyTorch can read.

    >>> flambeau.save(model.state_dict(), "model.pt")
    """
    kind = StoragePickler if pickle_module is pickle else pickler_class(pickle_module)
    if isinstance(f, (str, os.PathLike)):
        stem = os.path.splitext(os.path.basename(os.fsdecode(f)))[0]
        root = stem if stem.isascii() and stem else "archive"
        with written_file(f) as file:
            _write(
                obj, file, kind, pickle_protocol, root, _use_new_zipfile_serialization, not _disable_byteorder_record
            )
    elif hasattr(f, "write"):
        _write(obj, f, kind, pickle_protocol, "archive", _use_new_zipfile_serialization, not _disable_byteorder_record)
    else:
        raise AttributeError(
            f"expected 'f' to be string, path, or a file-like object with a 'write' attribute, got {type(f).__name__}"
        )


def _write(obj: Any, file: Any, kind: Any, protocol: int, root: str, zipped: bool, marked: bool) -> None:
    if zipped:
        write_zip(obj, file, kind, protocol, root, marked)
    else:
        write_legacy(obj, file, kind, protocol)
