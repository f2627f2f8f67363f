"""Where llvmlite is missing NumPy computes: slower, the same numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flambeau
from flambeau import nn
from flambeau.nn import functional as F

ROOT = Path(flambeau.__file__).parent.parent


def train(model: nn.Module, x: flambeau.Tensor, steps: int = 2) -> flambeau.Tensor:
    optimizer = flambeau.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        out = model(x)
        loss = F.mse_loss(out[0] if isinstance(out, tuple) else out, flambeau.tensor(0.5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


def randn(*shape: int) -> flambeau.Tensor:
    return flambeau.randn(*shape)


CASES: dict[str, Any] = {
    "formula": lambda: flambeau.tanh(randn(3, 4)) * 2 + flambeau.ones(4),
    "reductions": lambda: [randn(3, 4).sum(0), randn(5).mean(), randn(3, 3).max(0), randn(6).argmax(), randn(4) > 0],
    "any": lambda: [(randn(4, 2) > 0).any(1), (randn(4) > -9).all(), randn(3, 4).var(1), randn(3, 4).norm()],
    "softmax": lambda: F.log_softmax(randn(3, 4), 1),
    "ordering": lambda: [randn(7).sort(), randn(7).topk(3), randn(7).cumsum(0), randn(4, 4).median(1)],
    "indexing": lambda: [randn(5, 3)[flambeau.tensor([0, 4])], randn(5)[randn(5) > 0], randn(3, 3).gather(1, flambeau.zeros(3, 1).long())],
    "products": lambda: [randn(3, 4) @ randn(4, 2), flambeau.einsum("bij,bjk->bik", randn(2, 3, 4), randn(2, 4, 5))],
    "fft": lambda: flambeau.fft.fft(randn(6)).abs(),
    "linalg": lambda: [flambeau.linalg.svdvals(randn(3, 3)), flambeau.linalg.solve(randn(3, 3), randn(3))],
    "random": lambda: [flambeau.rand(3), flambeau.randint(9, (4,)), flambeau.randperm(5), flambeau.bernoulli(flambeau.rand(6))],
    "attention": lambda: F.scaled_dot_product_attention(randn(1, 2, 3, 4), randn(1, 2, 3, 4), randn(1, 2, 3, 4)),
    "complex": lambda: (randn(3) + 1j * randn(3)).exp().abs().sum(),
    "half": lambda: randn(8).bfloat16().sigmoid().float().sum(),
    "mlp": lambda: train(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 1)), randn(5, 4)),
    "cnn": lambda: train(
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)),
        randn(2, 1, 8, 8),
    ),
    "lstm": lambda: train(nn.LSTM(3, 4), randn(5, 2, 3)),
    "transformer": lambda: train(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), randn(5, 2, 8), steps=1),
    "print": lambda: [len(repr(flambeau.arange(6).reshape(2, 3) / 7))],
}  # fmt: skip


def flat(value: Any) -> list[float]:
    if isinstance(value, (list, tuple)):
        return [x for part in value for x in flat(part)]
    return value.detach().double().reshape(-1).tolist() if isinstance(value, flambeau.Tensor) else [float(value)]


def compute() -> dict[str, list[float] | str]:
    found: dict[str, list[float] | str] = {}
    for name, case in CASES.items():
        flambeau.manual_seed(0)
        try:
            found[name] = flat(case())
        except Exception as problem:  # one case's failure must not hide the others'
            found[name] = f"{type(problem).__name__}: {problem}"
    return found


PROGRAM = """
import importlib.util, json, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.startswith("llvmlite") else find(name, *rest)
sys.modules["llvmlite"] = sys.modules["llvmlite.binding"] = None
sys.path[:0] = {paths!r}
import test_without_compiler
print(json.dumps(test_without_compiler.compute()))
"""


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    program = PROGRAM.format(paths=[str(ROOT), str(Path(__file__).parent)])
    # an empty cache: a kernel that was compiled earlier would run without LLVM too
    environment = os.environ | {"FLAMBEAU_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=300)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", CASES)
def test_same_numbers(name: str, without: dict[str, Any]) -> None:
    flambeau.manual_seed(0)
    assert without[name] == pytest.approx(flat(CASES[name]()), rel=1e-4, abs=1e-5)
