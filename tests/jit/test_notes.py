"""The TorchScript programs of the notes: traces inside scripts and scripts inside traces, saved and loaded."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch


class DecisionGate(torch.nn.Module):
    def forward(self, x):  # type: ignore[no-untyped-def]
        return x if x.sum() > 0 else -x


class Cell(torch.nn.Module):
    def __init__(self, dg: Any):
        super().__init__()
        self.dg = dg
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, h):  # type: ignore[no-untyped-def]
        new_h = torch.tanh(self.dg(self.linear(x)) + h)
        return new_h, new_h


class RNNLoop(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        x, h = torch.rand(3, 4), torch.rand(3, 4)
        self.cell = torch.jit.trace(Cell(torch.jit.script(DecisionGate())), (x, h))

    def forward(self, xs):  # type: ignore[no-untyped-def]
        h, y = torch.zeros(3, 4), torch.zeros(3, 4)
        for i in range(xs.size(0)):
            y, h = self.cell(xs[i], h)
        return y, h


class WrapRNN(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.loop = torch.jit.script(RNNLoop())

    def forward(self, xs):  # type: ignore[no-untyped-def]
        y, h = self.loop(xs)
        return torch.relu(y)


GATE = """def forward(self,
    x: Tensor) -> Tensor:
  if bool(torch.gt(torch.sum(x), 0)):
    _0 = x
  else:
    _0 = torch.neg(x)
  return _0
"""


def test_script_over_trace_over_script() -> None:
    loop = torch.jit.script(RNNLoop())
    assert loop.code == (
        "def forward(self,\n    xs: Tensor) -> Tuple[Tensor, Tensor]:\n  h = torch.zeros([3, 4])\n  y = torch.zeros([3, 4])\n"
        "  y0 = y\n  h0 = h\n  for i in range(torch.size(xs, 0)):\n    cell = self.cell\n"
        "    _0 = (cell).forward(torch.select(xs, 0, i), h0, )\n    y1, h1, = _0\n    y0, h0 = y1, h1\n  return (y0, h0)\n"
    )
    assert loop.cell.dg.code == GATE


def test_trace_over_script_saved_and_loaded(tmp_path: Path) -> None:
    traced = torch.jit.trace(WrapRNN(), torch.rand(10, 3, 4))
    assert traced.code == (
        "def forward(self,\n    xs: Tensor) -> Tensor:\n  loop = self.loop\n  _0, y, = (loop).forward(xs, )\n  return torch.relu(y)\n"
    )
    traced.save(tmp_path / "wrapped_rnn.pt")
    loaded = torch.jit.load(tmp_path / "wrapped_rnn.pt")
    assert type(loaded).__name__ == "RecursiveScriptModule"
    assert str(loaded).splitlines()[:3] == [
        "RecursiveScriptModule(",
        "  original_name=WrapRNN",
        "  (loop): RecursiveScriptModule(",
    ]
    xs = torch.randn(7, 3, 4)
    assert torch.equal(loaded(xs), traced(xs)) and loaded.loop.cell.dg.code == GATE


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool, self.fc = torch.nn.Conv2d(1, 6, 3), torch.nn.MaxPool2d(2), torch.nn.Linear(54, 2)
        self.scale = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        x = self.pool(torch.relu(self.conv(x)))
        return torch.relu(self.fc(x.view(-1, 54))) * self.scale


def test_a_traced_network_prints_the_classes_of_its_layers_and_reads_them_first() -> None:
    traced = torch.jit.trace(Net(), torch.rand(1, 1, 8, 8))
    layers = "  (conv): Conv2d(original_name=Conv2d)\n  (pool): MaxPool2d(original_name=MaxPool2d)\n  (fc): Linear(original_name=Linear)"
    assert repr(traced) == f"Net(\n  original_name=Net\n{layers}\n)" and type(traced.fc).__name__ == "TracedModule"
    assert traced.code == (
        "def forward(self,\n    x: Tensor) -> Tensor:\n  scale = self.scale\n  fc = self.fc\n  pool = self.pool\n  conv = self.conv\n"
        "  input = torch.relu((conv).forward(x, ))\n  input0 = torch.view((pool).forward(input, ), [-1, 54])\n"
        "  _0 = torch.mul(torch.relu((fc).forward(input0, )), scale)\n  return _0\n"
    )
    assert "  bias = self.bias\n  weight = self.weight\n  return torch.linear(input, weight, bias)" in traced.fc.code
    steps = torch.jit.trace(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), torch.ones(1, 2))
    assert steps.code.splitlines()[2:4] == ['  _1 = getattr(self, "1")', '  _0 = getattr(self, "0")']


class Branching(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = torch.nn.Linear(3, 3)

    def forward(self, x):  # type: ignore[no-untyped-def]
        if x.sum() > 0:
            return self.l(x)
        return -x


def test_a_trace_keeps_one_branch_and_says_so_a_script_keeps_both() -> None:
    module, positive = Branching(), torch.ones(2, 3)
    with pytest.warns(torch.jit.TracerWarning, match="Converting a tensor to a Python boolean"):
        traced = torch.jit.trace(module, positive)
    scripted = torch.jit.script(module)
    assert (type(traced).__name__, type(scripted).__name__) == ("TopLevelTracedModule", "RecursiveScriptModule")
    assert torch.equal(traced(-positive), module.l(-positive))
    assert torch.equal(scripted(-positive), positive)
    lines = [line.partition(" # ")[0] for line in str(traced.graph).splitlines()]
    assert lines[1] == "      %x : Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu)):"
    assert 'prim::GetAttr[name="l"]' in lines[2] and 'prim::CallMethod[name="forward"](%l, %x)' in lines[3]


def test_a_traced_function_follows_sizes() -> None:
    def flat(x):  # type: ignore[no-untyped-def]
        return x.view(x.size(0), -1) * 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        traced = torch.jit.trace(flat, torch.ones(2, 3, 4))
    assert traced(torch.ones(5, 2, 2)).shape == (5, 4)
    assert torch.ones(2, 3).shape == (2, 3) and type(torch.ones(2, 3).shape[0]) is int


def test_tensors_can_be_keys_of_what_a_trace_returns() -> None:
    a, b = torch.ones(3), torch.zeros(3)
    traced = torch.jit.trace(lambda a, b: {a: b, b: a}, (a, b), strict=False)
    assert [k.tolist() for k in traced(a, b)] == [a.tolist(), b.tolist()]


def test_a_constant_whose_first_call_failed_is_traced() -> None:
    weight = torch.ones(3)

    def program(x: Any) -> Any:
        with contextlib.suppress(RuntimeError):
            x @ weight.expand(2, 3)
        return x * weight

    traced = torch.jit.trace(program, torch.ones(2, 3))
    assert traced(torch.full((2, 3), 2.0)).tolist() == [[2.0] * 3] * 2


def test_programs_that_import_torch_script_layers_too(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\nfrom torch import nn\n"
        "m = torch.jit.script(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.MaxPool2d(2)).eval())\n"
        "print(list(m(torch.ones(1, 1, 6, 6)).shape), torch.jit.script(nn.LSTM(3, 4))(torch.ones(2, 1, 3))[0].shape[2])\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "flambeau", str(program)], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[1, 2, 2, 2] 4\n", done.stderr[-500:]
