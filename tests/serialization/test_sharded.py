"""Checkpoints in several files."""

from __future__ import annotations

import json
import os
import pickle

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.serialization import load_sharded, load_sharded_checkpoint, save_sharded

pytest.importorskip("safetensors", reason="reads and writes safetensors files: pip install safetensors")

BOTH = pytest.mark.parametrize("safe", [True, False])


def network():
    return nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.Linear(20, 5))


def same(first, second):
    return sorted(first) == sorted(second) and all(torch.equal(first[k], second[k]) for k in first)


@BOTH
def test_several_shards(safe, tmp_path):
    model, other = network(), network()
    names = save_sharded(model.state_dict(), tmp_path, max_shard_size=600, safe_serialization=safe)
    stem, end = ("model", "safetensors") if safe else ("pytorch_model", "bin")
    assert names == [f"{stem}-0000{i}-of-00003.{end}" for i in (1, 2, 3)] + [f"{stem}.{end}.index.json"]
    assert sorted(os.listdir(tmp_path)) == sorted(names)
    index = json.loads((tmp_path / names[-1]).read_text())
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in model.state_dict().values())
    assert set(index["weight_map"]) == set(model.state_dict())
    assert same(load_sharded(tmp_path), model.state_dict())
    assert same(load_sharded(tmp_path / names[-1]), model.state_dict())
    assert load_sharded_checkpoint(other, tmp_path) == ([], [])
    assert same(other.state_dict(), model.state_dict())


@BOTH
def test_one_file_needs_no_index(safe, tmp_path):
    model, other = network(), network()
    names = save_sharded(model.state_dict(), tmp_path, safe_serialization=safe)
    assert names == ["model.safetensors" if safe else "pytorch_model.bin"]
    assert load_sharded_checkpoint(other, tmp_path) == ([], [])
    assert same(other.state_dict(), load_sharded(tmp_path / names[0]))


@BOTH
def test_a_smaller_checkpoint_leaves_no_old_shards(safe, tmp_path):
    (tmp_path / "notes.bin").write_text("mine")
    save_sharded(network().state_dict(), tmp_path, 600, safe)
    model = network()
    names = save_sharded(model.state_dict(), tmp_path, "1MB", safe)
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "notes.bin"])
    assert same(load_sharded(tmp_path), model.state_dict())


@BOTH
def test_pytorch_reads_each_shard(safe, tmp_path):
    real = pytest.importorskip("torch", reason="PyTorch is the oracle of this test")
    theirs = pytest.importorskip("safetensors.torch", reason="PyTorch is the oracle of this test")
    state = network().state_dict()
    names = save_sharded(state, tmp_path, 600, safe)
    found = {}
    for name in names[:-1]:
        found |= theirs.load_file(tmp_path / name) if safe else real.load(tmp_path / name)
    twin = real.nn.Sequential(real.nn.Linear(10, 20), real.nn.BatchNorm1d(20), real.nn.Linear(20, 5))
    twin.load_state_dict(found)
    assert all(twin.state_dict()[k].tolist() == state[k].tolist() for k in state)


@BOTH
def test_tied_tensors(safe, tmp_path):
    shared = torch.arange(100.0)
    state = {"a": shared, "b": torch.ones(100), "c": shared, "d": torch.zeros(100)}
    save_sharded(state, tmp_path, 500, safe)
    found = load_sharded(tmp_path)
    assert same(found, state)
    assert found["a"].data_ptr() == found["c"].data_ptr()


def test_missing_shards_and_tensors(tmp_path):
    save_sharded(network().state_dict(), tmp_path, 600)
    second = tmp_path / "model-00002-of-00003.safetensors"
    kept = second.read_bytes()
    second.unlink()
    with pytest.raises(FileNotFoundError, match="model-00002-of-00003.safetensors"):
        load_sharded(tmp_path)
    torch.safetensors.save_file({"other": torch.ones(1)}, second)
    with pytest.raises(RuntimeError, match="lacks tensors"):
        load_sharded(tmp_path)
    second.write_bytes(kept[:100])
    with pytest.raises(torch.safetensors.SafetensorError):
        load_sharded(tmp_path)
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        load_sharded(tmp_path / "absent")
    (tmp_path / "bare").mkdir()
    with pytest.raises(FileNotFoundError, match="has none of"):
        load_sharded(tmp_path / "bare")


def test_names_that_do_not_match_the_module(tmp_path):
    save_sharded(network().state_dict(), tmp_path, 600)
    small = nn.Sequential(nn.Linear(10, 20), nn.Linear(20, 5))
    before = {k: v.clone() for k, v in small.state_dict().items()}
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: .*"1.running_mean"'):
        load_sharded_checkpoint(small, tmp_path)
    assert same(before, small.state_dict())
    large = nn.Sequential(*network(), nn.Linear(5, 5))
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "3.bias", "3.weight"'):
        load_sharded_checkpoint(large, tmp_path)
    missing, unexpected = load_sharded_checkpoint(large, tmp_path, strict=False)
    assert missing == ["3.bias", "3.weight"] and unexpected == []


@pytest.mark.parametrize(
    "index",
    [
        b"", b"[]", b"{}", b'{"weight_map": 3}', b'{"weight_map": {}}', b'{"weight_map": {"a": 3}}', b"[" * 100000,
        *[json.dumps({"weight_map": {"a": place}}).encode() for place in ("../x.bin", "/etc/passwd", "..", "", "a/b.bin", "..\\x", "a\0b")],
    ],
)  # fmt: skip
def test_hostile_index(index, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_bytes(index)
    with pytest.raises(RuntimeError, match="index|plain file name"):
        load_sharded(tmp_path)


def test_sizes_of_shards(tmp_path):
    state = {str(i): torch.zeros(250, dtype=torch.float32) for i in range(4)}  # 1000 bytes each
    for size, count in [("2KB", 2), ("2KiB", 2), (1000, 4), ("1.5kb", 4), (10, 4), ("1GB", 1), ("4000", 1)]:
        assert len(save_sharded(state, tmp_path, size)) == count + (count > 1)
    for size in ("5 parsecs", "", "-3", 0, -1):
        with pytest.raises(ValueError, match="max_shard_size"):
            save_sharded(state, tmp_path, size)


def test_a_failure_leaves_the_old_checkpoint(tmp_path):
    old = {"a": torch.ones(300), "b": torch.zeros(300)}
    save_sharded(old, tmp_path, 1200, safe_serialization=False)
    files = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    state = {"a": torch.zeros(300), "b": torch.ones(300)}
    state["b"].note = lambda: None  # cannot be pickled
    with pytest.raises(pickle.PicklingError):
        save_sharded(state, tmp_path, 1200, safe_serialization=False)
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == files
