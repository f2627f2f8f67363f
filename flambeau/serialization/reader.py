"""Reading of checkpoints: the zip format and the older one, restricted to data by default."""

from __future__ import annotations

import contextlib
import io
import mmap as mapped
import os
import pickle
import pickletools
import struct
import sys
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any

from ..core.device import device
from ..core.dtype import dtype
from ..core.storage import UntypedStorage
from . import rebuild
from .archive import ArchiveReader, read_into
from .internals import _is_zipfile
from .names import SAFE, present_name
from .options import load_options, state
from .places import restore
from .safetensors import load_file
from .unpickler import RestrictedUnpickler, Unpickler, full_name, unpickler_class, user_safe
from .writer import MAGIC

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

_TORCHSCRIPT = (
    "this file is a TorchScript archive: a compiled program with its weights, which Flambeau cannot read yet. Where PyTorch is"
    " installed, `torch.save(torch.jit.load(path).state_dict(), 'weights.pt')` writes its weights to a file that opens here."
)


# -- the zip format -------------------------------------------------------------------------------------------------------


def _open_archive(file: Any, mapping: Any) -> ArchiveReader:
    reader = ArchiveReader(file, mapping)
    if not reader.has_record("data.pkl") or reader.has_record("constants.pkl"):
        raise RuntimeError(
            _TORCHSCRIPT
            if reader.has_record("constants.pkl")
            else "PytorchStreamReader failed: no data.pkl in the archive"
        )
    for record in (".format_version", "version"):  # read for their headers: damage shows
        if reader.has_record(record):
            reader.get_record(record)
    return reader


def _load_zip(file: Any, map_location: Any, kind: Any, mapping: Any, options: dict) -> Any:
    reader = _open_archive(file, mapping)
    swap = reader.byte_order() != sys.byteorder
    loaded: dict[str, UntypedStorage] = {}

    def load_storage(key: str, nbytes: int, location: str, d: dtype) -> UntypedStorage:
        if key not in loaded:
            loaded[key] = _storage(reader, key, nbytes, location, map_location, d if swap else None)
        return loaded[key]

    with rebuild.one_file(numbers_come_later=False):
        return kind(io.BytesIO(reader.get_record("data.pkl")), load_storage, **options).load()


def _storage(
    reader: ArchiveReader, key: str, nbytes: int, location: str, map_location: Any, swapped: dtype | None
) -> UntypedStorage:
    if isinstance(map_location, (str, device)) and str(map_location).partition(":")[0] == "meta":  # nothing to read
        storage = UntypedStorage(reader.checked(key, nbytes).file_size, device("meta"))
        storage.origin = reader.get_record_offset(f"data/{key}")
        return storage
    if state.skip_data:
        reader.checked(key, nbytes)
        return restore(UntypedStorage(nbytes), location, map_location)
    storage = reader.storage(key, nbytes)
    if swapped is not None:
        storage.byteswap(swapped)
    return restore(storage, location, map_location)


# -- the older format -----------------------------------------------------------------------------------------------------


def _load_legacy(file: Any, map_location: Any, kind: Any, options: dict) -> Any:
    def no_storage(*_: Any) -> Any:
        raise pickle.UnpicklingError("corrupt checkpoint: a storage in the header")

    def header() -> Any:
        return RestrictedUnpickler(file, no_storage, **options).load()

    magic = kind(file, no_storage, **options).load()
    if type(magic) is not int or magic != MAGIC:
        raise RuntimeError("Invalid magic number; corrupt file?")
    version = header()
    if type(version) is not int or version != 1001:
        raise RuntimeError(f"Invalid protocol version: {rebuild.shown(version)}")
    machine = header()  # sizes of C types on the machine that wrote it
    swap = isinstance(machine, dict) and machine.get("little_endian", True) is not (sys.byteorder == "little")
    read: dict[str, UntypedStorage] = {}
    loaded: dict[str, UntypedStorage] = {}
    kinds: dict[str, dtype] = {}
    available = _bytes_left(file)

    def load_storage(key: str, nbytes: int, location: str, d: dtype) -> UntypedStorage:
        nonlocal available
        if key not in loaded:
            available -= nbytes
            if available < 0:  # before room for it is made
                raise RuntimeError(f"corrupt checkpoint: storage {key[:80]!r} has {nbytes} bytes, more than the file")
            read[key] = UntypedStorage(nbytes)
            loaded[key] = restore(read[key], location, map_location)
            kinds[key] = d
        return loaded[key]

    with rebuild.one_file(numbers_come_later=True):
        result = kind(file, load_storage, **options).load()
        for key in _keys(header(), set(loaded)):
            _fill(file, key, read[key], kinds[key] if swap else None)
            if loaded[key] is not read[key] and loaded[key].device.type == "cpu":
                loaded[key].copy_(read[key])
    return result


def _bytes_left(file: Any) -> int:
    place = file.tell()
    file.seek(0, os.SEEK_END)
    end = file.tell()
    file.seek(place)
    return end - place


def _keys(given: Any, wanted: set[str]) -> list[str]:
    """Return the keys of the storages in their order in the file; raises unless all that the object uses are there, since the others would
    stay uninitialised."""
    if type(given) is not list:
        raise RuntimeError(f"corrupt checkpoint: expected the keys of the storages, got {rebuild.shown(given)}")
    keys = [key.decode() if type(key) is bytes else key for key in given]
    for key in keys:
        if type(key) is not str or key not in wanted:
            raise RuntimeError(f"corrupt checkpoint: storage {rebuild.shown(key)} is not used by the object")
    missing = wanted.difference(keys)
    if missing:
        raise RuntimeError(f"corrupt checkpoint: storage {min(missing)[:80]!r} is not in the file")
    return keys


def _fill(file: Any, key: str, storage: UntypedStorage, swapped: dtype | None) -> None:
    nbytes = storage.size_bytes
    count = bytearray(8)
    _read_exactly(file, memoryview(count))
    (numel,) = struct.unpack("<q", count)
    if numel < 0 or (numel and nbytes % numel):
        raise RuntimeError(f"corrupt checkpoint: storage {key!r} has {numel} elements in {nbytes} bytes")
    _read_exactly(file, storage.numpy().data)
    if swapped is not None:
        storage.byteswap(swapped)


def _read_exactly(file: Any, target: memoryview) -> None:
    missing = len(target) - read_into(file, target)
    if missing:
        raise RuntimeError(f"unexpected EOF, expected {missing} more bytes. The file might be corrupted.")


# -- what a file names ----------------------------------------------------------------------------------------------------


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """Return the full names of what a file in the zip format uses and `load` would refuse, sorted; nothing of it is run."""
    with _open_file(f) as file:
        if not _is_zipfile(file):
            raise ValueError("Expected input to be a checkpoint returned by torch.save but got something else")
        record = ArchiveReader(file).get_record("data.pkl")
    named = {present_name(module, name) for module, name in _globals(record)}
    return sorted(full_name(*key) for key in named if key not in SAFE and key not in user_safe)


def _globals(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each global in a pickle, from either of the two instructions that name one."""
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
def _open_file(f: Any) -> Iterator[Any]:
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


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "0").lower() in ("1", "y", "yes", "true")


def _is_weights_only(weights_only: bool | None, pickle_module: Any) -> bool:
    """Return whether only weights may be read: by the caller's choice, or PyTorch's two environment variables, or by default."""
    always, never = _is_set("TORCH_FORCE_WEIGHTS_ONLY_LOAD"), _is_set("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    if always and never:
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, but both were set."
        )
    if always:
        return True
    if weights_only is not None:
        return weights_only
    if never:
        warnings.warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the`weights_only` argument was not explicitly"
            " passed to `torch.load`, forcing weights_only=False.",
            UserWarning,
            stacklevel=3,
        )
    return not never and pickle_module is None


def load(
    f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None,
    mmap: bool | None = None, **pickle_load_args: Any,
) -> Any:  # fmt: skip
    """Read a file written by `save` here or in PyTorch. By default only weights: no code from the file runs.

    >>> model.load_state_dict(flambeau.load("model.pt"))
    """
    restricted = _is_weights_only(weights_only, pickle_module)
    if restricted and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    mmap = load_options.mmap if mmap is None else mmap
    if mmap and not isinstance(f, (str, os.PathLike)):
        raise ValueError("f must be a file path in order to use the mmap argument")
    if isinstance(f, (str, os.PathLike)) and os.fsdecode(f).endswith(".safetensors"):
        return load_file(f, device="cpu" if map_location is None else map_location)
    kind: Any = RestrictedUnpickler if restricted else Unpickler
    if pickle_module not in (None, pickle):
        kind = unpickler_class(pickle_module)
    options = {"encoding": pickle_load_args.pop("encoding", "utf-8"), **pickle_load_args}
    with _open_file(f) as file:
        start = file.tell()
        empty = not file.read(1)
        file.seek(start)
        if empty:
            raise EOFError("Ran out of input")
        try:
            return _dispatch(file, map_location, kind, mmap, options)
        except pickle.UnpicklingError as error:
            if restricted:
                raise pickle.UnpicklingError(_ADVICE.format(error)) from None
            raise
        except _DAMAGE as error:
            if not restricted and isinstance(error, (AttributeError, ImportError, UnicodeDecodeError)):
                raise
            raise RuntimeError(
                f"cannot read this checkpoint, it is damaged or not a checkpoint: {type(error).__name__}: {error}"
            ) from error


def _dispatch(file: Any, map_location: Any, kind: Any, mmap: bool, options: dict) -> Any:
    if _is_zipfile(file):
        mapping = None
        if mmap:
            mapping = _mapped(file)
        return _load_zip(file, map_location, kind, mapping, options)
    if mmap:
        raise RuntimeError(
            "mmap can only be used with files saved with `torch.save(_use_new_zipfile_serialization=True), please torch.save your"
            " checkpoint with this option in order to use mmap."
        )
    return _load_legacy(file, map_location, kind, options)


def _mapped(file: Any) -> Any:
    """Map the file into memory: changes stay private, or go to the file if `set_default_mmap_options` says so."""
    if load_options.mmap_flags != mapped.MAP_SHARED:
        return mapped.mmap(file.fileno(), 0, access=mapped.ACCESS_COPY)
    with open(file.name, "r+b") as writable:
        return mapped.mmap(writable.fileno(), 0, access=mapped.ACCESS_WRITE)
