"""Horovod's interface, in programs that import horovod.torch and torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau.horovod.runner import launch

ROOT = Path(__file__).parents[2]

PROGRAM = """
import torch, horovod.torch as hvd
hvd.init()
rank, size = hvd.rank(), hvd.size()
assert hvd.local_rank() == rank and hvd.local_size() == size and hvd.is_initialized()

# collectives
assert hvd.allreduce(torch.full((3,), rank + 1.0)).tolist() == [1.5] * 3
assert hvd.allreduce(torch.full((3,), rank + 1.0), op=hvd.Sum, prescale_factor=2.0).tolist() == [6.0] * 3
assert hvd.allreduce(torch.tensor([rank]), op=hvd.Max).tolist() == [1]
x = torch.full((2,), float(rank))
assert hvd.allreduce_(x, op=hvd.Sum) is x and x.tolist() == [1.0, 1.0]
assert [t.tolist() for t in hvd.grouped_allreduce([torch.ones(1), torch.ones(2)], op=hvd.Sum)] == [[2.0], [2.0, 2.0]]
assert hvd.allgather(torch.full((rank + 1, 2), float(rank))).shape == (3, 2)
assert hvd.broadcast(torch.tensor([rank]), 1).item() == 1
out, splits = hvd.alltoall(torch.arange(3) + 10 * rank, torch.tensor([1, 2], dtype=torch.int32))
assert splits.tolist() == [rank + 1] * 2 and out.tolist() == ([0, 10] if rank == 0 else [1, 2, 11, 12])
assert hvd.reducescatter(torch.arange(3.0), op=hvd.Sum).tolist() == ([0.0, 2.0] if rank == 0 else [4.0])
assert hvd.allgather_object({"r": rank}) == [{"r": 0}, {"r": 1}]
assert hvd.broadcast_object("a" * (rank + 1), 1) == "aa"

# by name, not by order
names = ["a", "b"] if rank == 0 else ["b", "a"]
handles = {n: hvd.allreduce_async(torch.full((1,), float(ord(n))), name=n, op=hvd.Sum) for n in names}
assert {n: hvd.synchronize(h).item() for n, h in handles.items()} == {"a": 194.0, "b": 196.0}

# what does not fit together is an error everywhere, and everything goes on
for wrong in (torch.ones(3 + rank), torch.ones(2).int() if rank else torch.ones(2)):
    try:
        hvd.allreduce(wrong, name="wrong")
        raise SystemExit("no error")
    except RuntimeError as problem:
        assert "Mismatched" in str(problem)
assert hvd.allreduce(torch.ones(1)).item() == 1

# gradients
x = torch.ones(2, requires_grad=True)
hvd.allreduce(x, op=hvd.Sum).sum().backward()
assert x.grad.tolist() == [2.0, 2.0]

# ranks that run out of data
if rank == 0:
    last = hvd.join()
else:
    assert hvd.allreduce(torch.ones(2), name="rest").tolist() == [0.5, 0.5]
    last = hvd.join()
assert last == 1

# process sets
alone = hvd.add_process_set([1])
if rank == 1:
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=alone).item() == 1
assert hvd.remove_process_set(alone)

# the optimizer
for options in ({}, {"compression": hvd.Compression.fp16}, {"backward_passes_per_step": 2}, {"gradient_predivide_factor": 2.0}):
    torch.manual_seed(rank)
    model = torch.nn.Linear(2, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), **options)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    before = model.weight.detach().clone()
    passes = options.get("backward_passes_per_step", 1)
    for _ in range(passes):
        model(torch.full((1, 2), rank + 1.0)).sum().backward()
    optimizer.step()
    assert torch.allclose(model.weight, before - 0.1 * 1.5 * passes, atol=1e-3), options
    optimizer.zero_grad()
state = hvd.elastic.TorchState(model=model, epoch=3)
state.epoch = 9
state.restore()
assert state.epoch == 3
sampler = hvd.elastic.ElasticSampler(list(range(8)), shuffle=False)
sampler.record_batch(0, 1)
assert sampler.processed_num == 2 and list(sampler) == [0 + rank, 2 + rank, 4 + rank, 6 + rank]
sampler.load_state_dict(sampler.state_dict())
assert list(sampler) == [2 + rank, 4 + rank, 6 + rank]

# once more
hvd.barrier()
hvd.shutdown()
assert not hvd.is_initialized()
hvd.init()
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
print("fine", rank)
"""


def horovodrun(*arguments, limit=120):
    command = [sys.executable, "-m", "flambeau.horovod.runner.launch", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)


def test_a_program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = horovodrun("-np", "2", sys.executable, str(path))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0,0]<stdout>:fine 0", "[0,1]<stdout>:fine 1"]


def test_one_that_fails_ends_all(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("import os, sys, time\nif os.environ['HOROVOD_RANK'] == '1': sys.exit(3)\ntime.sleep(60)")
    assert horovodrun("-np", "2", sys.executable, str(path), limit=40).returncode == 1


def test_hosts():
    assert launch.parse_hosts("a:2,b") == [("a", 2), ("b", 1)]
    assert launch._place_ranks([("a", 2), ("b", 2)], 3) == [("a", 0), ("a", 1), ("b", 0)]
    with pytest.raises(ValueError, match="only 1 slots"):
        launch._place_ranks([("a", 1)], 2)
    with pytest.raises(ValueError, match="<host>:<slots>"):
        launch.parse_hosts("a:x")
    assert launch._posing_command(["python3", "-u", "t.py"]) == ["python3", "-u", "-m", "flambeau", "t.py"]
