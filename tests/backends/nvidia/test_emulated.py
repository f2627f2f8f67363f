"""Tensors on an emulated GPU: the driver is a fake, and the generated CUDA text runs on the CPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kernels.cuda_on_cpu import COMPILER

_PROGRAM = """
import pathlib, sys
from tests.backends.nvidia import fake_driver
fake = fake_driver.install(pathlib.Path(sys.argv[1]), devices=2)
import flambeau as fl

x = fl.arange(6.0).view(2, 3).cuda()
assert str(x.device) == "cuda:0" and "device='cuda:0'" in repr(x)
assert (x + x).cpu().tolist() == [[0, 2, 4], [6, 8, 10]]
assert (x + fl.tensor(1.0)).cpu().tolist() == [[1, 2, 3], [4, 5, 6]]  # a number from the host goes by value
assert x.to("cuda:1").device.index == 1 and x.to("cuda:1").cpu().tolist() == x.tolist()
with fl.cuda.device(1):
    assert fl.empty(2, device="cuda").device.index == 1
try:
    x + x.to("cuda:1")
    raise SystemExit("two devices were mixed")
except RuntimeError as error:
    assert "two devices" in str(error)

before = fl.cuda.memory_allocated()
y = fl.empty(1000, device="cuda")
assert fl.cuda.memory_allocated() == before + 4096
del y
assert fl.cuda.memory_allocated() == before

pinned = fl.ones(4).pin_memory()
assert pinned.is_pinned() and not fl.ones(4).is_pinned()
waits = fake.calls["cuStreamSynchronize"]
there = pinned.to("cuda", non_blocking=True)
assert fake.calls["cuStreamSynchronize"] == waits
assert there.cpu().tolist() == [1, 1, 1, 1]

stream = fl.cuda.Stream()
with fl.cuda.stream(stream):
    assert fl.cuda.current_stream() == stream
with stream, stream:
    assert fl.cuda.current_stream() == stream
assert fl.cuda.current_stream() == fl.cuda.default_stream()

fl.manual_seed(3)
first = fl.rand(4, device="cuda")
state = fl.cuda.get_rng_state()
second = fl.rand(4, device="cuda")
fl.cuda.set_rng_state(state)
assert fl.rand(4, device="cuda").tolist() == second.tolist() != first.tolist()

graph = fl.cuda.CUDAGraph()
with fl.cuda.graph(graph):
    z = x + x
    r = fl.rand(4, device="cuda")
x.copy_(fl.ones(2, 3))
graph.replay()
assert z.tolist() == [[2, 2, 2], [2, 2, 2]]
drawn = r.tolist()
graph.replay()
assert r.tolist() != drawn
assert graph.pool() and fl.cuda.memory_stats()["allocation.all.current"] > 0

values = [fl.arange(6.0).view(2, 3), fl.ones(40_000), fl.ones(5)]
twins = [[fl.nn.Parameter(v.clone().to(d)) for v in values] for d in ("cpu", "cuda")]
for params in twins:
    optimizer = fl.optim.SGD(params, lr=0.1, weight_decay=0.5)
    for p in params:
        p.grad = fl.ones(p.shape).to(p.device)
    launches = fake.calls["cuLaunchKernel"]
    optimizer.step()
assert fake.calls["cuLaunchKernel"] == launches + 1  # all parameters at once
assert all(a.tolist() == b.tolist() for a, b in zip(*twins))

norms = []
for params in twins:
    for k, p in enumerate(params):
        p.grad = fl.arange(float(p.numel())).view(p.shape).sin().mul(k + 1).to(p.device)
        p.grad = p.grad.t().contiguous().t() if p.dim() == 2 else p.grad  # in any order, as channels-last gradients are
    launches = fake.calls["cuLaunchKernel"]
    norms.append(fl.nn.utils.clip_grad_norm_(params, 1.5))
assert fake.calls["cuLaunchKernel"] <= launches + 8  # not two for each gradient
assert all(fl.allclose(a.grad, b.grad.cpu(), rtol=1e-5) and b.grad._version == 1 for a, b in zip(*twins))
assert fl.allclose(norms[0], norms[1].cpu(), rtol=1e-5)
for order in (1.0, float("inf"), 3.0):
    a, b = (fl.nn.utils.get_total_norm([p.grad for p in params], order).item() for params in twins)
    assert abs(a - b) < 1e-4 * a, (order, a, b)
by_one = [fl.nn.utils.get_total_norm([p.grad for p in twins[1]], foreach=f).item() for f in (None, False)]
assert abs(by_one[0] - by_one[1]) < 1e-5 * by_one[0]

class Shift(fl.nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = fl.nn.Parameter(fl.ones(2, 3))

    def forward(self, x):
        seen.append(x.device.index)
        return x + self.shift

seen = []
model = fl.nn.DataParallel(Shift().cuda())
batch = fl.zeros(4, 3).cuda()
assert model(batch).tolist() == [[1.0] * 3] * 4 and sorted(seen) == [0, 1]
model(batch).sum().backward()
assert model.module.shift.grad.tolist() == [[2.0] * 3] * 2
assert list(model.state_dict()) == ["module.shift"]

from flambeau.utils.checkpoint import checkpoint
for reentrant in (False, True):  # the second run draws the first one's numbers again
    row = fl.ones(64, device="cuda", requires_grad=True)
    out = checkpoint(lambda t: fl.nn.functional.dropout(t, 0.5), row, use_reentrant=reentrant)
    fl.rand(3, device="cuda")
    after = fl.cuda.get_rng_state()
    out.sum().backward()
    assert row.grad.tolist() == out.tolist() and fl.equal(after, fl.cuda.get_rng_state())

comm = fl.cuda.comm
there = comm.broadcast(fl.arange(4.0).cuda(), [0, 1])
assert [t.device.index for t in there] == [0, 1] and there[1].tolist() == [0, 1, 2, 3]
assert comm.reduce_add(there, 1).tolist() == [0, 2, 4, 6] and comm.reduce_add(there, 1).device.index == 1
parts = comm.scatter(fl.arange(5.0), [1, 0], [2, 3])
assert [(p.device.index, p.tolist()) for p in parts] == [(1, [0, 1]), (0, [2, 3, 4])]
assert comm.gather(parts, destination="cpu").tolist() == [0, 1, 2, 3, 4]
with fl.cuda.profiler.profile():
    assert fake.calls["cuProfilerStart"] == 1
assert fake.calls["cuProfilerStop"] == 1

try:
    fl.empty(1 << 30, device="cuda")
    raise SystemExit("there is not so much memory")
except fl.cuda.OutOfMemoryError as error:
    assert "Tensors hold" in str(error)

fl.cuda.synchronize()
print("done")
"""


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler (g++) to run CUDA text on the CPU")
def test_tensors_on_an_emulated_gpu(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True
    )
    assert done.stdout.strip().endswith("done"), done.stderr[-3000:]
