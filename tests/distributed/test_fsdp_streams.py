"""On a GPU parameters travel on streams of their own: right, whichever stream is late."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kernels.cuda_on_cpu import COMPILER

_PROGRAM = """
import pathlib, sys
from tests.distributed import late_streams
fake = late_streams.install(pathlib.Path(sys.argv[1]), lambda stream: True)
import flambeau as fl
from flambeau import nn
from flambeau.distributed.device_mesh import init_device_mesh
from flambeau.distributed.fsdp import fully_shard

class Scale(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.weight = nn.Parameter(fl.linspace(0.5, 1.5, 64) * (1 + number / 10))
        self.bias = nn.Parameter(fl.linspace(-1.0, 1.0, 64) / (1 + number))

    def forward(self, x):
        return x * self.weight + self.bias

def train(model, x):
    optimizer = fl.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        loss = (model(x * (step + 1)) * 0.5).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    return [loss.item() for loss in losses]

fl.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/world", rank=0, world_size=1)
mesh = init_device_mesh("cuda", (1,))
expected = train(nn.Sequential(*[Scale(n) for n in range(5)]), fl.ones(64))
for keep, late in ((False, "compute"), (True, "compute"), (False, "lanes"), (True, "lanes")):
    fake.hurried = lambda stream: (stream != 0) is (late == "compute")
    model = nn.Sequential(*[Scale(n) for n in range(5)]).cuda()
    for layer in model:
        fully_shard(layer, mesh=mesh, reshard_after_forward=not keep)
    fully_shard(model, mesh=mesh)
    found = train(model, fl.ones(64).cuda())
    assert all(abs(a - b) < 1e-4 * abs(b) for a, b in zip(found, expected)), (keep, late, found, expected)
    context = model._get_fsdp_state()._comm_ctx
    assert fake.used_streams[context.gathers._stream.cuda_stream] and fake.used_streams[context.reduces._stream.cuda_stream]
    fl.cuda.synchronize()
print("done")
fl.distributed.destroy_process_group()
"""


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler, to emulate kernels")
def test_whichever_stream_is_late(tmp_path) -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip().endswith("done"), done.stderr[-3000:]
