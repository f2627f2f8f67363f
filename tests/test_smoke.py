"""A few seconds that touch every room: `pytest -m smoke`. Each room's own tests say whether it is right; these say whether it is there."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn

pytestmark = pytest.mark.smoke
ROOT = Path(torch.__file__).parent
ROOMS: dict[str, Callable[[], None]] = {}


def room(*names: str) -> Callable:
    """Declare what is tried of rooms."""

    def declare(function: Callable[[], None]) -> Callable[[], None]:
        ROOMS.update(dict.fromkeys(names, function))
        return function

    return declare


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, atol=1e-5)


@room("core", "expr", "kernels", "backends", "ops")
def tensors() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert repr(x.t()[1:] + 1) == "tensor([[2., 5.],\n        [3., 6.]])"
    assert np.array_equal((x @ x.T).softmax(1).sum(1).numpy(), [1, 1])
    assert x.type() == "torch.FloatTensor" and torch.IntTensor([1]).dtype is torch.int32


@room("autograd", "nn", "optim", "amp")
def training() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    x, y = torch.randn(8, 1, 6, 6), torch.arange(8) % 2
    losses = []
    for _ in range(20):
        with torch.autocast("cpu"):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4


@room("compiler", "graph")
def compiled() -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @torch.compile
    def step(x: torch.Tensor) -> float:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [step(torch.ones(2, 3)) for _ in range(8)]
    assert losses == sorted(losses, reverse=True)
    assert torch._dynamo.is_dynamo_supported()
    assert torch._inductor.config is not None


@room("fx", "export", "jit", "onnx")
def graphs() -> None:
    model, x = nn.Sequential(nn.Linear(3, 2), nn.Tanh()).eval(), torch.ones(1, 3)
    wanted = model(x)
    assert close(torch.fx.symbolic_trace(model)(x), wanted)
    assert close(torch.export.export(model, (x,)).module()(x), wanted)
    kept = io.BytesIO()
    torch.jit.save(torch.jit.script(model), kept)
    kept.seek(0)
    assert close(torch.jit.load(kept)(x), wanted)
    assert torch.cond(torch.tensor(True), lambda t: t + 1, lambda t: t, (x,)).sum() == 6
    pytest.importorskip("onnx", reason="pip install flambeau[onnx]")
    assert torch.onnx.export(model, (x,), verbose=False).model_proto.graph.node


@room("library")
def operators() -> None:
    @torch.library.custom_op("smoke::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    assert torch.ops.smoke.twice(torch.ones(1)).item() == 2
    assert torch.ops.aten.add.Tensor(torch.ones(1), 1).item() == 2


@room("func", "distributions", "masked", "signal", "sparse", "testing")
def mathematics() -> None:
    assert torch.func.grad(lambda x: (x**3).sum())(torch.tensor([2.0])).item() == 12
    assert close(torch.distributions.Normal(0.0, 1.0).log_prob(torch.tensor(0.0)), torch.tensor(-0.9189385))
    assert torch.masked.sum(torch.ones(2), mask=torch.tensor([True, False])).item() == 1
    assert torch.signal.windows.hann(4, sym=False).tolist()[2] == 1
    torch.testing.assert_close(torch.eye(2).to_sparse().to_dense(), torch.eye(2))


@room("serialization", "utils", "multiprocessing", "vision", "profiler")
def files_and_data() -> None:
    kept = io.BytesIO()
    torch.save({"x": torch.ones(2)}, kept)
    kept.seek(0)
    assert torch.load(kept)["x"].tolist() == [1, 1]
    data = torch.utils.data.TensorDataset(torch.arange(4))
    assert [b[0].tolist() for b in torch.utils.data.DataLoader(data, 2, num_workers=1)] == [[0, 1], [2, 3]]
    assert importlib.import_module("flambeau.vision").ops.nms(torch.eye(4)[:1], torch.ones(1), 0.5).tolist() == [0]
    with torch.profiler.profile() as profile:
        torch.ones(2) + 1
    assert any(event.key == "aten::add" for event in profile.key_averages())


@room("ao")
def quantized() -> None:
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})
    assert model(torch.ones(1, 4)).shape == (1, 4)
    assert torch.quantization.QuantStub is torch.ao.quantization.QuantStub


@room("distributed", "horovod")
def one_rank() -> None:
    code = """
import tempfile, flambeau as torch, flambeau.distributed as dist
import flambeau.horovod.torch as hvd
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    x = torch.ones(2)
    dist.all_reduce(x)
    dist.destroy_process_group()
print(x.tolist(), hvd.Sum is not None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT.parent)
    assert done.stdout == "[1.0, 1.0] True\n", done.stderr


@room("cpu", "cuda")
def devices() -> None:
    assert torch.cpu.device_count() == 1 and torch.cuda.device_count() >= 0
    assert torch.device("cuda", 1).index == 1


@room("package", "numa")
def packages() -> None:
    file = io.BytesIO()
    with torch.package.PackageExporter(file) as exporter:
        exporter.save_text("notes", "read.txt", "words")
    file.seek(0)
    assert torch.package.PackageImporter(file).load_text("notes", "read.txt") == "words"
    assert importlib.import_module("flambeau.numa.binding").AffinityMode("node").value == "node"


@room("cpp")
def c_programs() -> None:
    assert callable(torch.export_library)
    assert importlib.import_module("flambeau.cpp.beside").signature((torch.ones(1, 2),))


@room("serve")
def serving() -> None:
    base = importlib.import_module("flambeau.serve.ts.torch_handler.base_handler")
    assert issubclass(base.BaseHandler, object)
    done = subprocess.run(
        [sys.executable, "-m", "flambeau.cli", "torchserve", "--version"],
        capture_output=True, text=True, timeout=60, cwd=ROOT.parent,
    )  # fmt: skip
    assert done.stdout.startswith("TorchServe Version is"), done.stderr


@room("compat")
def posing() -> None:
    code = "import torch, torchvision, flambeau; print(torch is flambeau, torchvision is flambeau.vision)"
    done = subprocess.run(
        [sys.executable, "-m", "flambeau", "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT.parent
    )
    assert done.stdout == "True True\n", done.stderr


@pytest.mark.parametrize("function", dict.fromkeys(ROOMS.values()), ids=lambda f: f.__name__)
def test_rooms(function: Callable[[], None]) -> None:
    function()


def test_every_room_is_touched() -> None:
    assert {p.name for p in ROOT.iterdir() if (p / "__init__.py").exists()} == set(ROOMS)
