"""ShardedTensor, in two processes and beside PyTorch's; checkpoints in places that are no folders, and of quantized models."""

from __future__ import annotations

import json
import tempfile

import pytest

import flambeau
import flambeau.distributed as dist
import flambeau.distributed.checkpoint as dcp
from flambeau.distributed._shard import _shard_tensor, sharded_tensor
from flambeau.distributed._shard.sharding_spec import ChunkShardingSpec, EnumerableShardingSpec, ShardMetadata
from flambeau.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader

from . import worlds

FULL = flambeau.arange(35.0).reshape(5, 7)
ROWS, COLUMNS = (ChunkShardingSpec(dim, ["rank:0/cpu", "rank:1/cpu"]) for dim in (0, 1))


def of_rank_0(spec):
    return _shard_tensor(FULL.clone() if dist.get_rank() == 0 else flambeau.zeros(5, 7), spec)


def parts_are_made_and_gathered(rank, size):
    spread = of_rank_0(ROWS)
    assert spread.local_tensor().equal(FULL[:3] if rank == 0 else FULL[3:]) and spread.shape == (5, 7)
    out = flambeau.empty(5, 7) if rank == 0 else None
    spread.gather(0, out)
    assert out is None or out.equal(FULL)
    assert spread.reshard(COLUMNS).local_tensor().equal(FULL[:, :4] if rank == 0 else FULL[:, 4:])
    again = sharded_tensor.init_from_local_shards(spread.local_shards(), 5, 7)
    assert again.sharding_spec() == COLUMNS and flambeau.equal(again, spread)
    with pytest.raises(RuntimeError, match="not supported for ShardedTensor"):
        spread + 1
    with pytest.raises(ValueError, match="cover the entire tensor"):
        sharded_tensor.init_from_local_shards(spread.local_shards(), 6, 7)


def parts_are_saved_and_loaded_in_others(rank, size):
    place = [tempfile.mkdtemp()]
    dist.broadcast_object_list(place)
    dcp.save({"x": of_rank_0(ROWS)}, checkpoint_id=place[0])
    uneven = EnumerableShardingSpec(
        [ShardMetadata([0, 0], [5, 2], "rank:1/cpu"), ShardMetadata([0, 2], [5, 5], "rank:0/cpu")]
    )
    for spec in (COLUMNS, uneven):
        state = {"x": sharded_tensor.zeros(spec, 5, 7)}
        dcp.load(state, checkpoint_id=place[0])
        assert state["x"]._gather_whole().equal(FULL)
    state = {"x": flambeau.zeros(5, 7)}
    dcp.load(state, checkpoint_id=place[0])
    assert state["x"].equal(FULL)


CHECKS = [parts_are_made_and_gathered, parts_are_saved_and_loaded_in_others]


test_on_two_ranks = worlds.test_of(CHECKS, 2)


@pytest.mark.filterwarnings("ignore")
def test_files_with_one_of_both_libraries(tmp_path):
    torch = pytest.importorskip("torch", reason="the other reader and writer is PyTorch's")
    from torch.distributed._shard import sharded_tensor as theirs
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec as TheirSpec

    for library, name in ((flambeau, "ours"), (torch, "theirs")):
        library.distributed.init_process_group(
            "gloo", init_method=f"file://{tmp_path}/{name}.store", rank=0, world_size=1
        )
    try:
        ours = sharded_tensor.full(ChunkShardingSpec(0, ["rank:0/cpu"]), (4, 3), 2.0)
        flambeau.save({"x": ours}, tmp_path / "ours")
        read = torch.load(tmp_path / "ours", weights_only=False)["x"]
        assert type(read) is theirs.ShardedTensor and read.local_tensor().tolist() == ours.local_tensor().tolist()
        assert str(read.metadata()) == str(ours.metadata())
        torch.save({"x": theirs.ones(TheirSpec(0, ["rank:0/cpu"]), 4, 3)}, tmp_path / "theirs")
        back = flambeau.load(tmp_path / "theirs", weights_only=False)["x"]
        assert type(back) is sharded_tensor.ShardedTensor and back.local_tensor().eq(1).all()
        with pytest.raises(Exception, match="Weights only load failed"):  # it is more than data
            flambeau.load(tmp_path / "theirs")
    finally:
        for library in (flambeau, torch):
            library.distributed.destroy_process_group()


def test_older_checkpoints_name_other_classes(tmp_path, monkeypatch):
    """Before PyTorch 2.3 the metadata had the properties of ShardedTensors."""
    pytest.importorskip("torch", reason="PyTorch writes the checkpoint")
    import torch
    import torch.distributed.checkpoint as theirs
    from torch.distributed._shard.sharded_tensor.metadata import TensorProperties
    from torch.distributed.checkpoint import planner_helpers

    class Older(TensorProperties):
        @staticmethod
        def create_from_tensor(tensor):
            return TensorProperties(tensor.dtype, tensor.layout, tensor.requires_grad)

    monkeypatch.setattr(planner_helpers, "TensorProperties", Older)
    theirs.save({"x": torch.ones(3)}, checkpoint_id=str(tmp_path), no_dist=True)
    assert b"_shard.sharded_tensor.metadata" in (tmp_path / ".metadata").read_bytes()
    state = {"x": flambeau.zeros(3)}
    dcp.load(state, checkpoint_id=tmp_path)
    assert state["x"].eq(1).all()


# -- other places, other numbers ------------------------------------------------------------------------------------------------


def test_checkpoints_where_fsspec_reaches():
    pytest.importorskip("fsspec", reason="needs the package fsspec")
    state = {"x": FULL.clone(), "n": 3}
    dcp.save(state, checkpoint_id="memory://checkpoint")
    loaded = {"x": flambeau.zeros(5, 7), "n": 0}
    dcp.load(loaded, checkpoint_id="memory://checkpoint")
    assert loaded["x"].equal(FULL) and loaded["n"] == 3
    torch = pytest.importorskip("torch", reason="the other reader is PyTorch's")
    import torch.distributed.checkpoint as theirs

    other = {"x": torch.zeros(5, 7), "n": 0}
    theirs.load(other, checkpoint_id="memory://checkpoint")
    assert other["x"].tolist() == FULL.tolist() and other["n"] == 3


@pytest.mark.filterwarnings("ignore")
def test_quantized_safetensors_are_read_as_in_pytorch(tmp_path):
    pytest.importorskip("safetensors", reason="safetensors files need the package 'safetensors'")
    torch = pytest.importorskip("torch", reason="compares with the real PyTorch")
    import torch.distributed.checkpoint as theirs
    from safetensors.torch import save_file
    from torch.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader as TheirReader

    torch.manual_seed(0)
    tensors = {
        "a.weight": torch.randn(6, 10).to(torch.float8_e4m3fn),
        "a.weight_scale_inv": torch.rand(2, 3),
        "b_blocks": torch.randint(0, 256, (2, 3, 4, 8), dtype=torch.uint8),
        "b_scales": torch.randint(120, 132, (2, 3, 4), dtype=torch.uint8),
        "c": torch.randn(3),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    index = {"weight_map": dict.fromkeys(tensors, "model.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    shapes = {"a.weight": (6, 10), "b_blocks": (2, 3, 64), "c": (3,)}
    ours = {name: flambeau.zeros(shape) for name, shape in shapes.items()}
    dcp.load(ours, storage_reader=QuantizedHuggingFaceStorageReader(str(tmp_path), block_size=4), no_dist=True)
    expected = {name: torch.zeros(shape) for name, shape in shapes.items()}
    theirs.load(expected, storage_reader=TheirReader(str(tmp_path), block_size=4), no_dist=True)
    for name in ("a.weight", "c"):
        assert ours[name].tolist() == expected[name].tolist(), name
    assert (
        ours["b_blocks"][..., :4].tolist() == expected["b_blocks"][..., :4].tolist()
    )  # PyTorch stops at the number of groups
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    packed = tensors["b_blocks"].long()
    numbers = values[torch.stack([packed % 16, packed // 16], -1)].flatten(-2)
    whole = (numbers * 2.0 ** (tensors["b_scales"].float() - 127).unsqueeze(-1)).flatten(-2)
    assert ours["b_blocks"].tolist() == whole.tolist()


def test_quantized_safetensors_are_numbers_times_the_scales_of_their_blocks(tmp_path):
    flambeau.manual_seed(0)
    tensors = {
        "a.weight": flambeau.randn(6, 10).to(flambeau.float8_e4m3fn),
        "a.weight_scale_inv": flambeau.rand(2, 3),
        "b_blocks": flambeau.randint(0, 256, (2, 3, 4, 8), dtype=flambeau.uint8),
        "b_scales": flambeau.randint(120, 132, (2, 3, 4), dtype=flambeau.uint8),
        "c": flambeau.randn(3),
    }
    flambeau.safetensors.save_file(tensors, tmp_path / "model.safetensors")
    index = {"weight_map": dict.fromkeys(tensors, "model.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    found = {"a.weight": flambeau.zeros(6, 10), "b_blocks": flambeau.zeros(2, 3, 64), "c": flambeau.zeros(3)}
    dcp.load(found, storage_reader=QuantizedHuggingFaceStorageReader(str(tmp_path), block_size=4), no_dist=True)
    scales = tensors["a.weight_scale_inv"].repeat_interleave(4, 0)[:6].repeat_interleave(4, 1)[:, :10]
    assert flambeau.equal(found["a.weight"], tensors["a.weight"].float() * scales)
    assert flambeau.equal(found["c"], tensors["c"])
    values = flambeau.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    packed = tensors["b_blocks"].long()
    numbers = values[flambeau.stack([packed % 16, packed // 16], -1)].flatten(-2)
    whole = numbers * 2.0 ** (tensors["b_scales"].float() - 127).unsqueeze(-1)
    assert flambeau.equal(found["b_blocks"], whole.flatten(-2))
