"""Checkpoints in safetensors files, as Hugging Face's libraries read and write them."""

from __future__ import annotations

import dataclasses
import json
import logging
import queue
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...core.size import Size
from ...futures import Future, settled
from ...serialization.safetensors import safe_open
from ._consolidate_hf_safetensors import consolidate_safetensors_files
from ._hf_utils import (
    CUSTOM_METADATA_KEY,
    SAVED_OFFSETS_KEY,
    SHARDED_DIR_NAME,
    SUFFIX,
    _gen_file_name,
    _get_dtype,
    _HFStorageInfo,
    _metadata_fn,
)
from .filesystem import FileSystemReader, FileSystemWriter, SerializationFormat, fill
from .metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from .planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from .storage import WriteResult

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]

logger = logging.getLogger(__name__)


class HuggingFaceStorageWriter(FileSystemWriter):
    """Writes safetensors. Without `save_distributed` one rank has everything; with it each rank writes files of its shards, and with
    `enable_consolidation` these are merged at the end (the shards stay in the folder `sharded`). `fqn_to_index_mapping` gives the number
    (from 1) of each tensor's file."""

    def __init__(
        self,
        path: str,
        fqn_to_index_mapping: dict[str, int] | None = None,
        thread_count: int = 1,
        save_distributed: bool = False,
        enable_consolidation: bool = False,
        thread_count_consolidation: int = 1,
    ) -> None:
        super().__init__(path, serialization_format=SerializationFormat.SAFETENSORS, thread_count=thread_count)
        self.fqn_to_index_mapping = fqn_to_index_mapping
        self.save_distributed, self.enable_consolidation = save_distributed, enable_consolidation
        self.consolidated_output_path: str | None = None
        if enable_consolidation:
            self.consolidated_output_path = str(self.path)
            self.path = self.fs.concat_path(self.path, SHARDED_DIR_NAME)
        self.thread_count_consolidation = thread_count_consolidation

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        made = []
        for number, plan in enumerate(plans, start=1):
            data: dict[str, Any] = {}
            if self.fqn_to_index_mapping is not None:
                data["fqn_to_index_mapping"] = self.fqn_to_index_mapping
            if self.save_distributed:
                data["shard_index"] = number
            made.append(dataclasses.replace(plan, storage_data=data))
        return made

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        if not plan.items:
            return settled([])
        mapping = plan.storage_data.get("fqn_to_index_mapping")
        last = max(mapping.values()) if mapping is not None else 1
        files: queue.Queue = queue.Queue()
        for number, items in self._split_by_storage_plan(mapping, plan.items).items():
            name = _gen_file_name(number, last, plan.storage_data.get("shard_index"))
            files.put((self.fs.concat_path(self.path, name), name, items))
        return self._write_data(planner, files)

    def _split_by_storage_plan(
        self, storage_plan: dict[str, int] | None, items: list[WriteItem]
    ) -> dict[int, list[WriteItem]]:
        if storage_plan is None:
            return {1: items}
        shares: dict[int, list[WriteItem]] = {}
        for item in items:
            shares.setdefault(storage_plan[item.index.fqn], []).append(item)
        return shares

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        if self.save_distributed:
            if self.enable_consolidation:
                mapping = self.fqn_to_index_mapping
                consolidate_safetensors_files(
                    input_dir=str(self.path),
                    output_dir=self.consolidated_output_path,  # type: ignore[arg-type]
                    num_threads=self.thread_count_consolidation,
                    fqn_to_index_mapping=mapping or dict.fromkeys(metadata.state_dict_metadata, 1),
                )
            return
        written = [one for some in results for one in some]
        index = {
            "metadata": {"total_size": sum(one.storage_data.length for one in written)},
            "weight_map": {one.index.fqn: one.storage_data.relative_path for one in written},
        }
        with self.fs.create_stream(self.fs.concat_path(self.path, _metadata_fn), "w") as file:
            json.dump(index, file, indent=2)

    @property
    def metadata_path(self) -> str:
        return _metadata_fn


class HuggingFaceStorageReader(FileSystemReader):
    """Reads safetensors: whole tensors, or the shards that ranks have written."""

    def __init__(self, path: str, thread_count: int = 1) -> None:
        super().__init__(path=path)
        self.thread_count = thread_count

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            by_file.setdefault(self.storage_data[item.storage_index].relative_path, []).append(item)
        with ThreadPoolExecutor(max(1, min(self.thread_count, len(by_file)))) as threads:
            list(threads.map(lambda entry: self._read_file(entry[0], entry[1], planner), by_file.items()))
        return settled(None)

    def _read_file(self, name: str, items: list[ReadItem], planner: LoadPlanner) -> None:
        with safe_open(name, framework="pt") as file:
            for item in items:
                self._process_read_request(file, item, planner)

    def _process_read_request(self, f: Any, req: ReadItem, planner: LoadPlanner) -> None:
        block = tuple(slice(start, start + size) for start, size in zip(req.storage_offsets, req.lengths))
        name = req.storage_index.fqn
        fill(planner, req, f.get_slice(name)[block] if block else f.get_tensor(name))

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        entries: dict[str, Any] = {}
        places: dict[MetadataIndex, _HFStorageInfo] = {}
        for name in self.fs.ls(self.path):
            if not name.endswith(SUFFIX):
                continue
            with safe_open(name, framework="pt") as file:
                about = file.metadata() or {}
                parts = json.loads(about[CUSTOM_METADATA_KEY]) if about.get(CUSTOM_METADATA_KEY) else None
                for key in file.keys():  # noqa: SIM118 - it is no dictionary
                    piece = file.get_slice(key)
                    shape, kind = piece.get_shape(), _get_dtype(piece.get_dtype())
                    start = parts[key][SAVED_OFFSETS_KEY] if parts is not None else [0] * len(shape)
                    self._add_entry(entries, key, kind, start, shape)
                    places[MetadataIndex(key, start)] = _HFStorageInfo(name, Size(shape), kind)
        return Metadata(entries, storage_data=places, storage_meta=StorageMeta(load_id=self.load_id))

    @staticmethod
    def _add_entry(entries: dict[str, Any], key: str, kind: Any, start: list[int], shape: list[int]) -> None:
        entry = entries.setdefault(key, TensorStorageMetadata(TensorProperties(dtype=kind), Size([0] * len(shape)), []))
        entry.chunks.append(ChunkStorageMetadata(Size(start), Size(shape)))
        entry.size = Size(max(known, a + n) for known, a, n in zip(entry.size, start, shape, strict=True))
