"""Shards of tensors in safetensors files become whole tensors, by one process or by each rank its share."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

import flambeau
import flambeau.distributed as dist
from flambeau.distributed.checkpoint import _consolidate_hf_safetensors as hf
from flambeau.testing._internal.distributed.fake_pg import FakeStore

WEIGHT = np.arange(24, dtype=np.float32).reshape(6, 4)
BIAS = np.arange(5, dtype=np.int64)


def write(path: Path, parts: dict[str, tuple[np.ndarray, list[int]]]) -> None:
    """A file of shards, each with its place in the whole."""
    kinds = {"float32": "F32", "int64": "I64"}
    offsets = {name: {"saved_offsets": start} for name, (_, start) in parts.items()}
    header: dict = {"__metadata__": {"DCP_SHARDING_INFO": json.dumps(offsets), "DCP_VERSION": "1.0"}}
    data = b""
    for name, (array, _) in parts.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": kinds[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "shards"
    folder.mkdir()
    write(folder / "shard-00001-model-00001-of-00002.safetensors", {"w": (WEIGHT[:4, :1], [0, 0]), "b": (BIAS, [0])})
    write(folder / "shard-00002-model-00001-of-00002.safetensors", {"w": (WEIGHT[:4, 1:], [0, 1])})
    write(
        folder / "shard-00003-model-00002-of-00002.safetensors",
        {"w": (WEIGHT[4:], [4, 0]), "none": (WEIGHT[:0], [0, 0])},
    )
    return folder


def read(folder: Path) -> dict[str, np.ndarray]:
    """All tensors of the files that the index names."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == WEIGHT.nbytes + BIAS.nbytes
    found = {}
    for name, file in index["weight_map"].items():
        found[name] = flambeau.safetensors.load_file(folder / file)[name].numpy()
    return found


def check(found: dict[str, np.ndarray]) -> None:
    assert sorted(found) == ["b", "none", "w"]
    np.testing.assert_array_equal(found["w"], WEIGHT)
    np.testing.assert_array_equal(found["b"], BIAS)
    assert found["none"].shape == (0, 4)


@pytest.mark.parametrize("threads", [1, 3])
def test_one_process(shards: Path, tmp_path: Path, threads: int) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    hf.consolidate_safetensors_files(str(shards), str(whole), num_threads=threads)
    check(read(whole))
    assert [file.name for file in sorted(whole.glob("*.safetensors"))] == ["model-00001-of-00001.safetensors"]
    hf.consolidate_safetensors_files(str(shards), str(whole), {"w": 2, "b": 1, "none": 1}, threads)
    check(read(whole))
    assert "w" in flambeau.safetensors.load_file(whole / "model-00002-of-00002.safetensors")


def test_each_rank_writes_its_files_and_the_first_the_index(shards: Path, tmp_path: Path) -> None:
    whole, mapping = tmp_path / "whole", {"w": 1, "b": 2, "none": 3}
    written = []
    for rank in (1, 0):
        dist.init_process_group("fake", rank=rank, world_size=2, store=FakeStore())
        try:
            hf.consolidate_safetensors_files_on_every_rank(str(shards), str(whole), mapping)
        finally:
            dist.destroy_process_group()
        written.append(sorted(file.name for file in whole.iterdir()))
    files = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    assert written == [[files[1]], [*files, "model.safetensors.index.json"]]
    check(read(whole))
