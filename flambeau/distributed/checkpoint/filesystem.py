"""Checkpoints in files, in PyTorch's format: data in `__<rank>_<number>.distcp`, and the index of everything in `.metadata`.

A checkpoint exists when its `.metadata` does, and that file is replaced atomically: it is written under another name and renamed after
everything else is on the disk. If there is a checkpoint already, the new one's data gets other names, and the old files are removed
afterwards. So a process that is killed at any time leaves the old checkpoint or the new one, complete."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import operator
import os
import queue
import re
import threading
import uuid
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any

from ...core.tensor import Tensor
from ...futures import Future, settled
from ...serialization import load, save
from ...serialization import safetensors as _safetensors
from ._extension import ExtensionRegistry, StreamTransformExtension
from ._hf_utils import CUSTOM_METADATA_KEY, DCP_VERSION_KEY, FORMAT_KEY, FORMAT_VALUE, HF_DCP_VERSION
from ._places import FileSystem, FileSystemBase, _sync_folder, _sync_stream
from .metadata import Metadata, StorageMeta
from .metadata_file import read_metadata, write_metadata
from .planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem, WriteItemType
from .staging import BlockingAsyncStager
from .storage import StorageReader, StorageWriter, WriteResult
from .utils import _create_file_view, narrow_tensor_by_index

__all__ = ["FileSystem", "FileSystemBase", "FileSystemReader", "FileSystemWriter", "SerializationFormat"]

_metadata_fn = ".metadata"
CURRENT_DCP_VERSION = "1.0.0"
DEFAULT_SUFFIX = ".distcp"
_DATA_FILE = re.compile(r"__\d+_.*" + re.escape(DEFAULT_SUFFIX))


@dataclass
class _StorageInfo:
    """Location of a stored object: its file, offset and length."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Sequence[str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if value is not None}


@dataclass
class _StoragePrefix:
    """Prefix of the names of a rank's files."""

    prefix: str


class SerializationFormat(Enum):
    """Format of tensors: each by `torch.save`, or all of a file as safetensors."""

    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"


def _generate_uuid() -> str:
    return str(uuid.uuid4())


# -- writing --------------------------------------------------------------------------------------------------------------------


class _UnclosableStream(io.IOBase):
    """A stream that extensions may close without closing the file behind it."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self.raw.write(data)

    def close(self) -> None:
        self.raw.flush()


class _StorageWriterTransforms:
    """The extensions applied to written data."""

    def __init__(self, extensions: Sequence[StreamTransformExtension] | None = None) -> None:
        self.extensions = extensions or ()

    def transform_save_stream(self, write_item: WriteItem, raw_stream: Any) -> tuple[Any, list[str]]:
        stream: Any = _UnclosableStream(raw_stream)
        for extension in self.extensions:
            stream = extension.transform_to(stream)
        return stream, [extension.get_descriptor() for extension in reversed(self.extensions)]


def _item_size(item: WriteItem) -> int:
    if item.tensor_data is None:
        raise AssertionError("WriteItem tensor_data must not be None")
    return item.tensor_storage_size() or 0


def _split_by_size_and_type(bins: int, items: list[WriteItem]) -> list[list[WriteItem]]:
    """Split items into bins of about the same number of bytes."""
    if bins == 1:
        return [items]
    shares: list[list[WriteItem]] = [[] for _ in range(bins)]
    sizes = [0] * bins
    others = [item for item in items if item.type == WriteItemType.BYTE_IO]
    for number, item in enumerate(others):
        shares[number % bins].append(item)
    for item in sorted((i for i in items if i.type != WriteItemType.BYTE_IO), key=_item_size, reverse=True):
        smallest = min(enumerate(sizes), key=operator.itemgetter(1))[0]
        shares[smallest].append(item)
        sizes[smallest] += _item_size(item)
    return shares


def _copy_to_host(tensor: Tensor) -> Tensor:
    """Return a copy of the tensor's values in host memory, without the rest of its storage."""
    tensor = tensor.detach().cpu()
    if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
        tensor = tensor.clone()
    return tensor


class _FileSystemWriter(StorageWriter):
    """Writes checkpoints into a folder."""

    def __init__(
        self,
        path: str | os.PathLike,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        overwrite: bool = True,
        _extensions: Sequence[StreamTransformExtension] | None = None,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.fs: Any = FileSystem()
        self.path: Any = self.fs.init_path(path)
        self.single_file_per_rank, self.sync_files, self.thread_count = single_file_per_rank, sync_files, thread_count
        self.per_thread_copy_ahead = per_thread_copy_ahead
        self.save_id = _generate_uuid()
        self.overwrite = overwrite
        self.transforms = _StorageWriterTransforms(_extensions)
        self.serialization_format = serialization_format
        self.rank: int | None = None
        self.use_collectives = True

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.save_id = _generate_uuid()

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.rank = kwargs.get("rank")
        self.use_collectives = kwargs.get("use_collectives", True)

    def _own_rank(self) -> int | None:
        """Return this rank if it writes metadata of its own (no collectives), else None."""
        return self.rank if not self.use_collectives else None

    def _metadata_exists(self) -> bool:
        return self.fs.exists(self._get_metadata_path(self._own_rank()))

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.fs.mkdir(self.path)
        if self._metadata_exists():
            if not self.overwrite:
                raise RuntimeError(f"Checkpoint already exists and {self.overwrite=}.")
            warnings.warn(
                f"Detected an existing checkpoint in {self.path}, overwriting since {self.overwrite=}. Past version 2.5 of"
                " PyTorch, `overwrite` will default to False. Set this variable to True to maintain this functionality or"
                " False to raise when an existing checkpoint is found.",
                stacklevel=2,
            )
        if self._own_rank() is not None:
            plan = dataclasses.replace(plan, storage_data=_StoragePrefix(f"__{self.rank}_{self._unused_prefix()}"))
        return plan

    def _unused_prefix(self) -> str:
        """Return a prefix for the names of this save's files, different from those of an existing checkpoint."""
        return f"{self.save_id[:8]}_" if self._metadata_exists() else ""

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        fresh = self._unused_prefix()
        return [
            dataclasses.replace(plan, storage_data=_StoragePrefix(f"__{rank}_{fresh}"))
            if plan.storage_data is None
            else plan
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        if self.single_file_per_rank:
            shares = _split_by_size_and_type(self.thread_count, plan.items)
        else:
            shares = [[item] for item in plan.items]
        files: queue.Queue = queue.Queue()
        for number, share in enumerate(shares):
            name = f"{plan.storage_data.prefix}{number}{DEFAULT_SUFFIX}"
            files.put((self.fs.concat_path(self.path, name), name, share))
        return self._write_data(planner, files)

    def _write_data(self, planner: SavePlanner, file_queue: queue.Queue) -> Future[list[WriteResult]]:
        results: list[WriteResult] = []
        problems: list[BaseException] = []

        def work() -> None:
            with contextlib.suppress(queue.Empty):
                while not problems:
                    try:
                        results.extend(self._write_file(planner, *file_queue.get_nowait()))
                    except queue.Empty:
                        raise
                    except BaseException as problem:
                        problems.append(problem)

        others = [threading.Thread(target=work, name="checkpoint writer") for _ in range(1, self.thread_count)]
        for thread in others:
            thread.start()
        work()
        for thread in others:
            thread.join()
        if problems:
            raise problems[0]
        return settled(results)

    def _write_file(self, planner: SavePlanner, path: Any, name: str, items: list[WriteItem]) -> list[WriteResult]:
        with self.fs.create_stream(path, "wb") as stream:
            if self.serialization_format == SerializationFormat.SAFETENSORS:
                results = _write_safetensors(planner, stream, name, items)
            else:
                first = sorted(items, key=lambda item: item.type != WriteItemType.BYTE_IO)
                results = [self._write_item(planner, stream, name, item) for item in first]
            if self.sync_files:
                _sync_stream(stream)
        return results

    def _write_item(self, planner: SavePlanner, stream: Any, name: str, item: WriteItem) -> WriteResult:
        start = stream.tell()
        target, descriptors = self.transforms.transform_save_stream(item, stream)
        data: Any = planner.resolve_data(item)
        if item.type == WriteItemType.BYTE_IO:
            target.write(data.getbuffer())
        else:
            save(_copy_to_host(data), target)
        target.close()
        length = stream.tell() - start
        return WriteResult(item.index, length, _StorageInfo(name, start, length, descriptors or None))

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.version = CURRENT_DCP_VERSION
        metadata.storage_data = {one.index: one.storage_data for some in results for one in some}
        metadata.storage_meta = self.storage_meta()
        rank = self._own_rank()
        final = self._get_metadata_path(rank)
        aside = self.fs.concat_path(self.path, f"{'' if rank is None else f'__{rank}'}{_metadata_fn}.tmp")
        with self.fs.create_stream(aside, "wb") as file:
            write_metadata(metadata, file)
            if self.sync_files:
                _sync_stream(file)
        if self.sync_files:
            _sync_folder(self.path)  # the data files must exist before the metadata that names them
        self.fs.rename(aside, final)
        if self.sync_files:
            _sync_folder(self.path)
        if rank is None:
            self._remove_others({info.relative_path for info in metadata.storage_data.values()})

    def _remove_others(self, kept: set[str]) -> None:
        """Remove the data of the former checkpoint, and of saves that were never finished."""
        if not isinstance(self.path, Path):
            return
        for file in self.path.iterdir():
            if file.name not in kept and _DATA_FILE.fullmatch(file.name):
                file.unlink()

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self.save_id)

    def _get_metadata_path(self, rank: int | None = None) -> Any:
        return self.fs.concat_path(self.path, _metadata_fn if rank is None else f"__{rank}{_metadata_fn}")

    @property
    def checkpoint_id(self) -> str | os.PathLike:
        """Path that the checkpoint is written to."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)


def _write_safetensors(planner: SavePlanner, stream: Any, name: str, items: list[WriteItem]) -> list[WriteResult]:
    """Write all tensors as one safetensors file, with the offsets of each in the whole tensor."""
    tensors: dict[str, Tensor] = {}
    offsets: dict[str, Any] = {}
    results = []
    for item in items:
        if item.type == WriteItemType.BYTE_IO or item.tensor_data is None:
            raise ValueError(f"{item.index.fqn} is no tensor: a file of safetensors cannot hold it")
        data: Any = planner.resolve_data(item)
        tensors[item.index.fqn] = tensor = _copy_to_host(data).contiguous()
        offsets[item.index.fqn] = {"saved_offsets": list(item.tensor_data.chunk.offsets)}
        size = tensor.numel() * tensor.element_size()
        results.append(WriteResult(item.index, size, _StorageInfo(name, 0, size)))
    about = {CUSTOM_METADATA_KEY: json.dumps(offsets), DCP_VERSION_KEY: str(HF_DCP_VERSION), FORMAT_KEY: FORMAT_VALUE}
    stream.write(_safetensors.save(tensors, metadata=about))
    return results


class FileSystemWriter(_FileSystemWriter, BlockingAsyncStager):
    """Writes checkpoints into a folder: a file for each rank, or for each tensor if not `single_file_per_rank`. With `sync_files` they are
    on the disk when `save` returns. An existing checkpoint is replaced if `overwrite`, and is kept until the new one is complete."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        _extensions: Sequence[StreamTransformExtension] | None = None,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
    ) -> None:
        _FileSystemWriter.__init__(
            self, path, single_file_per_rank, sync_files, thread_count, per_thread_copy_ahead, overwrite, _extensions,
            serialization_format,
        )  # fmt: skip
        BlockingAsyncStager.__init__(self, cache_staged_state_dict=cache_staged_state_dict)

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        self.per_thread_copy_ahead = 0
        return super().stage(state_dict)


# -- reading --------------------------------------------------------------------------------------------------------------------


class _StorageReaderTransforms:
    """The extensions applied to read data."""

    def __init__(self, extension_registry: ExtensionRegistry | None = None) -> None:
        self.extension_registry = extension_registry or ExtensionRegistry()

    def transform_load_stream(self, read_item: ReadItem, transform_descriptors: Sequence[str], raw_stream: Any) -> Any:
        stream = raw_stream
        for extension in self.extension_registry.from_descriptor_list(transform_descriptors):
            if isinstance(extension, StreamTransformExtension):
                stream = extension.transform_from(stream)
        return stream


def fill(planner: LoadPlanner, item: ReadItem, block: Tensor) -> None:
    """Copy a block that was read to the tensor that the planner chooses."""
    target = planner.resolve_tensor(item).detach()
    if target.size() != block.size():
        raise AssertionError(f"req {item.storage_index} mismatch sizes {target.size()} vs {block.size()}")
    target.copy_(block)
    planner.commit_tensor(item, target)


class FileSystemReader(StorageReader):
    """Reads checkpoints from a folder, also PyTorch's."""

    def __init__(self, path: str | os.PathLike[str], _extension_registry: ExtensionRegistry | None = None) -> None:
        super().__init__()
        self.fs: Any = FileSystem()
        self.path: Any = self.fs.init_path(path)
        self.storage_data: dict[Any, Any] = {}
        self.load_id = _generate_uuid()
        self.transforms = _StorageReaderTransforms(_extension_registry)
        self.rank: int | None = None
        self.use_collectives = True

    def _slice_file(self, file: Any, sinfo: _StorageInfo) -> Any:
        return _create_file_view(file, sinfo.offset, sinfo.length)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self.storage_data = {}
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.load_id = _generate_uuid()

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_file: dict[str, list[tuple[_StorageInfo, ReadItem]]] = {}
        for item in plan.items:
            where: _StorageInfo = self.storage_data[item.storage_index]
            by_file.setdefault(where.relative_path, []).append((where, item))
        for name, wanted in by_file.items():
            with self.fs.create_stream(self.fs.concat_path(self.path, self._check_path(name)), "rb") as stream:
                for where, item in sorted(wanted, key=lambda entry: entry[0].offset):
                    self._read_item(stream, where, item, planner)
        return settled(None)

    def _check_path(self, name: str) -> str:
        """Return the path of a file; raises if (untrusted) metadata names one outside of the checkpoint's folder."""
        if type(name) is not str or Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"the checkpoint names a file outside of its folder: {name!r}")
        return name

    def _read_item(self, stream: IO[bytes], where: _StorageInfo, item: ReadItem, planner: LoadPlanner) -> None:
        piece = self._slice_file(stream, where)
        piece = self.transforms.transform_load_stream(item, where.transform_descriptors or (), piece)
        if item.type == LoadItemType.BYTE_IO:
            planner.load_bytes(item, io.BytesIO(piece.read(-1)))
            return
        source = piece if isinstance(piece, io.BytesIO) else io.BytesIO(piece.read(-1))
        tensor: Any = load(source, map_location="cpu", weights_only=True)
        fill(planner, item, narrow_tensor_by_index(tensor, item.storage_offsets, item.lengths))

    def _get_metadata_path(self, rank: int | None = None) -> Any:
        return self.fs.concat_path(self.path, _metadata_fn if rank is None else f"__{rank}{_metadata_fn}")

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with self.fs.create_stream(self._get_metadata_path(kwargs.get("rank")), "rb") as file:
            metadata = read_metadata(file)
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        assert metadata.storage_meta is not None
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.storage_data = metadata.storage_data
        self.rank = kwargs.get("rank")
        self.use_collectives = kwargs.get("use_collectives", True)
        if self.storage_data is None:
            raise AssertionError("storage_data must not be None in metadata")

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    @property
    def checkpoint_id(self) -> str | os.PathLike:
        """Path that the checkpoint is read from."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)
