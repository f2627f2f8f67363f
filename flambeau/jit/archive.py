"""TorchScript archives (.pt): a zip of pickled objects, the source of their classes, and constants. What is written here loads in
PyTorch, and the other way round; source from a file is parsed, checked and compiled to graphs, never run as Python."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

from ..core.dtype import dtype
from ..core.storage import UntypedStorage
from ..serialization import archive as zip_archive
from ..serialization import places
from . import printing
from .functions import Function
from .object_pickle import Reader, Writer
from .printed_classes import class_code
from .source import FrontendError
from .types import ANY, EnumType, TupleType

_LARGEST_SOURCE = 1 << 28  # bytes of source that are read from one record

DAMAGE = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, ValueError, LookupError, TypeError, AttributeError, EOFError,
    OverflowError, MemoryError, NotImplementedError, RecursionError, AssertionError, pickle.UnpicklingError, SyntaxError, FrontendError,
)  # fmt: skip


# -- saving -----------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _open_for_writing(f: Any) -> Iterator[Any]:
    if isinstance(f, (str, os.PathLike)):
        with open(f, "wb") as file:
            yield file
    else:
        yield f


def _root_of(f: Any) -> str:
    if isinstance(f, (str, os.PathLike)):
        return os.path.splitext(os.path.basename(os.fspath(f)))[0] or "archive"
    return "archive"


def write_module(m: Any, f: Any, _extra_files: dict | None = None) -> None:
    """Write a compiled module to a file or a file-like object."""
    data = _Export(m).records()
    with _open_for_writing(f) as file, zip_archive.ArchiveWriter(file, _root_of(f)) as archive:
        for name, contents in data:
            archive.write_record(name, contents)
        for name, contents in (_extra_files or {}).items():
            archive.write_record(f"extra/{name}", contents)
        archive.write_record("byteorder", sys.byteorder)


class _Export:
    """The records of an archive for one module: pickled objects, source of the classes, constants."""

    def __init__(self, module: Any):
        self.module = module
        self.printer = printing.Printer(importable=True)
        self.sources: dict[str, list[str]] = {}

    def records(self) -> list[tuple[str, Any]]:
        writer = Writer(self.printer.mention)
        objects = writer.dump(self.module, ANY)
        self._write_sources()
        constants = Writer(self.printer.mention)
        pickled = constants.dump(tuple(self.printer.constants), ANY)
        out: list[tuple[str, Any]] = [(f"data/{i}", s) for i, (s, _) in enumerate(writer.storages)]
        out.append(("data.pkl", objects))
        for prefix, texts in self.sources.items():
            out.append((f"code/{prefix.replace('.', '/')}.py", "".join(texts).encode()))
        out += [(f"constants/{i}", s) for i, (s, _) in enumerate(constants.storages)]
        out.append(("constants.pkl", pickled))
        return out

    def _write_sources(self) -> None:
        """Collect the definitions of all types and functions mentioned so far; each definition may mention further ones."""
        done = 0
        while done < len(self.printer.types):
            thing = self.printer.types[done]
            done += 1
            name = _full_name(thing)
            text = (
                self.printer.function(thing.ensure())
                if isinstance(thing, Function)
                else class_code(self.printer, thing)
            )
            self.sources.setdefault(name.rpartition(".")[0], []).append(text)


def _full_name(thing: Any) -> str:
    if isinstance(thing, Function):
        return thing.qualified_name
    if isinstance(thing, TupleType):
        assert thing.tuple_name is not None
        return thing.tuple_name
    return thing.enum_name if isinstance(thing, EnumType) else thing.name


# -- loading ----------------------------------------------------------------------------------------------------------------


class Archive:
    """An open archive: its source texts and its pickles."""

    def __init__(self, file: Any, map_location: Any = None):
        self.reader = zip_archive.ArchiveReader(file)
        self.map_location = map_location
        version_name = ".data/version" if self.reader.has_record(".data/version") else "version"
        for wanted in (version_name, "data.pkl", "constants.pkl"):
            if not self.reader.has_record(wanted):
                if wanted == "constants.pkl" and self.reader.has_record("data.pkl"):
                    raise RuntimeError("PytorchStreamReader failed locating file constants.pkl: file not found. The file is a checkpoint written by torch.save: load it with torch.load")  # fmt: skip
                raise RuntimeError(f"PytorchStreamReader failed locating file {wanted}: file not found")
        version = self.record(version_name).strip()
        if not version.isdigit() or not 1 <= int(version) <= 10:
            raise RuntimeError(f"Attempted to read a PyTorch file with version {version.decode(errors='replace')[:20]}, but this reads versions 1 to 10")  # fmt: skip
        self.swapped = self.reader.byte_order() != sys.byteorder

    def has(self, name: str) -> bool:
        return self.reader.has_record(name)

    def record(self, name: str) -> bytes:
        """Return the bytes of a record, decompressed."""
        path = f"{self.reader.root}/{name}"
        info = self.reader.archive.NameToInfo.get(path)
        if info is None:
            raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found")
        if info.file_size > _LARGEST_SOURCE:
            raise RuntimeError(f"corrupt archive: record {name} is too large")
        with self.reader.archive.open(info) as file:
            data = file.read(_LARGEST_SOURCE + 1)
        if len(data) != info.file_size:
            raise RuntimeError(f"corrupt archive: record {name} has two sizes")
        return data

    def source(self, prefix: str) -> str | None:
        name = f"code/{prefix.replace('.', '/')}.py"
        return self.record(name).decode() if self.has(name) else None

    def unpickle(self, name: str, folder: str) -> Any:
        known: dict[str, UntypedStorage] = {}

        def storage(key: str, nbytes: int, location: str, kind: dtype) -> UntypedStorage:
            if key not in known:
                known[key] = self._storage(f"{folder}/{key}", nbytes, location, kind)
            return known[key]

        return Reader(self.record(name), storage).load()

    def _storage(self, name: str, nbytes: int, location: str, kind: dtype) -> UntypedStorage:
        info = self.reader.archive.NameToInfo.get(f"{self.reader.root}/{name}")
        if info is None or info.file_size != nbytes or info.compress_type != zipfile.ZIP_STORED:
            raise RuntimeError(f"corrupt archive: {name} is missing or has another size than the pickle says")
        made = UntypedStorage(nbytes)
        file = self.reader.file
        file.seek(self.reader.get_record_offset(name))
        target = made.numpy().data
        if nbytes and zip_archive.read_into(file, target) != nbytes:
            raise RuntimeError(f"corrupt archive: {name} ends after the file")
        if info.CRC and zlib.crc32(target) != info.CRC:
            raise RuntimeError(f"corrupt archive: Bad CRC-32 for file {name!r}")
        if self.swapped:
            made.byteswap(kind)
        return places.restore(made, location, self.map_location)


@contextlib.contextmanager
def readable(f: Any) -> Iterator[Any]:
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            yield file
    elif hasattr(f, "seek"):
        yield f
    else:
        yield io.BytesIO(f.read())
