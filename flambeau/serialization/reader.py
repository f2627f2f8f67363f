"""Reading checkpoints: the zip format, the older one, restricted to data unless told otherwise."""

from __future__ import annotations

import contextlib
import io
import mmap as mapped
import os
import pickle
import pickletools
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..core.device import device
from ..core.dtype import uint8
from ..core.storage import UntypedStorage
from ..core.typed_storage import TypedStorage
from .names import SAFE, StorageType, present_name, resolve, written_name
from .writer import MAGIC

_user_safe: dict[tuple[str, str], Any] = {}

# What parsing a damaged file can end in; all of it is reported as one kind of error.
_DAMAGE = (
    zipfile.BadZipFile, zipfile.LargeZipFile, struct.error, ValueError, LookupError, TypeError, AttributeError, EOFError,
    OverflowError, MemoryError, ImportError, NotImplementedError,
)  # fmt: skip

_ADVICE = (
    "Weights only load failed. This file can still be loaded, to do so you have two options, do those steps only if you trust"
    " the source of the checkpoint. (1) Re-running `torch.load` with `weights_only` set to `False` will likely succeed, but it"
    " can result in arbitrary code execution. (2) Alternatively, to load with `weights_only=True` please check the recommended"
    " steps in the following error message: WeightsUnpickler error: {}"
)


def _entry(item: Any) -> tuple[tuple[str, str], Any]:
    obj, name = item if isinstance(item, tuple) else (item, None)
    if name is not None:
        module, _, attribute = name.rpartition(".")
        return (module, attribute), obj
    return written_name(obj) or (obj.__module__, obj.__qualname__), obj


def add_safe_globals(safe_globals: list) -> None:
    """Allow these classes and functions in files loaded with weights_only=True."""
    _user_safe.update(_entry(item) for item in safe_globals)


def get_safe_globals() -> list:
    """The classes and functions that `load` may use besides its own."""
    return list(_user_safe.values())


def clear_safe_globals() -> None:
    """Forget what `add_safe_globals` was told."""
    _user_safe.clear()


class safe_globals:
    """add_safe_globals for the length of a `with` block."""

    def __init__(self, safe_globals: list):
        self.items = safe_globals

    def __enter__(self) -> None:
        self.before = dict(_user_safe)
        add_safe_globals(self.items)

    def __exit__(self, *exc: Any) -> None:
        _user_safe.clear()
        _user_safe.update(self.before)


def _full_name(module: str, name: str) -> str:
    return name if module == "builtins" else f"{module}.{name}"


class Unpickler(pickle._Unpickler):  # type: ignore[name-defined]
    """Understands PyTorch's names. With `restricted`, the file can name nothing but data types and tensor builders, so
    reading it runs no code of the file's choosing. The pure-Python unpickler: a damaged file can make the C one allocate
    gigabytes for its memo."""

    def __init__(self, file: Any, load_storage: Callable, restricted: bool, **options: Any):
        super().__init__(file, **options)
        self.load_storage, self.restricted = load_storage, restricted

    def find_class(self, module: str, name: str) -> Any:
        module, name = present_name(module, name)
        known = SAFE.get((module, name))
        if known is None:
            known = _user_safe.get((module, name))
        if known is not None:
            return known
        if self.restricted:
            full = _full_name(module, name)
            raise pickle.UnpicklingError(
                f"Unsupported global: GLOBAL {full} was not an allowed global by default. Please use"
                f" `torch.serialization.add_safe_globals([{full}])` or the `torch.serialization.safe_globals([{full}])` context"
                " manager to allowlist this global if you trust this class/function."
            )
        return resolve(module, name)

    def persistent_load(self, identity: Any) -> Any:
        if not isinstance(identity, tuple) or len(identity) < 5 or identity[0] not in ("storage", b"storage"):
            raise pickle.UnpicklingError(f"corrupt checkpoint: unknown persistent id {identity!r}"[:200])
        _, kind, key, location, numel = identity[:5]
        if not isinstance(kind, StorageType) or type(numel) is not int or numel < 0 or not isinstance(key, str):
            raise pickle.UnpicklingError(f"corrupt checkpoint: bad storage record {identity!r}"[:200])
        nbytes = numel * (kind.dtype.itemsize if kind.dtype else 1)
        return TypedStorage(self.load_storage(key, nbytes, str(location)), kind.dtype or uint8)


def _place(storage: UntypedStorage, location: str, map_location: Any) -> UntypedStorage:
    """Put a freshly read storage where it belongs. Only the CPU exists here, so anything else must be mapped to it."""
    if callable(map_location):
        placed = map_location(storage, location)
        return storage if placed is None else placed
    if isinstance(map_location, dict):
        location = str(map_location.get(location, location))
    elif map_location is not None:
        location = str(device(map_location) if not isinstance(map_location, device) else map_location)
    kind = location.split(":")[0]
    if kind == "cpu":
        return storage
    if kind == "meta":
        return UntypedStorage(storage.size_bytes, device("meta"))
    if kind == "cuda":
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a"
            " CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU."
        )
    raise RuntimeError(
        f"don't know how to restore data location of torch.storage.UntypedStorage (tagged with {location})"
    )


def _fresh(data: Any, nbytes: int) -> UntypedStorage:
    storage = UntypedStorage(nbytes)
    if nbytes:
        target = storage.numpy()
        target[:] = np.frombuffer(data, np.uint8, nbytes)
    return storage


# -- the zip format -------------------------------------------------------------------------------------------------------


class ZipReader:
    """Records of one archive, read or mapped."""

    def __init__(self, file: Any, mapping: Any = None):
        self.archive = zipfile.ZipFile(file)
        self.mapping = mapping
        names = self.archive.namelist()
        roots = {n.split("/", 1)[0] for n in names if n.endswith("/data.pkl")}
        if len(roots) != 1:
            constants = any(n.endswith("constants.pkl") for n in names)
            raise RuntimeError(
                "this archive is a TorchScript module; load it with flambeau.jit.load"
                if constants
                else "PytorchStreamReader failed: no data.pkl in the archive"
            )
        self.root = roots.pop()
        order = self.read("byteorder", b"little").decode(errors="replace").strip()
        if order not in ("little", "big"):
            raise ValueError(f"Unknown endianness type: {order}")
        if order != sys.byteorder:
            raise RuntimeError(f"the file is {order}-endian and this machine is {sys.byteorder}-endian: not supported")

    def read(self, name: str, default: bytes | None = None) -> bytes:
        try:
            return self._stored(self.archive.getinfo(f"{self.root}/{name}"))
        except KeyError:
            if default is not None:
                return default
            raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found") from None

    def _stored(self, info: zipfile.ZipInfo) -> bytes:
        if info.compress_type != zipfile.ZIP_STORED:
            raise RuntimeError(f"corrupt checkpoint: record {info.filename} is compressed, checkpoints never are")
        return self.archive.read(info)

    def storage(self, key: str, nbytes: int) -> UntypedStorage:
        try:
            info = self.archive.getinfo(f"{self.root}/data/{key}")
        except KeyError:
            raise RuntimeError(f"PytorchStreamReader failed locating file data/{key}: file not found") from None
        if info.file_size != nbytes:
            raise RuntimeError(f"corrupt checkpoint: record data/{key} has {info.file_size} bytes, {nbytes} expected")
        if self.mapping is None or nbytes == 0:
            return _fresh(self._stored(info), nbytes)
        start = self._data_start(info)
        view = np.frombuffer(self.mapping, np.uint8, nbytes, start)
        return UntypedStorage.borrow(view.ctypes.data, nbytes, view)

    def _data_start(self, info: zipfile.ZipInfo) -> int:
        header = self.mapping[info.header_offset : info.header_offset + 30]
        if len(header) < 30 or header[:4] != b"PK\3\4":
            raise RuntimeError(f"corrupt checkpoint: no local header for {info.filename}")
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        start = info.header_offset + 30 + name_length + extra_length
        if start + info.file_size > len(self.mapping):
            raise RuntimeError(f"corrupt checkpoint: record {info.filename} ends after the file")
        return start


def _load_zip(file: Any, map_location: Any, restricted: bool, mapping: Any, options: dict) -> Any:
    reader = ZipReader(file, mapping)
    loaded: dict[str, UntypedStorage] = {}

    def load_storage(key: str, nbytes: int, location: str) -> UntypedStorage:
        if key not in loaded:
            loaded[key] = _place(reader.storage(key, nbytes), location, map_location)
        return loaded[key]

    return Unpickler(io.BytesIO(reader.read("data.pkl")), load_storage, restricted, **options).load()


# -- the older format -----------------------------------------------------------------------------------------------------


def _load_legacy(file: Any, map_location: Any, restricted: bool, options: dict) -> Any:
    def no_storage(*_: Any) -> Any:
        raise pickle.UnpicklingError("corrupt checkpoint: a storage in the header")

    def header() -> Any:
        return Unpickler(file, no_storage, True).load()

    if header() != MAGIC:
        raise RuntimeError("Invalid magic number; corrupt file?")
    version = header()
    if version != 1001:
        raise RuntimeError(f"Invalid protocol version: {version}")
    header()  # sizes of C types on the machine that wrote it
    loaded: dict[str, UntypedStorage] = {}
    sizes: dict[str, tuple[int, str]] = {}
    place = file.tell()
    available = file.seek(0, os.SEEK_END) - place
    file.seek(place)

    def load_storage(key: str, nbytes: int, location: str) -> UntypedStorage:
        if key not in loaded:
            if nbytes + sum(size for size, _ in sizes.values()) > available:  # before room for it is made
                raise RuntimeError(f"corrupt checkpoint: storage {key!r} has {nbytes} bytes, more than the file")
            loaded[key] = _place(UntypedStorage(nbytes), location, map_location)
            sizes[key] = (nbytes, location)
        return loaded[key]

    result = Unpickler(file, load_storage, restricted, **options).load()
    for key in header():
        if key not in loaded:
            raise RuntimeError(f"corrupt checkpoint: storage {key!r} is not used by the object")
        nbytes = sizes[key][0]
        (numel,) = struct.unpack("<q", _exactly(file, 8))
        if numel < 0 or (numel and nbytes % numel):
            raise RuntimeError(f"corrupt checkpoint: storage {key!r} has {numel} elements in {nbytes} bytes")
        data = _exactly(file, nbytes)
        if nbytes and loaded[key].ptr:
            loaded[key].numpy()[:] = np.frombuffer(data, np.uint8)
    return result


def _exactly(file: Any, count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise RuntimeError(f"unexpected EOF, expected {count - len(data)} more bytes. The file might be corrupted.")
    return data


# -- what a file names ----------------------------------------------------------------------------------------------------


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The full names of what a file in the zip format uses and `load` would refuse, sorted; nothing of it is run."""
    with _opened(f) as file:
        if not zipfile.is_zipfile(file):
            raise ValueError("Expected input to be a checkpoint returned by torch.save but got something else")
        record = ZipReader(file).read("data.pkl")
    named = {present_name(module, name) for module, name in _globals(record)}
    return sorted(_full_name(*key) for key in named if key not in SAFE and key not in _user_safe)


def _globals(data: bytes) -> Iterator[tuple[str, str]]:
    """(module, name) of each global in a pickle, whichever of the two instructions names it."""
    strings: list[str] = []
    memo: dict[int, Any] = {}
    last: Any = None
    argument: Any
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            module, _, name = argument.partition(" ")
            yield module, name
            last = None
        elif opcode.name == "STACK_GLOBAL":
            if len(strings) < 2:
                raise pickle.UnpicklingError("corrupt checkpoint: a global without a name")
            yield strings[-2], strings[-1]
            last = None
        elif opcode.name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            memo[len(memo) if argument is None else argument] = last
        elif opcode.name in ("GET", "BINGET", "LONG_BINGET"):
            last = memo.get(argument)
            if isinstance(last, str):
                strings.append(last)
        elif isinstance(argument, str):
            last = argument
            strings.append(argument)
        else:
            last = None


# -- load -----------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(f: Any) -> Iterator[Any]:
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            yield file
    elif hasattr(f, "read") and hasattr(f, "seek"):
        yield f
    else:
        raise AttributeError(
            "You can only torch.load from a file that is seekable. Please pre-load the data into a buffer like io.BytesIO and try to"
            f" load from it instead (got {type(f).__name__})."
        )


def _switched_on(variable: str) -> bool:
    return os.environ.get(variable, "0").lower() in ("1", "y", "yes", "true")


def _restricted(weights_only: bool | None) -> bool:
    """Whether only weights may be read: what the caller says, or PyTorch's two environment variables, or yes."""
    always, never = _switched_on("TORCH_FORCE_WEIGHTS_ONLY_LOAD"), _switched_on("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    if always and never:
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, but both were set."
        )
    if always:
        return True
    return not never if weights_only is None else weights_only


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read a file written by `save` here or in PyTorch. By default only weights: no code from the file runs.

    >>> model.load_state_dict(flambeau.load("model.pt"))
    """
    restricted = _restricted(weights_only)
    if restricted and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if pickle_module not in (None, pickle):
        raise NotImplementedError(f"files are read with pickle alone, but got pickle_module={pickle_module!r}")
    if mmap and not isinstance(f, (str, os.PathLike)):
        raise ValueError("f must be a file path in order to use the mmap argument")
    options = {"encoding": pickle_load_args.pop("encoding", "utf-8"), **pickle_load_args}
    with _opened(f) as file:
        start = file.tell()
        first = file.read(4)
        file.seek(start)
        if not first:
            raise EOFError("Ran out of input")
        try:
            return _dispatch(file, first, map_location, restricted, mmap, options)
        except pickle.UnpicklingError as error:
            if restricted:
                raise pickle.UnpicklingError(_ADVICE.format(error)) from None
            raise
        except _DAMAGE as error:
            if not restricted and isinstance(error, (AttributeError, ImportError)):
                raise
            raise RuntimeError(
                f"cannot read this checkpoint, it is damaged or not a checkpoint: {type(error).__name__}: {error}"
            ) from error


def _dispatch(file: Any, first: bytes, map_location: Any, restricted: bool, mmap: bool | None, options: dict) -> Any:
    if first == b"PK\3\4":
        mapping = None
        if mmap:
            mapping = mapped.mmap(file.fileno(), 0, access=mapped.ACCESS_COPY)
        return _load_zip(file, map_location, restricted, mapping, options)
    if mmap:
        raise RuntimeError(
            "mmap can only be used with files saved with `torch.save(_use_new_zipfile_serialization=True), please torch.save your"
            " checkpoint with this option in order to use mmap."
        )
    return _load_legacy(file, map_location, restricted, options)
