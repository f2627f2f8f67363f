"""Tensors without memory, whose classes answer operators; and the package torchao, which is made of them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from answers import judge

import flambeau

ROOT = Path(__file__).parents[2]


class Scaled(flambeau.Tensor):
    """A matrix and one factor."""

    matrix: Any
    factor: float

    @staticmethod
    def __new__(cls, matrix: Any, factor: float) -> Any:
        return flambeau.Tensor._make_wrapper_subclass(cls, matrix.shape, dtype=matrix.dtype, device=matrix.device)

    def __init__(self, matrix: Any, factor: float):
        self.matrix, self.factor = matrix, factor

    __torch_function__ = flambeau._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        if func is flambeau.ops.aten.detach.default:
            return cls(args[0].matrix, args[0].factor)
        if func is flambeau.ops.aten.mm.default and isinstance(args[0], Scaled):
            return flambeau.mm(args[0].matrix, args[1]) * args[0].factor
        return NotImplemented


def test_the_class_answers() -> None:
    matrix, other = flambeau.randn(3, 4), flambeau.randn(4, 2)
    scaled = Scaled(matrix, 3.0)
    assert tuple(scaled.shape) == (3, 4) and scaled.dtype is flambeau.float32
    assert flambeau.equal(flambeau.mm(scaled, other), flambeau.mm(matrix, other) * 3.0)
    parameter = flambeau.nn.Parameter(scaled, requires_grad=False)
    assert isinstance(parameter, Scaled) and isinstance(parameter, flambeau.nn.Parameter)


def test_what_the_class_does_not_answer_is_an_error() -> None:
    with pytest.raises((TypeError, NotImplementedError)):
        flambeau.exp(Scaled(flambeau.randn(2, 2), 1.0))


def test_a_class_must_say_what_operators_do() -> None:
    class Silent(flambeau.Tensor):
        pass

    with pytest.raises(RuntimeError, match="__torch_dispatch__"):
        flambeau.Tensor._make_wrapper_subclass(Silent, (2, 2))


TORCHAO = """
import sys, json, warnings
warnings.simplefilter("ignore")
if sys.argv[1] == "flambeau":
    import flambeau
    flambeau.install_as_torch()
import torch
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
results = []
for config in (Int8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 16))
    quantize_(model, config())
    results.append([model(torch.randn(7, 64)).tolist(), model[0].weight.qdata.tolist(), str(model)])
print(json.dumps(results))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="runs the package: pip install --no-deps torchao==0.18.0"
)
def test_torchao() -> None:
    judge("torch")
    found = []
    for name in ("torch", "flambeau"):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORCHAO_FORCE_SKIP_LOADING_SO_FILES": "1"}
        run = subprocess.run([sys.executable, "-c", TORCHAO, name], capture_output=True, text=True, env=environment)
        assert run.returncode == 0, run.stderr
        found.append(json.loads(run.stdout.splitlines()[-1]))
    for theirs, ours in zip(*found):
        assert theirs[1:] == ours[1:]
        for a, b in zip(theirs[0], ours[0]):
            assert a == pytest.approx(b, abs=1e-5)


def test_sigmoid_of_codes_has_the_scale_and_zero_point_of_its_range():
    for dtype, zero_point in ((flambeau.quint8, 0), (flambeau.qint8, -128)):
        x = flambeau.quantize_per_tensor(flambeau.tensor([-1.0, 0.0, 1.0]), 0.02, 0, dtype)
        result = flambeau.sigmoid(x)
        assert (result.q_scale(), result.q_zero_point()) == (1 / 256, zero_point)
