"""The file `.metadata`: a pickle under PyTorch's names. Reading is restricted: the file can build metadata and plain data only."""

from __future__ import annotations

import functools
import pathlib
import pickle
from collections.abc import Callable
from dataclasses import fields
from typing import IO, Any, ClassVar

from ...core import naming
from ...serialization.checked import Keys
from ...serialization.unpickler import RestrictedUnpickler
from ...serialization.writer import StoragePickler
from . import metadata as md

_PROTOCOL = 4
_METADATA_MODULE = "torch.distributed.checkpoint.metadata"
_SHARD_METADATA_MODULE = "torch.distributed._shard.sharded_tensor.metadata"


def write_metadata(metadata: md.Metadata, file: Any) -> None:
    """Write the metadata file in PyTorch's format."""
    pickler = StoragePickler(file, _PROTOCOL)
    pickler.dump(metadata)
    if pickler.storages:
        raise ValueError("a planner or a storage has put tensors into the metadata: they cannot be saved there")


def read_metadata(file: IO[bytes]) -> md.Metadata:
    """Read metadata that this package or PyTorch has written."""
    found = _MetadataUnpickler(file, _no_storage).load()
    if not isinstance(found, md.Metadata):
        raise pickle.UnpicklingError(f"the file holds a {type(found).__name__}, not the metadata of a checkpoint")
    return found


def _no_storage(*args: Any) -> Any:
    raise pickle.UnpicklingError("corrupt checkpoint: there are no tensors in a file of metadata")


def _plain_object(kind: type) -> Callable[..., Any]:
    def make(keys: Keys, *args: Any) -> Any:
        if args:
            raise pickle.UnpicklingError(f"corrupt checkpoint: a {kind.__name__} takes its fields later")
        return object.__new__(kind)

    return make


def _enum_constructor(kind: Any) -> Callable[..., Any]:
    return lambda keys, value: kind(value)


def _make_path(keys: Keys, *parts: Any) -> pathlib.PurePath:
    if not all(type(part) is str for part in parts):
        raise pickle.UnpicklingError("corrupt checkpoint: a path is made of strings")
    return pathlib.PurePosixPath(*parts)


class _MetadataUnpickler(RestrictedUnpickler):
    """Restricted unpickler that also allows the classes of metadata."""

    dispatch: ClassVar[Any] = dict(RestrictedUnpickler.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        known = _allowed_names().get((module, name))
        return super().find_class(module, name) if known is None else known

    def _constructor(self, function: Any, args: Any) -> Any:
        make = _constructors().get(function) if isinstance(function, type) else None
        if make is not None and type(args) is tuple:
            return make
        return super()._constructor(function, args)

    def load_build(self) -> None:
        built, state = self.stack[-2:]
        kind = type(built)
        if kind not in _plain_classes():
            super().load_build()
            return
        self.stack.pop()
        if issubclass(kind, md._OfShards):
            if type(state) is not tuple or len(state) != 5:
                raise pickle.UnpicklingError("corrupt checkpoint: bad properties of a tensor")
            built.__setstate__(state)
            return
        names = {field.name for field in fields(kind)}
        if type(state) is not dict or not names.issuperset(state):
            raise pickle.UnpicklingError(f"corrupt checkpoint: bad fields of a {kind.__name__}")
        for name, value in state.items():
            object.__setattr__(built, name, value)

    dispatch[pickle.BUILD[0]] = load_build


@functools.cache
def _plain_classes() -> tuple[type, ...]:
    return (
        md.Metadata, md.MetadataIndex, md.ChunkStorageMetadata, md.TensorProperties, md.TensorStorageMetadata,
        md.BytesStorageMetadata, md.StorageMeta, naming.above("distributed.checkpoint.filesystem")._StorageInfo, md._OfShards,
    )  # fmt: skip


@functools.cache
def _constructors() -> dict[type, Callable]:
    return {
        **{kind: _plain_object(kind) for kind in _plain_classes()},
        md._MEM_FORMAT_ENCODING: _enum_constructor(md._MEM_FORMAT_ENCODING),
        md._OfShards._codes: _enum_constructor(md._OfShards._codes),
        pathlib.PurePosixPath: _make_path,
    }


@functools.cache
def _allowed_names() -> dict[tuple[str, str], type]:
    known: dict[tuple[str, str], type] = {(_METADATA_MODULE, kind.__name__): kind for kind in _plain_classes()}
    known["torch.distributed.checkpoint.filesystem", "_StorageInfo"] = known.pop((_METADATA_MODULE, "_StorageInfo"))
    known[_METADATA_MODULE, "_MEM_FORMAT_ENCODING"] = md._MEM_FORMAT_ENCODING
    known[_METADATA_MODULE, "TensorProperties"] = md.TensorProperties
    known[_SHARD_METADATA_MODULE, "TensorProperties"] = md._OfShards  # what older checkpoints have
    known[_SHARD_METADATA_MODULE, "MEM_FORMAT_ENCODING"] = md._OfShards._codes
    for module in ("pathlib", "pathlib._local"):
        for name in ("PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"):
            known[module, name] = pathlib.PurePosixPath
    return known
