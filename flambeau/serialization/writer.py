"""Writing checkpoints in PyTorch's zip format (and its older one)."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import sys
import tempfile
import types
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, ClassVar

from ..core.dtype import dtype, uint8
from ..core.layout import layout
from ..core.sparse import SparseCoo, SparseTensor
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor
from ..core.typed_storage import TypedStorage
from ..nn.parameter import Parameter
from . import rebuild
from .names import STORAGE_OF, STORAGE_TYPES, UNTYPED, StorageType, written_name

ALIGNMENT = 64
MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
DEFAULT_PROTOCOL = 2  # of pickle


class StoragePickler(pickle._Pickler):  # type: ignore[name-defined]
    """Pickles with PyTorch's names; storages become persistent ids and are collected on the side.

    The pure-Python pickler, because only it lets the names of classes and functions be chosen."""

    dispatch: ClassVar[Any] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def __init__(self, file: Any, protocol: int, legacy: bool = False):
        super().__init__(file, protocol)
        self.legacy = legacy
        self.storages: dict[str, UntypedStorage] = {}
        self.numels: dict[str, tuple[int, dtype | None]] = {}
        self._keys: dict[tuple[int, int], str] = {}
        self._keep: list = []

    def key_of(self, storage: UntypedStorage) -> str:
        """Tensors over the same memory share one record."""
        identity = (storage.ptr, storage.size_bytes) if storage.ptr else (id(storage), 0)
        key = self._keys.get(identity)
        if key is None:
            key = self._keys[identity] = str(len(self._keys))
            self.storages[key] = storage
            self._keep.append(storage)
        return key

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, UntypedStorage):
            obj = _StorageReference(obj, uint8 if self.legacy else None)  # PyTorch's old reader wants a dtype
        elif isinstance(obj, TypedStorage):
            obj = _StorageReference(obj.untyped(), obj.dtype)
        elif not isinstance(obj, _StorageReference):
            return None
        key = self.key_of(obj.storage)
        kind = STORAGE_TYPES[STORAGE_OF[obj.dtype]] if obj.dtype in STORAGE_OF else UNTYPED
        numel = obj.storage.size_bytes // (obj.dtype.itemsize if kind is not UNTYPED else 1)  # type: ignore[union-attr]
        self.numels[key] = (numel, obj.dtype if kind is not UNTYPED else None)
        base = ("storage", kind, key, str(obj.storage.device), numel)
        return (*base, None) if self.legacy else base

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return _reduce_tensor(obj)
        return NotImplemented

    def save_global(self, obj: Any, name: str | None = None) -> None:
        written = written_name(obj)
        if written is None:
            super().save_global(obj, name)  # type: ignore[misc]
            return
        self._write_global(*written, obj)

    def _write_global(self, module: str, name: str, obj: Any) -> None:
        self.write(pickle.GLOBAL + module.encode() + b"\n" + name.encode() + b"\n")
        self.memoize(obj)

    def save_dtype(self, obj: Any) -> None:
        self._write_global("torch", obj.name, obj)

    def save_layout(self, obj: Any) -> None:
        self.save_reduce(rebuild.layout, (repr(obj),), obj=obj)

    def save_type(self, obj: Any) -> None:
        written = written_name(obj)
        if written is None:
            super().save_type(obj)  # type: ignore[misc]
        else:
            self._write_global(*written, obj)

    dispatch[dtype] = save_dtype
    dispatch[layout] = save_layout
    dispatch[type] = save_type
    dispatch[types.FunctionType] = save_global
    dispatch[StorageType] = save_global


class _StorageReference:
    """A storage as a tensor names it."""

    __slots__ = ("storage", "dtype")

    def __init__(self, storage: UntypedStorage, kind: dtype | None):
        self.storage, self.dtype = storage, kind


def _reduce_tensor(t: Tensor) -> tuple:
    if t.device.type == "meta":
        return rebuild.meta_tensor, (t.dtype, tuple(t.shape), tuple(t._strides), t.requires_grad)
    if not t.is_leaf:
        t = t.detach().requires_grad_(t.requires_grad)
    state = {k: v for k, v in t.__dict__.items() if k != "_is_param"}
    if isinstance(t, Parameter):
        plain = t.data
        if state:
            return rebuild.parameter_with_state, (plain, t.requires_grad, OrderedDict(), state)
        return rebuild.parameter, (plain, t.requires_grad, OrderedDict())
    if isinstance(t, SparseTensor):
        parts: tuple = (*t._parts(), tuple(t.shape))
        if isinstance(t, SparseCoo):
            parts += (t._is_coalesced,)
        return rebuild.sparse_tensor, (t.layout, parts)
    args: tuple = (
        _StorageReference(t._storage, t.dtype),
        t._offset,
        tuple(t.shape),
        tuple(t._strides),
        t.requires_grad,
        OrderedDict(),
    )
    function: Any = rebuild.tensor_v2
    if t.dtype not in STORAGE_OF:
        function, args = rebuild.tensor_v3, (*args, t.dtype)
    if type(t) is Tensor and not state:
        return function, args
    return rebuild.from_type, (function, type(t), args, state)


# -- the zip format -------------------------------------------------------------------------------------------------------


def write_zip(obj: Any, file: Any, protocol: int, root: str = "archive") -> None:
    """One stored (uncompressed) archive with everything in the folder `root`: data.pkl, one record per storage at a 64-byte boundary, and markers."""
    body = io.BytesIO()
    pickler = StoragePickler(body, protocol)
    pickler.dump(obj)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        checksum = 0
        for name, data in (
            ("data.pkl", body.getvalue()), (".format_version", b"1"), (".storage_alignment", str(ALIGNMENT).encode()),
            ("byteorder", sys.byteorder.encode()),
        ):  # fmt: skip
            _record(archive, f"{root}/{name}", data)
            checksum = zlib.crc32(data, checksum)
        for key, storage in pickler.storages.items():
            contents: Any = memoryview(storage.numpy())  # type: ignore[arg-type]
            _record(archive, f"{root}/data/{key}", contents)
            checksum = zlib.crc32(contents, checksum)
        _record(archive, f"{root}/version", b"3\n")
        _record(archive, f"{root}/.data/serialization_id", f"{checksum:040d}".encode())


def _record(archive: zipfile.ZipFile, name: str, data: Any) -> None:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.file_size = len(data)
    assert archive.fp is not None
    start = archive.fp.tell() + 30 + len(info.filename.encode())
    if len(data) >= 0xFFFFFFFF:
        start += 20  # the zip64 field comes first
    padding = -(start + 4) % ALIGNMENT
    info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
    with archive.open(info, "w") as target:
        target.write(data)


# -- the older format -----------------------------------------------------------------------------------------------------


def write_legacy(obj: Any, file: Any, protocol: int) -> None:
    for header in (
        MAGIC,
        PROTOCOL,
        {
            "protocol_version": PROTOCOL,
            "little_endian": sys.byteorder == "little",
            "type_sizes": {"short": 2, "int": 4, "long": 4},
        },
    ):
        pickle.dump(header, file, protocol)
    pickler = StoragePickler(file, protocol, legacy=True)
    pickler.dump(obj)
    keys = sorted(pickler.storages)
    pickle.dump(keys, file, protocol)
    for key in keys:
        storage = pickler.storages[key]
        kind = pickler.numels[key][1]
        file.write(struct.pack("<q", storage.size_bytes // (kind.itemsize if kind else 1)))
        file.write(storage.numpy().tobytes())


# -- the destination ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def atomic_path(path: Any) -> Iterator[str]:
    """The name of an empty temporary file that takes `path`'s name only when the block ends well: a crash leaves the old
    file whole."""
    path = os.fspath(path)
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {os.path.dirname(path)} does not exist.")
    handle, temporary = tempfile.mkstemp(prefix=os.path.basename(path) + ".", suffix=".tmp", dir=folder)
    os.close(handle)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o666 & ~_umask()
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def atomic_file(path: Any) -> Iterator[Any]:
    """A file that appears under its name only when it is complete."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        yield file


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


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
    if pickle_module is not pickle:
        raise NotImplementedError(f"files are written with pickle alone, but got pickle_module={pickle_module!r}")
    if isinstance(f, (str, os.PathLike)):
        stem = os.path.splitext(os.path.basename(os.fsdecode(f)))[0]
        with atomic_file(f) as file:
            if _use_new_zipfile_serialization:
                write_zip(obj, file, pickle_protocol, stem if stem.isascii() and stem else "archive")
            else:
                write_legacy(obj, file, pickle_protocol)
    elif hasattr(f, "write"):
        (write_zip if _use_new_zipfile_serialization else write_legacy)(obj, f, pickle_protocol)
    else:
        raise AttributeError(
            f"expected 'f' to be string, path, or a file-like object with a 'write' attribute, got {type(f).__name__}"
        )
