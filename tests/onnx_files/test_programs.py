"""Small programs written as ONNX files in every way, run by onnxruntime beside the programs themselves."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F
from flambeau.onnx.dtypes import array_of
from flambeau.utils import _pytree as pytree

pytest.importorskip("onnx", reason="ONNX files need the package onnx")
pytest.importorskip("onnxscript", reason="operators are translated by onnxscript's functions")
onnxruntime = pytest.importorskip("onnxruntime", reason="exported models are run by onnxruntime")


class Program(nn.Module):
    """A function as a module, with these parts."""

    def __init__(self, function: Any, **parts: nn.Module) -> None:
        super().__init__()
        self.__dict__["function"] = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *given: Any) -> Any:
        return self.function(*given, *self.children())


def written(change: Any) -> Any:
    """A program that changes a copy of its input in place."""

    def run(x: Any) -> Any:
        y = x * 1
        return y if (made := change(y)) is None else made

    return run


def _turned_twice(y: Any) -> Any:
    row = y[1]
    y.t_()
    y.mul_(2)
    row.add_(1)
    return y, row


def _squeezed(y: Any) -> None:
    row = y[0:1]
    row.squeeze_(0)
    row.mul_(2)


def _masked(key: Any, value: Any) -> Any:
    def change(y: Any) -> None:
        y[key(y)] = value(y)

    return change


torch.manual_seed(0)
X, IMAGE, NUMBERS = torch.randn(3, 4), torch.randn(2, 4, 9, 8), torch.tensor([-7, -3, 0, 5])
PROGRAMS = {
    "the same result twice": (lambda x: (x, x, x + 1, x), X),
    "turned in place": (written(lambda y: y.t_().add_(1)), X),
    "turned in place, seen by views": (written(_turned_twice), X),
    "a dimension in place": (written(lambda y: y.unsqueeze_(0).transpose_(1, 2) + 1), X),
    "a view squeezed in place": (written(_squeezed), X),
    "a number scattered": (written(lambda y: y.scatter_(1, torch.tensor([[0], [3], [1]]), 9.0)), X),
    "elements of a mask": (written(_masked(lambda y: y > 0, lambda y: y[y > 0].exp())), X),
    "a mask filled": (written(_masked(lambda y: y > 0, lambda y: 7.0)), X),
    "rows of a mask": (written(_masked(lambda y: y[:, 0] > 0, lambda y: torch.arange(4.0))), X),
    "a mask and a place": (written(_masked(lambda y: (y[:, 0] > 0, 1), lambda y: 3.0)), X),
    "a mask of columns": (lambda x: x[:, x[0] > 0] * 2, X),
    "places of both dimensions": (lambda x: x[torch.tensor([[0], [2]]), torch.tensor([1, -1])], X),
    "places of small integers": (written(_masked(lambda y: torch.tensor([1, 0], dtype=torch.int32), lambda y: 2.0)), X),
    "whether a number is zero": (lambda x: x.sum().nonzero(), X),
    "repeated unequally": (lambda x: x.repeat_interleave(torch.tensor([1, 0, 2]), 0), X),
    "subscripts as numbers": (lambda x: torch.einsum(x, [0, 1], x, [2, 1], [2, 0]), X),
    "sign of integers": (lambda x: torch.copysign(x, -x), NUMBERS),
    "a padded mask": (lambda x: F.pad(x > 0, (1, 2), value=True), X),
    "a triangle of a mask": (lambda x: (x > 0).tril(), X),
    "masked and scattered": (lambda x: x.masked_scatter(x[0] > 0, torch.arange(12.0)), X),
    "smaller without aliasing": (lambda x: F.interpolate(x, size=(5, 4), mode="bilinear", antialias=True), IMAGE),
    "smaller, cubic": (lambda x: F.interpolate(x, size=(5, 4), mode="bicubic", antialias=True), IMAGE),
    "padding on one side": (nn.Conv2d(4, 2, (4, 3), padding="same", dilation=(1, 2)), IMAGE),
    "one image": (nn.Conv2d(4, 2, 3), IMAGE[0]),
    "one image, transposed": (nn.ConvTranspose2d(4, 2, 3), IMAGE[0]),
    "one sequence": (Program(lambda x, net: net(x)[0], net=nn.GRU(4, 5)), X),
    "weights given": (lambda x, w: F.conv2d(x, w, padding=1), IMAGE, torch.randn(2, 4, 3, 3)),
    "groups of heads": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), torch.randn(2, 4, 3, 8), torch.randn(2, 2, 3, 8)
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", ["dynamo", "traced", "traced with sizes that change"])
@pytest.mark.parametrize("what", PROGRAMS)
def test_programs(what: str, how: str) -> None:
    program, *given = PROGRAMS[what]
    model = (program if isinstance(program, nn.Module) else Program(program)).eval()
    file, more = io.BytesIO(), {}
    if how.endswith("change"):
        names = [f"x{i}" for i in range(len(given))]
        axes = {n: {d: f"{n}_{d}" for d in range(t.dim())} for n, t in zip(names, given)}
        more = {"input_names": names, "dynamic_axes": axes}
    torch.onnx.export(model, tuple(given), file, opset_version=20, dynamo=how == "dynamo", verbose=False, **more)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    found = session.run(None, {i.name: array_of(t) for i, t in zip(session.get_inputs(), given)})
    wanted = [array_of(t.detach()) for t in pytree.tree_leaves(model(*given))]
    assert [(f.shape, f.dtype) for f in found] == [(w.shape, w.dtype) for w in wanted]
    for mine, right in zip(found, wanted):
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-5)
