"""Compressed layouts in general: batches, dense dimensions and blocks, compared with PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from answers import judge

import flambeau

torch = judge("torch")

LAYOUTS = {"sparse_csr": None, "sparse_csc": None, "sparse_bsr": (2, 3), "sparse_bsc": (2, 1)}
SHAPES = {"matrix": ((4, 6), 0), "batch": ((2, 4, 6), 0), "batches": ((2, 1, 4, 6), 0), "dense": ((4, 6, 2), 1), "all": ((2, 4, 6, 3), 1)}  # fmt: skip


def example(library: Any, layout: str, shape: str) -> Any:
    """A tensor whose matrices have entries at the same number of places."""
    sizes, dense = SHAPES[shape]
    places = library.tensor([[1, 0, 0, 0, 2, 3], [0, 0, 0, 0, 0, 0], [0, 4, 0, 0, 0, 0], [5, 0, 0, 6, 0, 0]])
    full = library.arange(1.0, 1 + torch.Size(sizes).numel()).reshape(sizes)
    full = full * (places != 0).reshape(4, 6, *[1] * dense)
    return full.to_sparse(layout=getattr(library, layout), blocksize=LAYOUTS[layout], dense_dim=dense)


def told(value: Any) -> Any:
    """All that can be told of a result."""
    if isinstance(value, (tuple, list)):
        return [told(v) for v in value]
    if not hasattr(value, "layout"):
        return value
    if str(value.layout) == "torch.strided":
        return str(value.dtype), value.tolist()
    if str(value.layout) == "torch.sparse_coo":
        return "coo", value.is_coalesced(), value._indices().tolist(), value._values().tolist(), tuple(value.shape)
    return repr(value)


def outcome(library: Any, layout: str, shape: str, expression: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = {"torch": library, "t": example(library, layout, shape), "block": LAYOUTS[layout]}
        try:
            return told(eval(expression, names))
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            what = str(error).partition(": ")[2] or str(error)  # behind the name of the step that refuses
            return RuntimeError if isinstance(error, NotImplementedError) else type(error), what.partition(".")[0]


EXPRESSIONS = [
    "t", "t.to_dense()", "t.to_sparse()", "t.sparse_dim(), t.dense_dim(), t._nnz(), t.numel()", "t.values()", "t.clone()", "t.double()",
    "t.to(torch.int32)", "t.to('meta')._nnz(), t.to('meta').values().shape", "t.detach()", "t.crow_indices()", "t.row_indices()", "t * 2", "-t", "t.abs()", "t.sin()", "t.sqrt()", "t.sum()",
    "t.isnan()", "torch.select_copy(t, 0, 1)", "torch.select_copy(t, -1, 0)", "t.transpose(-1, -2)", "t.t()",
    "t.transpose(0, 0)", "t.unsqueeze(0)", "t.to_sparse(1)", "t.to_sparse(layout=t.layout, dense_dim=0, blocksize=block)",
    "t.to_sparse(layout=torch.sparse_csr)", "t.to_sparse(layout=torch.sparse_csc)", "t.to_sparse(layout=torch.sparse_bsr, blocksize=(2, 3))",
    "t.to_sparse_bsc((5, 2))", "torch.zeros_like(t)", "torch.empty_like(t).crow_indices()", "torch.ones_like(t)", "t.clone().zero_()",
    "t.clone().fill_(3)", "t.copy_(t)", "t.clone().mul_(2)", "t.to_dense().sparse_mask(t)", "t.is_contiguous()", "t.stride()", "t.nbytes",
    "t.expand(2, *t.shape)", "t.numpy()", "t.sum(0)", "block or t.new_zeros((3, 4))", "torch.zeros(2, 3, 4, layout=t.layout)",
    "torch.zeros(3, layout=t.layout)", "t.resize_as_sparse_(t.to_dense())", "t.clone().resize_(4)",
    "block or torch.sparse.sampled_addmm(t, torch.ones(*t.shape[:-1], 3), torch.ones(*t.shape[:-2], 3, t.shape[-1]))",
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_in_pytorch(layout: str, shape: str, expression: str) -> None:
    assert outcome(flambeau, layout, shape, expression) == outcome(torch, layout, shape, expression)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_transposed_tensors_and_values_are_views(layout: str) -> None:
    found = []
    for library in (torch, flambeau):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            t = example(library, layout, "batch")
        turned, values = t.transpose(-1, -2), t.values()
        turned.mul_(3)
        marks = turned._is_view(), turned._base is t, turned.transpose(-1, -2)._base is t, values._is_view()
        found.append((marks, told(t), told(turned), told(values)))
    assert found[0] == found[1]


def test_a_change_in_place_is_noticed_where_values_were_kept() -> None:
    t = example(flambeau, "sparse_csr", "matrix").requires_grad_()
    result = t.values().sin().sum()
    with flambeau.no_grad():
        t.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", ["batch", "matrix"])
def test_products_with_batches_of_matrices(layout: str, shape: str) -> None:
    """PyTorch multiplies batches of compressed matrices on GPUs alone: compared with its strided products."""
    dense = torch.tensor(example(flambeau, layout, shape).to_dense().tolist(), requires_grad=True)
    other = torch.arange(24.0).reshape(2, 6, 2) if shape == "batch" else torch.arange(12.0).reshape(6, 2)
    (dense @ other).square().sum().backward()
    t = example(flambeau, layout, shape).requires_grad_()
    right = flambeau.tensor(other.tolist(), requires_grad=True)
    product = t.bmm(right) if shape == "batch" else t.mm(right)
    product.square().sum().backward()
    assert product.tolist() == (dense @ other).tolist()
    gradient = t.grad if t.grad.layout is flambeau.strided else t.grad.to_dense()
    assert gradient.tolist() == dense.grad.tolist()
    assert right.grad.shape == right.shape


def test_tensors_of_different_layouts_are_compared() -> None:
    t = example(flambeau, "sparse_csr", "matrix")
    for other in (t.to_sparse(), t.to_sparse_csc(), t.to_dense()):
        flambeau.testing.assert_close(t, other, check_layout=False)
        with pytest.raises(AssertionError):
            flambeau.testing.assert_close(t, other * 2, check_layout=False)


NEW = ["s.new().shape, s.new().layout", "s.new(2, 3)", "s.new(torch.tensor([[0, 1]]), torch.ones(2), (3,))", "s.new_zeros((2, 2), layout=torch.strided)"]  # fmt: skip


@pytest.mark.parametrize("expression", NEW)
def test_new_tensors_like_sparse_ones(expression: str) -> None:
    found = []
    for library in (torch, flambeau):
        found.append(repr(eval(expression, {"torch": library, "s": library.eye(3).to_sparse()})))
    assert found[0] == found[1]


@pytest.mark.parametrize("size", [(2, 2), (1, 2), (2, 2, 2)])
@pytest.mark.parametrize("coalesced", [False, True])
def test_checks_of_coordinates(size: tuple[int, ...], coalesced: bool) -> None:
    found = []
    for library in (torch, flambeau):
        try:
            index = library.tensor([[1, 0], [1, 0]])
            found.append(library._validate_sparse_coo_tensor_args(index, library.ones(2), size, coalesced))
        except RuntimeError as error:
            found.append(str(error))
    assert found[0] == found[1]
