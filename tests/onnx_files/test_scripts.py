"""Compiled programs (torch.jit.script) as ONNX files: loops, branches, defaults, and sizes that change."""

from __future__ import annotations

import io

import numpy as np
import pytest

import flambeau as torch
from flambeau import Tensor, nn
from flambeau.nn import functional as F

pytest.importorskip("onnx", reason="ONNX files need the package onnx")
pytest.importorskip("onnxscript", reason="operators are translated by onnxscript's functions")
onnxruntime = pytest.importorskip("onnxruntime", reason="exported models are run by onnxruntime")


class EveryOther(nn.Module):
    def forward(self, x: Tensor):
        total = torch.zeros(x.shape[1])
        for i in range(x.shape[0]):
            if i % 2 == 0:
                total = total + x[i]
        return total, x.shape[0] * 2


class Numbered(nn.Module):
    def forward(self, x: Tensor):
        y = x
        for i in range(x.shape[0]):
            y = y + i if bool(x[i].sum() > 0) else y * 2
        return y


class Defaults(nn.Module):
    def forward(self, x: Tensor, m: torch.Tensor | None = None, k: int = 2, word: str = "a"):
        if m is not None:
            x = x * m
        return x * k if word == "a" else x


class Several(nn.Module):
    def forward(self, x: Tensor):
        values, places = x.max(1)
        spread, centre = torch.var_mean(x, dim=1)
        size = x.shape[0] // 2
        return values + places, x.topk(2, dim=1)[0], spread + centre, x.double().float()[:size], x.shape[1] * x


class Listed(nn.Module):
    def forward(self, x: Tensor):
        rows, total = [x[:, 0]], torch.zeros(1)
        for i in range(1, 4):
            total = total + i
            rows.append(x[:, i] * total)
        for row in rows:
            total = total + row.sum()
        return torch.stack(rows, 1) * total


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.norm = nn.LSTMCell(4, 5), nn.BatchNorm1d(4)

    def forward(self, x: Tensor):
        h, c = self.cell(self.norm(x))
        h, c = self.cell(x, (h, c))
        return F.pad(h, [1, 2]) if bool(x.sum() > 0) else F.pad(c, [1, 2])


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize("kind", [EveryOther, Numbered, Defaults, Several, Listed, Cell])
def test_scripts(kind, changing):
    torch.manual_seed(0)
    model, file = kind().eval(), io.BytesIO()
    axes = {"dynamic_axes": {"x": {0: "n"}}} if changing else {}
    torch.onnx.export(torch.jit.script(model), (torch.rand(3, 4),), file, dynamo=False, input_names=["x"], **axes)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    for x in (torch.rand(3, 4), -torch.rand(3, 4), *([torch.rand(6, 4)] if changing else [])):
        wanted = model(x)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for mine, right in zip(session.run(None, {"x": x.numpy()}), wanted):
            np.testing.assert_allclose(
                mine, right.detach().numpy() if isinstance(right, Tensor) else right, rtol=1e-4, atol=1e-5
            )


def test_a_list_that_grows_as_often_as_a_tensor_says_is_refused():
    class Growing(nn.Module):
        def forward(self, x: Tensor):
            rows = [x[0]]
            for i in range(x.shape[0]):
                rows.append(x[i])
            return torch.stack(rows)

    axes = {"input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}}
    with pytest.raises(torch.onnx.errors.OnnxExporterError, match="one that fills it"):
        torch.onnx.export(torch.jit.script(Growing()), (torch.rand(3, 4),), io.BytesIO(), dynamo=False, **axes)
