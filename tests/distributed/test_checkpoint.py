"""Checkpoints of several ranks: saved and loaded in other parts, read by PyTorch, whole after a kill, and harmless to open."""

from __future__ import annotations

import io
import os
import pickle
import tempfile
import warnings
from pathlib import Path

import pytest

import flambeau
import flambeau.distributed as dist
import flambeau.distributed.checkpoint as dcp
from flambeau.distributed.checkpoint import format_utils
from flambeau.distributed.checkpoint.default_planner import create_default_local_save_plan
from flambeau.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from flambeau.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from flambeau.distributed.device_mesh import init_device_mesh
from flambeau.distributed.tensor import Replicate, Shard, distribute_tensor

from . import checkpoint_kills, worlds

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore:Detected an existing")
FULL = flambeau.arange(35.0).reshape(5, 7)


def spread(full, mesh):
    return {
        "rows": distribute_tensor(full.clone(), mesh, [Shard(0)]),
        "nested": {"columns": distribute_tensor(full.clone(), mesh, [Shard(1)])},
        "all": distribute_tensor(full.clone(), mesh, [Replicate()]),
        "number": int(full[4, 6]),
    }


def parts_are_saved_and_loaded(rank, size):
    warnings.simplefilter("ignore")
    mesh = init_device_mesh("cpu", (size,))
    place = [tempfile.mkdtemp()]
    dist.broadcast_object_list(place)
    dcp.save(spread(FULL, mesh), checkpoint_id=place[0])
    state = spread(flambeau.zeros(5, 7), mesh)
    dcp.load(state, checkpoint_id=place[0])
    for tensor in (state["rows"], state["nested"]["columns"], state["all"]):
        assert tensor.full_tensor().equal(FULL)
    assert state["number"] == 34
    whole = {"rows": flambeau.zeros(5, 7), "nested": {"columns": flambeau.zeros(5, 7)}}
    dcp.load(whole, checkpoint_id=place[0], no_dist=True)  # one process, which knows nothing of the others
    assert whole["rows"].equal(FULL) and whole["nested"]["columns"].equal(FULL)
    dcp.async_save(spread(FULL, mesh), checkpoint_id=f"{place[0]}/later").result()
    again = {"rows": distribute_tensor(flambeau.zeros(5, 7), mesh, [Shard(1)])}
    dcp.load(again, checkpoint_id=f"{place[0]}/later")
    assert again["rows"].full_tensor().equal(FULL)


def an_error_on_one_rank_is_known_to_all(rank, size):
    with pytest.raises(dcp.CheckpointException, match="Missing key in checkpoint state_dict: absent"):
        place = [tempfile.mkdtemp()]
        dist.broadcast_object_list(place)
        dcp.save({"present": flambeau.ones(1)}, checkpoint_id=place[0])
        dcp.load({"present": flambeau.ones(1), **({"absent": 1} if rank else {})}, checkpoint_id=place[0])


def rank_0_sends_a_whole_state(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    model = flambeau.nn.Linear(3, 4)
    model.weight = flambeau.nn.Parameter(distribute_tensor(flambeau.zeros(4, 3), mesh, [Shard(0)]))
    model.bias = flambeau.nn.Parameter(distribute_tensor(flambeau.zeros(4), mesh, [Replicate()]))
    optimizer = flambeau.optim.Adam(model.parameters())
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    state, optimizer_state = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))
    assert state["weight"].shape == (4, 3) and optimizer_state["state"]["weight"]["exp_avg"].shape == (4, 3)
    state = {name: value + 1 for name, value in state.items()} if rank == 0 else {}
    optimizer_state["state"]["weight"]["exp_avg"] += 2
    given = optimizer_state if rank == 0 else {}
    set_state_dict(model, optimizer, model_state_dict=state, optim_state_dict=given, options=options)
    assert model.weight.full_tensor().eq(1).all() and model.bias.full_tensor().eq(1).all()
    assert optimizer.state[model.weight]["exp_avg"].full_tensor().eq(2).all()


CHECKS = [parts_are_saved_and_loaded, an_error_on_one_rank_is_known_to_all, rank_0_sends_a_whole_state]


test_on_two_ranks = worlds.test_of(CHECKS, 2)


# -- one process ----------------------------------------------------------------------------------------------------------------


def training_state():
    model = flambeau.nn.Linear(3, 4)
    optimizer = flambeau.optim.Adam(model.parameters())
    model(flambeau.ones(2, 3)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "list": [flambeau.ones(2), 4], "epoch": 3}


def test_pytorch_reads_ours_and_we_read_its(tmp_path):
    torch = pytest.importorskip("torch", reason="the other reader and writer is PyTorch's")
    import torch.distributed.checkpoint as theirs

    state = training_state()
    dcp.save(state, checkpoint_id=tmp_path / "ours")
    model = torch.nn.Linear(3, 4)
    loaded = {"model": model.state_dict(), "list": [torch.zeros(2), 0], "epoch": 0}
    theirs.load(loaded, checkpoint_id=str(tmp_path / "ours"))
    assert model.weight.tolist() == state["model"]["weight"].tolist()
    assert loaded["epoch"] == 3 and loaded["list"][1] == 4
    theirs.save({"model": model.state_dict(), "epoch": 5}, checkpoint_id=str(tmp_path / "theirs"))
    back = {"model": flambeau.nn.Linear(3, 4).state_dict(), "epoch": 0}
    dcp.load(back, checkpoint_id=tmp_path / "theirs")
    assert back["epoch"] == 5 and back["model"]["weight"].tolist() == model.weight.tolist()


def test_bytes_like_a_file_are_data(tmp_path):
    dcp.save({"x": io.BytesIO(b"some bytes")}, checkpoint_id=tmp_path)
    state = {"x": io.BytesIO()}
    dcp.load(state, checkpoint_id=tmp_path)
    assert state["x"].getvalue() == b"some bytes"


def test_files_of_torch_save_and_back(tmp_path):
    flambeau.save(training_state(), tmp_path / "a.pt")
    format_utils.torch_save_to_dcp(tmp_path / "a.pt", tmp_path / "folder")
    format_utils.dcp_to_torch_save(tmp_path / "folder", tmp_path / "b.pt")
    a, b = flambeau.load(tmp_path / "a.pt"), flambeau.load(tmp_path / "b.pt")
    assert a["model"]["weight"].equal(b["model"]["weight"]) and a["epoch"] == b["epoch"]
    assert sorted(p.name for p in (tmp_path / "folder").iterdir()) == [".metadata", "__0_0.distcp"]


def test_safetensors(tmp_path):
    pytest.importorskip("safetensors", reason="safetensors files need the package 'safetensors'")
    state = {"a": FULL.clone(), "b": flambeau.ones(3)}
    dcp.save(dict(state), storage_writer=dcp.HuggingFaceStorageWriter(str(tmp_path), {"a": 1, "b": 2}))
    assert {p.name for p in tmp_path.iterdir()} == {
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    }
    loaded = {"a": flambeau.zeros(5, 7), "b": flambeau.zeros(3)}
    dcp.load(loaded, storage_reader=dcp.HuggingFaceStorageReader(str(tmp_path)))
    assert loaded["a"].equal(FULL)


def test_a_failed_save_leaves_the_last_checkpoint(tmp_path):
    class Failing(dcp.FileSystemWriter):
        def finish(self, metadata, results):
            raise OSError("the disk is full")

    dcp.save({"x": flambeau.ones(3)}, checkpoint_id=tmp_path)
    with pytest.raises(dcp.CheckpointException, match="the disk is full"):
        dcp.save({"x": flambeau.zeros(3)}, storage_writer=Failing(tmp_path))
    state = {"x": flambeau.zeros(3)}
    dcp.load(state, checkpoint_id=tmp_path)
    assert state["x"].eq(1).all()
    dcp.save({"x": flambeau.full((3,), 2.0)}, checkpoint_id=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # what the others have left is gone


def test_a_killed_save_leaves_a_whole_checkpoint():
    assert checkpoint_kills.run(rounds=4)["rounds"] == 4


class _Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_metadata_runs_no_code(tmp_path):
    dcp.save({"x": flambeau.ones(3)}, checkpoint_id=tmp_path)
    bomb = tmp_path / "exploded"
    (tmp_path / ".metadata").write_bytes(pickle.dumps(_Bomb(str(bomb))))
    with pytest.raises(dcp.CheckpointException, match="posix.mkdir"):
        dcp.load({"x": flambeau.zeros(3)}, checkpoint_id=tmp_path)
    assert not bomb.exists()


def test_metadata_names_no_file_outside(tmp_path):
    dcp.save({"x": flambeau.ones(3)}, checkpoint_id=tmp_path / "c")
    reader = dcp.FileSystemReader(tmp_path / "c")
    with pytest.raises(ValueError, match="outside of its folder"):
        reader._check_path("../../etc/passwd")
    data = (tmp_path / "c" / ".metadata").read_bytes()
    (tmp_path / "c" / ".metadata").write_bytes(data.replace(b"__0_0.distcp", b"../../passwd"))
    with pytest.raises(dcp.CheckpointException, match="outside of its folder"):
        dcp.load({"x": flambeau.zeros(3)}, checkpoint_id=tmp_path / "c")


def test_a_plan_names_every_part_once():
    plan = create_default_local_save_plan({"a": flambeau.ones(2), "b": 3}, is_coordinator=True)
    assert [item.index.fqn for item in plan.items] == ["a", "b"]
    planner = dcp.DefaultSavePlanner()
    plans, metadata = planner.create_global_plan([plan_with_paths(plan), plan_with_paths(plan)])
    assert [len(p.items) for p in plans] == [1, 1] and set(metadata.state_dict_metadata) == {"a", "b"}


def plan_with_paths(plan):
    return dcp.SavePlan(plan.items, planner_data={item.index.fqn: (item.index.fqn,) for item in plan.items})


def test_the_command_converts(tmp_path, monkeypatch, capsys):
    flambeau.save({"x": flambeau.ones(2)}, tmp_path / "a.pt")
    monkeypatch.setattr("sys.argv", ["format_utils", "torch_to_dcp", str(tmp_path / "a.pt"), str(tmp_path / "out")])
    format_utils.main()
    assert Path(tmp_path, "out", ".metadata").exists() and "Converting" in capsys.readouterr().out


def test_an_optimizers_state_by_the_names_of_parameters(tmp_path):
    model = flambeau.nn.Linear(3, 4)
    optimizer = flambeau.optim.Adam(model.parameters())
    model(flambeau.ones(2, 3)).sum().backward()
    optimizer.step()
    state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": state, "optim": optimizer_state}, checkpoint_id=tmp_path)
    loaded = load_sharded_optimizer_state_dict(state, "optim", dcp.FileSystemReader(tmp_path))["optim"]
    assert loaded["state"]["weight"]["exp_avg"].equal(optimizer_state["state"]["weight"]["exp_avg"])
    assert loaded["param_groups"][0]["lr"] == 1e-3
