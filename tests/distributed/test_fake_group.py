"""The backend `fake`: one rank of a world whose others do not exist, beside PyTorch's."""

from __future__ import annotations

import importlib

import pytest
from answers import told

import flambeau
from flambeau.testing._internal.distributed import fake_pg


def one_rank(library, store):
    """What a rank has after each collective."""
    dist = library.distributed
    dist.init_process_group("fake", rank=1, world_size=4, store=store)
    x = library.arange(4.0)
    seen = {"who": (dist.get_rank(), dist.get_world_size(), dist.get_backend())}
    try:
        for name in ("sum", "avg"):
            dist.all_reduce(x, op=getattr(dist.ReduceOp, name.upper()))
            seen[name] = x.tolist()
        dist.broadcast(x, 0)
        dist.barrier()
        parts = [library.zeros(4) for _ in range(4)]
        dist.all_gather(parts, x)
        seen["all_gather"] = [p.tolist() for p in parts]
        part = library.zeros(1)
        dist.reduce_scatter(part, list(x.chunk(4)))
        seen["reduce_scatter"] = part.tolist()
        swapped = library.full((4,), 9.0)
        dist.all_to_all_single(swapped, x)
        seen["all_to_all"] = swapped.tolist()
        waiting = library.full((4,), 9.0)
        dist.send(x, 0)
        dist.recv(waiting, src=0)
        seen["recv"] = waiting.tolist()
        objects = [None] * 4
        dist.all_gather_object(objects, {"rank": 1})
        seen["objects"] = objects
        seen["groups"] = dist.get_rank(dist.new_group([0, 1])), dist.new_group([2, 3])
        mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        seen["mesh"] = tuple(mesh.get_coordinate()), mesh["a"].size()
    finally:
        dist.destroy_process_group()
    return seen


@pytest.mark.filterwarnings("ignore")
def test_a_rank_of_a_fake_world_sees_what_it_sees_in_pytorch():
    def theirs():
        torch = importlib.import_module("torch")
        importlib.import_module("torch.distributed.device_mesh")  # an attribute of PyTorch's once it is imported
        store = importlib.import_module("torch.testing._internal.distributed.fake_pg").FakeStore()
        return one_rank(torch, store)

    assert one_rank(flambeau, fake_pg.FakeStore()) == told("one rank", theirs)


def test_a_large_world_needs_no_store():
    flambeau.distributed.init_process_group("fake", rank=700, world_size=1024)
    try:
        total = flambeau.ones(3)
        flambeau.distributed.all_reduce(total)
        assert (flambeau.distributed.get_rank(), total.tolist()) == (700, [1.0, 1.0, 1.0])
    finally:
        flambeau.distributed.destroy_process_group()
