"""Compressed rows and columns (CSR, CSC): products, gradients, and what reaches the values they were made of."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from answers import judge

import flambeau

torch = judge("torch")

SETUP = """
full = torch.tensor([[1.0, 0, 2], [0, 3, 0], [4, 0, 5], [0, 0, 0]])
a = full.to_sparse(layout=getattr(torch, {layout!r})).requires_grad_()
x, y, v = torch.arange(6.0).reshape(3, 2), torch.arange(8.0).reshape(2, 4), torch.arange(3.0)
b, c, w = torch.ones(4), torch.ones(4, 2), torch.arange(12.0).reshape(4, 3)
for t in (x, y, v, b, c): t.requires_grad_()
"""


def outcome(library: Any, layout: str, expression: str) -> list:
    names: dict[str, Any] = {"torch": library}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sparse compressed tensors are in beta
        exec(SETUP.format(layout=layout), names)
        result = eval(expression, names)
        result = result if result.layout is library.strided else result.to_dense()
        weights = library.arange(1.0, 1 + result.numel()).reshape(result.shape)
        inputs = [names[n] for n in "axyvbc"]
        gradients = library.autograd.grad((result * weights).sum(), inputs, allow_unused=True)
    listed = [None if g is None else (str(g.layout), g.to_dense().tolist()) for g in gradients]
    return [result.tolist(), *listed]


@pytest.mark.parametrize("layout", ["sparse_csr", "sparse_csc"])
@pytest.mark.parametrize(
    "expression",
    [
        "a @ x",
        "y @ a",
        "a @ v",
        "a.t() @ y.t()",
        "torch.nn.functional.linear(v, a)",
        "torch.nn.functional.linear(x.t(), a, b)",
        "torch.addmm(c, a, x, beta=2, alpha=3)",
        "a.to_dense(masked_grad=False)",
        "w + a",
    ],
)
def test_values_and_gradients(layout: str, expression: str) -> None:
    assert outcome(flambeau, layout, expression) == outcome(torch, layout, expression)


@pytest.mark.parametrize("expression", ["torch.sparse.mm(a, x)", "a * (a * 2)", "a + w"])
def test_values_and_gradients_of_rows(expression: str) -> None:
    assert outcome(flambeau, "sparse_csr", expression) == outcome(torch, "sparse_csr", expression)


@pytest.mark.parametrize("masked", [None, True, False])
def test_gradient_of_the_values_they_are_made_of(masked: bool | None) -> None:
    found = []
    for library in (torch, flambeau):
        values = library.tensor([1.0, 2.0, 3.0], requires_grad=True)
        matrix = library.sparse_csr_tensor([0, 1, 3], [2, 0, 1], values, (2, 3))
        (matrix.to_dense(masked_grad=masked) * library.arange(6.0).reshape(2, 3)).sum().backward()
        found.append(values.grad.tolist())
    assert found[0] == found[1]


def test_masks() -> None:
    for layout in ("sparse_csr", "sparse_csc"):
        found = []
        for library in (torch, flambeau):
            mask = library.tensor([[1.0, 0, 2], [0, 3, 0]]).to_sparse(layout=getattr(library, layout))
            masked = library.arange(6.0).reshape(2, 3).sparse_mask(mask)
            found.append((str(masked.layout), masked.to_dense().tolist()))
        assert found[0] == found[1]


COORDINATES = """
s = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
h = torch.sparse_coo_tensor([[0, 1]], [[1.0, 2], [3, 4]], (2, 2))
d, n = torch.arange(6.0).reshape(2, 3), torch.sparse_coo_tensor([[0, 0]], torch.tensor([1, 2], dtype=torch.int16), (2,))
one = torch.sparse_coo_tensor(torch.zeros(0, 1, dtype=torch.long), torch.tensor([2.0]), ())
e = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.long), torch.zeros(0, 3), (2, 3))
"""


@pytest.mark.parametrize(
    "expression",
    [
        "e + s",
        "s + e",
        "h * torch.sparse_coo_tensor([[0]], [[2.0]], (2, 1))",
        "one * one",
        "one * s",
        "s * one",
        "s * torch.arange(12.0).reshape(2, 2, 3)",
        "torch.sparse.spdiags(torch.ones(2, 3, 2), torch.tensor([0, 1]), (3, 3))",
        "torch.sparse.spdiags(torch.ones(2, 3), torch.tensor([[0, 1]]), (3, 3))",
        "torch.sparse.spdiags(torch.ones(2, 3), torch.tensor([0.0, 1.0]), (3, 3))",
        "torch.sparse.spdiags(torch.ones(2, 3), torch.tensor([0, 0]), (3, 3))",
        "n[0]",
        "s.clone().t_()",
        "s.clone().transpose_(0, 1)",
        "s.clone().floor_divide_(2)",
        "s.floor_divide(s)",
        "torch.zeros(2, 3, out=s.double()).dtype",
        "torch.asin(n, out=torch.zeros_like(n))",
        "torch.zeros_like(s, memory_format=torch.preserve_format)",
        "s.__setitem__(0, 100)",
        "torch.sspaddmm(s @ s.t(), s, d.t(), beta=2, alpha=3).to_dense()",
        "torch.saddmm(s @ s.t(), s, d.t()).to_dense()",
        "torch.dsmm(s, d.t())",
        "torch.hsmm(s, d.t()).to_dense()",
    ],
)
def test_coordinates(agrees, expression: str) -> None:
    agrees(expression, COORDINATES)


def test_copying_entries_keeps_their_history() -> None:
    found = []
    for library in (torch, flambeau):
        names: dict[str, Any] = {"torch": library}
        exec(COORDINATES, names)
        source = names["s"].requires_grad_()
        target = library.zeros(2, 3).to_sparse() * 1
        target.copy_(source)
        (target.to_dense() * names["d"]).sum().backward()
        found.append(source.grad.to_dense().tolist())
    assert found[0] == found[1]
