"""Consolidation of tensors whose shards ranks have written as safetensors."""

from __future__ import annotations

import json
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import collectives, groups
from ._hf_utils import (
    DATA_OFFSETS_KEY,
    DEFAULT_EXTRA_METADATA_KEY,
    DTYPE_KEY,
    FORMAT_KEY,
    FORMAT_VALUE,
    SAVED_OFFSETS_KEY,
    SHAPE_KEY,
    SUFFIX,
    _gen_file_name,
    _get_dcp_custom_metadata,
    _get_dtype,
    _get_safetensors_file_metadata,
    _metadata_fn,
)


@dataclass
class _Part:
    """A shard of a tensor: its file and byte offset, and its offsets in the whole."""

    file: Path
    position: int
    shape: list[int]
    start: list[int]


@dataclass
class _Whole:
    """A tensor that is assembled from its shards."""

    code: str
    shape: list[int]
    parts: list[_Part] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * _get_dtype(self.code).itemsize


def _find_tensors(folder: str) -> dict[str, _Whole]:
    """Return all tensors that have shards in a folder."""
    found: dict[str, _Whole] = {}
    for file in sorted(Path(folder).glob(f"*{SUFFIX}")):
        with file.open("rb") as stream:
            header, begin = _get_safetensors_file_metadata(stream)
        about = _get_dcp_custom_metadata(header)
        for name, entry in header.items():
            if name == DEFAULT_EXTRA_METADATA_KEY:
                continue
            shape = entry[SHAPE_KEY]
            start = about[name][SAVED_OFFSETS_KEY] if about is not None else [0] * len(shape)
            whole = found.setdefault(name, _Whole(entry[DTYPE_KEY], [0] * len(shape)))
            whole.shape = [max(known, a + n) for known, a, n in zip(whole.shape, start, shape, strict=True)]
            whole.parts.append(_Part(file, begin + entry[DATA_OFFSETS_KEY][0], shape, start))
    return found


def _write(path: Path, tensors: dict[str, _Whole]) -> None:
    """Write whole tensors to a temporary file, and rename it."""
    header: dict[str, Any] = {DEFAULT_EXTRA_METADATA_KEY: {FORMAT_KEY: FORMAT_VALUE}}
    position = 0
    for name, whole in tensors.items():
        header[name] = {
            DTYPE_KEY: whole.code,
            SHAPE_KEY: whole.shape,
            DATA_OFFSETS_KEY: [position, position + whole.bytes],
        }
        position += whole.bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    aside = path.with_name(f"{path.name}.tmp")
    with aside.open("w+b") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        begin = stream.tell()
        stream.truncate(begin + position)
        for name, whole in tensors.items():
            if whole.bytes:
                _write_parts(aside, begin + header[name][DATA_OFFSETS_KEY][0], whole)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(aside, path)


def _write_parts(file: Path, position: int, whole: _Whole) -> None:
    element = np.dtype((np.void, _get_dtype(whole.code).itemsize))
    target = np.memmap(file, element, "r+", position, tuple(whole.shape) or (1,))
    for part in whole.parts:
        source = (
            np.memmap(part.file, element, "r", part.position, tuple(part.shape) or (1,)) if all(part.shape) else None
        )
        if source is not None:
            block = tuple(slice(a, a + n) for a, n in zip(part.start, part.shape, strict=True))
            target[block or slice(None)] = source
    target.flush()


def _consolidate(input_dir: str, output_dir: str, numbers: dict[int, list[str]], threads: int) -> dict[str, str]:
    """Write the files with these numbers; return the file of each tensor."""
    found = _find_tensors(input_dir)
    last = max(numbers, default=1)
    Path(output_dir).mkdir(parents=True, exist_ok=True)
    names = {number: _gen_file_name(number, last) for number in numbers}
    with ThreadPoolExecutor(max(1, threads)) as pool:
        list(
            pool.map(
                lambda number: _write(Path(output_dir, names[number]), {n: found[n] for n in numbers[number]}), numbers
            )
        )
    return {tensor: names[number] for number, tensors in numbers.items() for tensor in tensors}


def _by_number(mapping: dict[str, int]) -> dict[int, list[str]]:
    numbers: dict[int, list[str]] = {}
    for name, number in mapping.items():
        numbers.setdefault(number, []).append(name)
    return numbers


def _write_index(input_dir: str, output_dir: str, weight_map: dict[str, str]) -> None:
    total = sum(whole.bytes for whole in _find_tensors(input_dir).values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    Path(output_dir, _metadata_fn).write_text(json.dumps(index, indent=2))


def consolidate_safetensors_files(
    input_dir: str, output_dir: str, fqn_to_index_mapping: dict[str, int] | None = None, num_threads: int = 1
) -> None:
    """Write whole tensors, joined from the shards in `input_dir`, to files in `output_dir`: those of `fqn_to_index_mapping`, or one if
    it is None."""
    mapping = fqn_to_index_mapping or dict.fromkeys(_find_tensors(input_dir), 1)
    _write_index(input_dir, output_dir, _consolidate(input_dir, output_dir, _by_number(mapping), num_threads))


def consolidate_safetensors_files_on_every_rank(
    input_dir: str,
    output_dir: str,
    fqn_to_index_mapping: dict[str, int],
    num_threads: int = 1,
    process_group: Any = None,
) -> None:
    """Consolidate safetensors files; every rank writes some of them."""
    rank, size = groups.get_rank(process_group), groups.get_world_size(process_group)
    numbers = _by_number(fqn_to_index_mapping)
    found = _find_tensors(input_dir)
    last = max(numbers, default=1)
    Path(output_dir).mkdir(parents=True, exist_ok=True)
    own = [number for position, number in enumerate(sorted(numbers)) if position % size == rank]
    with ThreadPoolExecutor(max(1, num_threads)) as pool:
        paths = {number: Path(output_dir, _gen_file_name(number, last)) for number in own}
        list(pool.map(lambda number: _write(paths[number], {n: found[n] for n in numbers[number]}), own))
    if groups.is_initialized():
        collectives.barrier(group=process_group)
    if rank == 0:
        _write_index(
            input_dir, output_dir, {n: _gen_file_name(number, last) for n, number in fqn_to_index_mapping.items()}
        )
