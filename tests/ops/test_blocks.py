"""Compressed rows and columns of blocks (BSR, BSC): making and converting them, products, gradients, files."""

from __future__ import annotations

import io
import warnings

import pytest
from answers import judge

import flambeau

torch = judge("torch")

SETUP = """
__import__("warnings").simplefilter("ignore")
full = torch.arange(24.0).reshape(4, 6)
full[0:2, 2:4] = 0
full[2:, 4:] = 0
a, c = full.to_sparse_bsr((2, 2)), full.to_sparse_bsc((2, 3))
csr, csc, coo = full.to_sparse_csr(), full.to_sparse_csc(), full.to_sparse()
starts, places, blocks = torch.tensor([0, 2, 4]), torch.tensor([0, 2, 0, 1]), torch.arange(16.0).reshape(4, 2, 2)
x, y, v = torch.arange(18.0).reshape(6, 3), torch.ones(3, 4), torch.arange(6.0)
"""
EXPRESSIONS = """
a; c; a.to_dense(); c.to_dense(); a.layout; c.layout; a.values(); a.crow_indices(); a.col_indices(); c.ccol_indices(); c.row_indices(); a._nnz()
a.sparse_dim(); a.dense_dim(); a.is_sparse; a.is_sparse_csr; a.shape; a.dtype; a.t(); c.t(); a.transpose(0, 1).to_dense(); a.numel(); a.detach(); a.clone()
csr.to_sparse_bsr((2, 2)); coo.to_sparse_bsr((2, 2)); csc.to_sparse_bsc((2, 2)); csc.to_sparse_bsr((1, 3)); csr.to_sparse_bsc((4, 1)); a.to_sparse_bsr((2, 2))
a.to_sparse_bsc((2, 2)); c.to_sparse_bsr((2, 3)); a.to_sparse_coo(); c.to_sparse(); full.to_sparse(layout=torch.sparse_bsr, blocksize=(2, 2)); full.to_sparse_bsr(2)
torch.sparse_bsr_tensor(starts, places, blocks, (4, 6)); torch.sparse_bsr_tensor(starts, places, blocks); torch.sparse_bsc_tensor(starts, places, blocks, (6, 4))
torch.sparse_compressed_tensor(starts, places, blocks, (4, 6), layout=torch.sparse_bsr); torch.sparse_bsr_tensor([0, 1], [0], [[[1.0, 2], [3, 4]]])
torch.sparse_bsr_tensor(starts, places, blocks, (4, 6), dtype=torch.float64); torch.zeros(4, 6).to_sparse_bsr((2, 2)); torch.zeros_like(a)
a @ x; a.mm(x); a @ v; torch.addmm(torch.ones(4, 3), a, x, beta=2, alpha=3); torch.sparse.mm(a, x); y @ full.to_sparse_bsc((2, 2))
torch.nn.functional.linear(torch.ones(2, 6), a); torch.nn.functional.linear(torch.ones(2, 6), a, torch.ones(4)); a.double() @ x.double()
-a; a.abs(); a.relu(); a.sin(); a * 2; a + a; a.double(); a.to(torch.float16); a.sum(); torch.isnan(a); full.sparse_mask(a); a.clone().mul_(2); torch.nn.Parameter(a)
a.to_sparse_csr(); a.to_sparse_csc(); c.to_sparse_csc(); a.to_sparse_bsc((2, 3)); a.to_sparse_bsr((1, 2)); full.to_sparse_bsr((3, 2)); full.to_sparse_bsr((-1, 2))
v.to_sparse_bsr((2, 2)); full.to_sparse(layout=torch.sparse_bsr); full.to_sparse(layout=torch.sparse_csr, blocksize=(2, 2)); a.stride(); a.numpy(); a.tolist(); a.coalesce()
torch.sparse_compressed_tensor(starts, places, blocks, (4, 6)); torch.sparse_compressed_tensor(starts, places, blocks, (4, 6), layout=torch.sparse_coo)
torch.sparse_bsr_tensor(torch.tensor([0, 3, 2]), places, blocks, (4, 6), check_invariants=True); torch.zeros(4, 6, layout=torch.sparse_bsr); a @ a.t(); a.sum(1)
torch.sparse_bsr_tensor(starts, torch.tensor([0, 7, 0, 1]), blocks, (4, 6), check_invariants=True); a.ccol_indices(); c.crow_indices(); a.equal(a); a.mean()
torch.sparse_bsr_tensor(starts, torch.tensor([2, 0, 0, 1]), blocks, (4, 6), check_invariants=True); csr.to_sparse_bsr((3, 2)); coo.to_sparse_bsr((3, 2)); a[0, 0] if False else a.is_coalesced()
""".replace("\n", "; ").strip("; ").split("; ")  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_in_pytorch(agrees, expression):
    agrees(expression, SETUP)


def gradients(library, expression):
    names = {"torch": library}
    with warnings.catch_warnings():
        exec(SETUP, names)
        names.update(b=names["blocks"].clone().requires_grad_(), f=names["full"].clone().requires_grad_())
        names["x"].requires_grad_()
        names["m"] = library.sparse_bsr_tensor(names["starts"], names["places"], names["b"], (4, 6))
        result = eval(expression, names)
        (result * library.arange(1.0, 1 + result.numel()).reshape(result.shape)).sum().backward()
    return [None if names[n].grad is None else names[n].grad.to_dense().tolist() for n in "bfx"]


@pytest.mark.parametrize(
    "expression",
    ["m.to_dense()", "f.to_sparse_bsr((2, 2)).to_dense()", "f.to_sparse_bsc((2, 3)).to_dense()", "m.values()"],
)
def test_gradients(expression):
    assert gradients(flambeau, expression) == gradients(torch, expression)


@pytest.mark.parametrize("product", ["{} @ x", "torch.addmm(torch.ones(4, 3), {}, x, alpha=2)", "x.t() @ {}.t()"])
def test_gradients_of_products_are_those_of_the_dense_matrix(product):
    """PyTorch on the CPU has no product of a transposed block matrix, so no gradient of the dense operand."""
    ours = gradients(flambeau, product.format("m"))
    assert ours == gradients(flambeau, product.format("m.to_dense()"))
    assert ours[0] is not None and ours[2] is not None


def test_gradient_of_a_leaf_is_dense_as_in_pytorch():
    def found(library):
        names = {"torch": library}
        exec(SETUP, names)
        leaf = names["a"].requires_grad_()
        (leaf @ names["x"]).sum().backward()
        return str(leaf.grad.layout), leaf.grad.tolist()

    assert found(flambeau) == found(torch)


@pytest.mark.parametrize("layout", ["bsr", "bsc"])
def test_files(layout):
    names = {"torch": flambeau}
    exec(SETUP, names)
    held = names["a" if layout == "bsr" else "c"]
    file = io.BytesIO()
    flambeau.save({"held": held}, file)
    file.seek(0)
    again = flambeau.load(file, weights_only=True)["held"]
    assert again.layout is held.layout and str(again) == str(held)


@pytest.mark.parametrize("values", [flambeau.ones(4, 3, 2), flambeau.ones(4), flambeau.ones(3, 2, 2)])
def test_blocks_that_do_not_fit_are_refused(values):
    with pytest.raises(RuntimeError):
        flambeau.sparse_bsr_tensor([0, 2, 4], [0, 2, 0, 1], values, (4, 6))
