"""Sparse tensors: what they print, compute, refuse and hand back to autograd, against PyTorch."""

from __future__ import annotations

import copy
import operator
import pickle
import re
import warnings
from typing import Any

import pytest
from answers import judge

import flambeau

torch = judge("torch")

SETUP = """
i = torch.tensor([[0, 1, 1, 0], [2, 0, 2, 2]])
v = torch.tensor([3.0, 4.0, 5.0, 1.0])
s = torch.sparse_coo_tensor(i, v, (2, 3))
c = s.coalesce()
d = torch.arange(6.0).reshape(2, 3)
h = torch.sparse_coo_tensor(i, torch.arange(8.0).reshape(4, 2), (2, 3, 2))
n = torch.sparse_coo_tensor(i, torch.arange(4), (2, 3))
r = s.to_sparse_csr()
p = torch.sparse_coo_tensor([[0, 0], [0, 2]], [10.0, 20.0], (2, 3))
"""


def outcome(library: Any, expression: str) -> tuple[str, Any]:
    """The printed value of an expression, or the class of its error among those that PyTorch raises."""
    names: dict[str, Any] = {"torch": library}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(SETUP, names)
        try:
            value = eval(expression, names)
        except (RuntimeError, TypeError, IndexError, ValueError, BufferError) as problem:
            kinds = (NotImplementedError, RuntimeError, TypeError, IndexError, ValueError, BufferError)
            kind = next(k for k in kinds if isinstance(problem, k))
            return "error", RuntimeError if kind is NotImplementedError else kind
        return "value", re.sub(r"\bflambeau\.", "torch.", repr(value))


def check(expression: str) -> None:
    assert outcome(flambeau, expression) == outcome(torch, expression), expression


CONSTRUCTION = """
s; c; h; n; r; s.to_sparse_csc(); torch.sparse_coo_tensor((2, 3)); torch.sparse_coo_tensor(size=(2, 3)); torch.sparse_coo_tensor(i, v)
torch.sparse_coo_tensor([[0, 1], [1, 2]], [1, 2.0], (2, 3), dtype=torch.float64, requires_grad=True)
torch.sparse_coo_tensor([[0, 1], [1, 5]], [1, 2.0], (2, 3), check_invariants=True)
torch.sparse_coo_tensor([[0, 1], [1, 2]], [1, 2.0, 3], (2, 3)); torch.sparse_coo_tensor([[0, 1], [1, 2]], [1, 2.0], (2,))
torch.sparse_coo_tensor([[0, 1]], torch.ones(2, 3), (2, 4)); torch.sparse_coo_tensor([[-1]], [1.0]); torch.sparse_coo_tensor(i, 3.0, (2, 3))
torch.sparse_coo_tensor([[1, 0], [1, 2]], [1, 2.0], (2, 3), is_coalesced=True, check_invariants=True)
torch.sparse_coo_tensor([[0, 1], [1, 2]], [1, 2.0], (2, 3), is_coalesced=True).is_coalesced()
torch.sparse_coo_tensor([[0], [1]], [2.0], (2, 3)).is_coalesced(); torch.sparse_coo_tensor([[0, 1.5], [1, 2]], [1, 2.0], (2, 3))
torch.sparse_coo_tensor(torch.zeros(2, 0).long(), torch.zeros(0)); torch.sparse_coo_tensor(torch.zeros(0, 3).long(), torch.ones(3), ())
torch.zeros(2, 3, layout=torch.sparse_coo); torch.zeros_like(s); torch.zeros_like(s, layout=torch.strided); torch.empty_like(h)
torch.sparse_csr_tensor([0, 1, 2], [0, 2], [1.0, 2.0]); torch.sparse_csr_tensor([0, 1, 2], [0, 2], [1.0, 2.0], (2, 3)).to_dense()
torch.sparse.spdiags(torch.ones(2, 3), torch.tensor([0, 1]), (3, 3)); torch.nn.Parameter(c); torch.tensor([1.0, 0, 2]).to_sparse()
"""

PARTS = """
s.is_sparse; s.is_sparse_csr; s.layout; s.sparse_dim(); s.dense_dim(); h.sparse_dim(); h.dense_dim(); s._nnz(); s.is_coalesced()
s.indices(); s.values(); c.indices(); c.values(); s._indices(); s._values(); d.indices(); d.values(); d._nnz(); d.coalesce(); d._values()
d.is_coalesced(); d.sparse_dim(); d.dense_dim(); r.crow_indices(); r.col_indices(); r.values(); r._nnz(); r.indices(); c.crow_indices()
s.shape; s.numel(); s.dim(); s.size(0); len(s); s.dtype; s.type(); s.stride(); s.storage_offset(); s.is_contiguous(); s.element_size()
torch.sparse.FloatTensor(2, 3); torch.sparse.DoubleTensor(); torch.sparse.FloatTensor(s._indices(), s._values(), s.shape)
torch.sparse.LongTensor(s._indices(), s._values()); torch.sparse.FloatTensor([1, 2]); torch.sparse.FloatTensor(torch.ones(2))
torch.sparse.FloatTensor(torch.Size([2, 2])); isinstance(s, torch.sparse.FloatTensor); isinstance(s, torch.FloatTensor)
isinstance(torch.ones(2), torch.sparse.FloatTensor); s.type(torch.sparse.DoubleTensor); s.type("torch.sparse.DoubleTensor")
s.storage(); s.untyped_storage(); s.data_ptr(); s.nbytes; s.view(6); s.contiguous(); s.numpy(); s.tolist(); s.item(); s.reshape(6)
s.expand(2, 2, 3); s.as_strided((1,), (1,)); bool(s); s.T; s.mT; s.H; s.t(); s.transpose(0, 1); s.permute(1, 0); h.transpose(0, 1)
h.transpose(0, 2); r.t(); s.coalesce() is s; c.coalesce() is c; s.to(torch.float32) is s; s.double(); s.bool(); n.float(); s.half()
s.clone(); s.detach(); s.data; s.to_dense(); h.to_dense(); r.to_dense(); s.to_dense(torch.float64); d.to_sparse(); d.to_sparse(1)
d.to_sparse(3); d.to_sparse(0); s.to_sparse() is s; s.to_sparse(1); d.to_sparse_csr(); d.to_sparse_csc(); r.to_sparse_coo(); r.to_sparse()
d.sparse_mask(c); d.sparse_mask(s); s.sparse_mask(c); c.sparse_mask(s); torch.ones(3, 3).sparse_mask(s); d.bfloat16().to_sparse()
s[0]; s[0, 2]; s[:, 1]; s[[0, 1]]; s[0:1]; s[-3]; list(s); s.select(0, 1); s.unbind(); s.unsqueeze(0); s.unsqueeze(-1); h.unsqueeze(3)
h[:, :, 1]; s.index_select(0, torch.tensor([1, 0])); s.index_select(1, torch.tensor([2, 2])); s.narrow_copy(0, 1, 1); s.narrow(0, 0, 1)
torch.cat([s, s]); torch.cat([s, s], 1); torch.cat([s, d]); torch.stack([s, s]); torch.cat([h, h], 2); s.squeeze(); s.flatten()
s.clone().sparse_resize_((3, 3), 2, 0); s.clone().sparse_resize_and_clear_((3, 3), 2, 0); torch.is_tensor(s); format(s)[:10]
s.__dlpack__(); s.new_zeros(2, 3); s.new_ones(2); s.new_empty(3); torch.sparse_coo_tensor([[0]], [1.0], (1,)).item()
"""

ARITHMETIC = """
s + s; s + s.clone(); s + c; c + c; c + torch.sparse_coo_tensor([[0], [0]], [1.0], (2, 3)); s + d; d + s; s - d; d - s; s - s; n + s; s + 1
d.int() + s; s - 1; 1 - s; s * 2; 2 * s; s / 2; n / 2; n * 2.5; s * s; s * c; c * s; s * p; p * s; c * p; c * p.coalesce(); s * p.coalesce(); s * d; d * s; s * torch.tensor([1.0, 2, 3]); h * h; h * 2
h + h; s / d; s / s; d / s; s * torch.ones(2, 2); s * torch.tensor(2.0); torch.tensor(2.0) * s; s / torch.tensor(2.0); s + torch.tensor(2.0)
(s * torch.tensor(2.0, dtype=torch.float64)).dtype; torch.add(d, s, alpha=3); torch.sub(s, s, alpha=3); -s; abs(s); +s; s // 2
s.div(2, rounding_mode='floor'); s.sqrt(); s.sin(); s.tanh(); s.relu(); torch.relu(s); s.sign(); s.ceil(); s.isnan(); s.erf(); s.log1p(); s.exp()
s.cos(); s.clamp(0, 1); s.sigmoid(); s ** 2; s.pow(0); s.pow(-1.0); s == s; s > 0; torch.equal(s, s); s.max(); s.mean(); s.any(); s.all()
s.sum(); s.sum(0); s.sum(1); s.sum((0, 1)); s.sum(0, keepdim=True); n.sum(); h.sum(); torch.sparse.sum(s); torch.sparse.sum(s, 0)
torch.sparse.sum(s, [0, 1]); torch.sparse.sum(h, 2); torch.sparse.sum(h, 0); torch.sparse.sum(h, (0, 2)); torch.sparse.sum(s, 2)
torch.sparse.sum(s, [0, 0]); torch.sparse.sum(s, dtype=torch.float64); s.norm(); s.norm(1); torch.norm(s); torch.linalg.vector_norm(s)
torch.sparse.softmax(s, 0); torch.sparse.softmax(s, 1); torch.sparse.log_softmax(s, 1); torch.sparse.softmax(h, 2); torch.sparse.softmax(h, 0)
torch.sparse.softmax(s, 2); torch.sparse.softmax(s, 1, dtype=torch.float64); torch.softmax(s, 1); r * 2; r + r; s.cumsum(0); s.sort()
d.clone().add_(s); d.clone().add_(s, alpha=2); d.clone().sub_(s); d.t().contiguous().t().clone().add_(s); d.long().add_(s); s.long().add_(s)
s.clone().add_(c); s.clone().add_(d); s.clone().sub_(s); s.clone().mul_(2); s.clone().mul_(torch.tensor(2.0)); s.clone().div_(2); s.long().mul_(2.5)
s.clone().neg_(); s.clone().zero_(); s.clone().copy_(c); d.clone().copy_(s); s.clone().copy_(d); s.clone().fill_(2); s.clone().sqrt_()
c.clone().sqrt_(); c.clone().abs_(); d.clone().mul_(s); torch.where(d > 0, s, d); d.masked_fill(d > 0, 1).add(s)
torch.sparse_coo_tensor([[0]], [1.0], (3,)) + torch.sparse_coo_tensor([[0]], [1.0], (4,)); torch.sparse_coo_tensor([[0]], [[1.0, 2, 3]], (2, 3)) + s
"""

PRODUCTS = """
torch.mm(s, d.t()); s @ d.t(); torch.matmul(s, d.t()); d.t() @ s; torch.mm(d.t(), s); s @ s.t(); torch.mm(s, s.t()); torch.sparse.mm(s, s.t())
torch.sparse.mm(s, d.t()); torch.sparse.mm(d.t(), s); s.mv(d[0]); s @ d[0]; torch.spmm(s, d.t()); torch.smm(s, d.t()); torch.hspmm(s, d.t())
torch.addmm(torch.ones(2, 2), s, d.t()); torch.addmm(torch.ones(2, 2), s, d.t(), beta=2, alpha=3); torch.addmm(torch.ones(2), s, d.t())
torch.sparse.addmm(torch.ones(2, 2), s, d.t()); torch.sparse.addmm(torch.ones(2, 2), s, d.t(), beta=2, alpha=3); torch.addmm(s, s, d.t())
torch.nn.functional.linear(d, s); h @ d.t(); torch.bmm(s.unsqueeze(0), d.t().unsqueeze(0))
torch.mm(s, torch.ones(2, 2)); torch.sparse.mm(s, torch.ones(2, 2)); s.mv(torch.ones(2)); torch.mm(s, torch.ones(3, 2).double())
r @ d.t(); r @ d[0]; torch.mm(r, d.t()); torch.sparse.mm(r, d.t()); s.double() @ d.double().t(); s.to(torch.complex64) @ d.t().to(torch.complex64)
torch.mm(s, torch.ones(3, 0)); torch.sparse_coo_tensor((0, 3)) @ torch.ones(3, 2); torch.mm(s, d.t(), out=torch.empty(2, 2))
torch.sparse.mm(r, d.t(), 'sum'); torch.sparse.mm(r, d.t(), 'mean'); torch.sparse.mm(r, d.t(), 'amax'); torch.sparse.mm(s, d.t(), 'sum')
torch.sparse.sampled_addmm(r, torch.ones(2, 2), d); torch.sparse.sampled_addmm(r, torch.ones(2, 2), d, beta=2, alpha=3)
torch.sparse.sampled_addmm(s, torch.ones(2, 2), d); torch.sparse.sampled_addmm(r, torch.ones(2, 3), d); r.sum(); r.relu(); torch.zeros_like(r)
"""


def _listed(*blocks: str) -> list[str]:
    return [e.strip() for block in blocks for line in block.strip().splitlines() for e in line.split("; ") if e.strip()]


@pytest.mark.parametrize("expression", _listed(CONSTRUCTION, PARTS, ARITHMETIC, PRODUCTS))
def test_values_and_errors(expression: str) -> None:
    check(expression)


# -- gradients --------------------------------------------------------------------------------------------------------

FUNCTIONS = {
    "to_dense": "s.to_dense() * d",
    "to_dense unmasked": "s.to_dense(masked_grad=False) * d",
    "values": "s.coalesce().values() * torch.arange(1.0, 4)",
    "coalesce": "s.coalesce().to_dense() * d",
    "mm": "torch.mm(s, d.t()) * w",
    "sparse.mm": "torch.sparse.mm(s, d.t()) * w",
    "dense times sparse": "torch.mm(d.t(), s) * torch.arange(9.0).reshape(3, 3)",
    "sparse.mm of dense and sparse": "torch.sparse.mm(d.t(), s) * torch.arange(9.0).reshape(3, 3)",
    "mv": "s.mv(d[0]) * torch.tensor([1.0, 2])",
    "addmm": "torch.addmm(torch.ones(2, 2), s, d.t(), beta=2, alpha=3) * w",
    "sparse.addmm": "torch.sparse.addmm(torch.ones(2, 2), s, d.t(), beta=2, alpha=3) * w",
    "sparse.mm of two": "torch.sparse.mm(s, s.t()).to_dense() * w",
    "mm of two": "torch.mm(s, s.t()).to_dense() * w",
    "sum": "s.sum()",
    "sparse.sum": "torch.sparse.sum(s)",
    "sparse.sum over rows": "torch.sparse.sum(s, 0).to_dense() * torch.tensor([1.0, 2, 3])",
    "s + s": "(s + s).to_dense() * d",
    "d + s": "(d + s) * d",
    "s * 2": "(s * 2).to_dense() * d",
    "s / 2": "(s / 2).to_dense() * d",
    "s * s": "(s * s).to_dense() * d",
    "s * d": "(s * d).to_dense() * d",
    "neg": "(-s).to_dense() * d",
    "abs": "s.abs().to_dense() * d",
    "relu": "s.relu().to_dense() * d",
    "pow": "(s**2).to_dense() * d",
    "t": "s.t().to_dense() * d.t()",
    "permute": "s.permute(1, 0).to_dense() * d.t()",
    "clone": "s.clone().to_dense() * d",
    "double": "s.double().to_dense() * d",
    "sparse_mask": "d.sparse_mask(s.detach().coalesce()).to_dense() * d",
    "to_sparse": "d.to_sparse().to_dense() * d",
    "softmax": "torch.sparse.softmax(s, 1).to_dense() * d",
    "log_softmax": "torch.sparse.log_softmax(s, 1).to_dense() * d",
}


def gradients(library: Any, expression: str, coalesced: bool) -> list[Any]:
    names: dict[str, Any] = {"torch": library}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(SETUP + "w = torch.tensor([[1.0, 2.0], [3.0, 4.0]])", names)
        names["s"] = names["c" if coalesced else "s"].detach().requires_grad_()
        names["d"].requires_grad_()
        result = eval(expression, names)
        result.sum().backward()
    found = []
    for grad in (names["s"].grad, names["d"].grad):
        if grad is None:
            found.append(None)
        else:
            found.append((str(grad.layout), grad.to_dense().tolist()))
    return [result.grad_fn.name(), *found]


@pytest.mark.parametrize("coalesced", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name: str, coalesced: bool) -> None:
    expected = gradients(torch, FUNCTIONS[name], coalesced)
    found = gradients(flambeau, FUNCTIONS[name], coalesced)
    assert [f if f is None or isinstance(f, str) else f[0] for f in found] == [
        e if e is None or isinstance(e, str) else e[0] for e in expected
    ]
    for f, e in zip(found[1:], expected[1:]):
        if e is not None:
            for row_f, row_e in zip(f[1], e[1]):
                assert row_f == pytest.approx(row_e, abs=1e-5)


@pytest.mark.parametrize("product", ["torch.mm", "torch.sparse.mm"])
def test_gradient_of_the_values_given_to_the_constructor(product: str) -> None:
    found = []
    for library in (torch, flambeau):
        names: dict[str, Any] = {"torch": library}
        exec(SETUP + "v.requires_grad_()\nx = torch.sparse_coo_tensor(i, v, (2, 3))", names)
        text = repr(names["x"])
        (eval(product, names)(names["x"], names["d"].t()).sum() + names["x"].to_dense().sum()).backward()
        found.append((text, names["v"].grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "expression",
    [
        "torch.sparse.mm(r, d.t()) * w",
        "torch.sparse.mm(r, d.t(), 'mean') * w",
        "torch.sparse.mm(r, d.t(), 'amax') * w",
        "torch.sparse.sampled_addmm(r, w, d, beta=2, alpha=3).to_dense() * d",
        "r.to_dense() * d",
        "(r * 3).to_dense() * d",
    ],
)
def test_gradients_of_compressed_rows(expression: str) -> None:
    found = []
    for library in (torch, flambeau):
        names: dict[str, Any] = {"torch": library}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(SETUP + "w = torch.tensor([[1.0, 2.0], [3.0, 4.0]])", names)
            names["r"].requires_grad_()
            names["d"].requires_grad_()
            eval(expression, names).sum().backward()
        found.append([names[n].grad.to_dense().tolist() for n in ("r", "d")])
    assert found[1] == [[pytest.approx(row) for row in rows] for rows in found[0]]


def test_second_derivative_through_a_sparse_product() -> None:
    def run(library: Any) -> list:
        a = library.sparse_coo_tensor([[0, 1, 1], [1, 0, 2]], [1.0, 2.0, 3.0], (2, 3))
        x = library.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
        (g,) = library.autograd.grad(((a @ x) ** 3).sum(), x, create_graph=True)
        (gg,) = library.autograd.grad((g * g).sum(), x)
        return gg.tolist()

    assert run(flambeau) == run(torch)


# -- objects ---------------------------------------------------------------------------------------------------------


def test_values_share_memory_with_what_was_given() -> None:
    values = flambeau.tensor([1.0, 2.0])
    s = flambeau.sparse_coo_tensor([[0, 1]], values, (2,), is_coalesced=True)
    values[0] = 9
    assert s.to_dense().tolist() == [9, 2]
    s.values().mul_(2)
    assert values.tolist() == [18, 4]


@pytest.mark.parametrize("remake", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies_and_pickles(remake: Any) -> None:
    s = flambeau.sparse_coo_tensor([[0, 1, 0]], [1.0, 2.0, 3.0], (2,), requires_grad=True)
    for t in (s, s.detach().coalesce()):
        again = remake(t)
        assert repr(again) == repr(t) and again.is_coalesced() == t.is_coalesced()
    r = s.detach().unsqueeze(0).to_sparse_csr()
    assert repr(remake(r)) == repr(r)


def test_indices_outside_the_tensor_raise_where_they_are_used() -> None:
    for place in (5, -1):
        s = flambeau.sparse_coo_tensor([[0, place]], [1.0, 2.0], (3,))
        for use in (
            s.to_dense,
            s.coalesce,
            lambda: s + s,
            lambda: flambeau.ones(3) + s,
            lambda: s.unsqueeze(0) @ flambeau.ones(3, 1),
        ):
            with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
                use()
    with pytest.raises(RuntimeError, match="col_indices"):
        flambeau.sparse_csr_tensor([0, 1, 2], [0, 7], [1.0, 2.0], (2, 3))


def spellings() -> list[str]:
    """Every public way to write an operator that takes a tensor: torch.relu, torch.fft.fft, Tensor.relu ..."""
    found = []
    for op in flambeau.ops.OPS.values():
        if op.kind in ("creation", "random"):
            continue
        found += [op.name if space == "torch" else f"{space}.{op.name}" for space in op.namespaces]
        found += [f"Tensor.{op.name}"] if op.method is not None else []
    return sorted(set(found))


def of_sparse(library: Any, spelling: str) -> tuple[Any, ...]:
    """What an operator makes of a sparse tensor: its error, or its layout and dense values, or a plain object."""
    tensor = library.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2))
    method = spelling.removeprefix("Tensor.")
    try:
        result = getattr(tensor, method)() if method != spelling else operator.attrgetter(spelling)(library)(tensor)
        tensors = isinstance(result, library.Tensor)
        dense = result.to_dense() if tensors and result.layout is not library.strided else result
    except Exception as problem:  # which kind it is, is what the tests are about
        return ("error", type(problem))
    if not tensors:
        return ("object", type(result).__name__, result if isinstance(result, (bool, int)) else None)
    return ("tensor", str(result.layout), tuple(dense.shape), dense.flatten().tolist())


def agree(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    *kind, numbers = theirs
    return list(ours) == [*kind, pytest.approx(numbers, nan_ok=True) if kind[0] == "tensor" else numbers]


# Where Flambeau knows more, or less, of sparse tensors than PyTorch; every other operator is as there.
COMPUTED_HERE_ONLY = [
    "Tensor.chalf",
    "Tensor.sum_to_size",
    "detach_copy",
    "from_dlpack",
    "linalg.norm",
    "t_copy",
    "unbind_copy",
]
REFUSED_HERE_ONLY = ["pca_lowrank"]
# One checks the layout first, the other the arguments that are missing here or the number of dimensions.
REFUSED_OTHERWISE = [
    "Tensor.dsplit", "Tensor.histogram", "Tensor.repeat_interleave", "Tensor.resize_", "dsplit", "histogram",
    "linalg.multi_dot",
]  # fmt: skip


def test_every_operator_computes_or_refuses_a_sparse_tensor_as_in_pytorch() -> None:
    computed, refused, otherwise, different = [], [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for spelling in spellings():
            if spelling.startswith("quantized_"):
                continue  # they are there once layers of quantized tensors have been imported
            try:
                operator.attrgetter(spelling)(torch)
            except AttributeError:
                continue  # Flambeau's own
            ours, theirs = of_sparse(flambeau, spelling), of_sparse(torch, spelling)
            if ours[0] == "error" and theirs[0] == "error":
                if not issubclass(ours[1], RuntimeError if issubclass(theirs[1], RuntimeError) else theirs[1]):
                    otherwise.append(spelling)
            elif theirs[0] == "error":
                computed.append(spelling)
            elif ours[0] == "error" and issubclass(ours[1], NotImplementedError):
                refused.append(spelling)
            elif not agree(ours, theirs):
                different.append(spelling)
    assert not different
    assert computed == COMPUTED_HERE_ONLY
    assert refused == REFUSED_HERE_ONLY
    assert otherwise == REFUSED_OTHERWISE


def test_an_operator_without_a_sparse_form_names_itself_and_the_layout() -> None:
    s = flambeau.sparse_coo_tensor([[0]], [1.0], (2,))
    with pytest.raises(NotImplementedError, match=r"aten::exp.*SparseCPU"):
        s.exp()
    with pytest.raises(NotImplementedError, match=r"aten::cumsum.*SparseCPU"):
        flambeau.cumsum(s, 0)


def test_saved_sparse_tensor_changed_in_place_is_noticed() -> None:
    a = flambeau.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2))
    x = flambeau.ones(2, 2, requires_grad=True)
    y = a @ x
    a.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_large_coalesce_and_product_match() -> None:
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, 60, (2, 4000), generator=generator)
    values = torch.randn(4000, generator=generator)
    x = torch.randn(60, 33, generator=generator)
    expected = torch.sparse_coo_tensor(index, values, (60, 60))
    s = flambeau.sparse_coo_tensor(flambeau.tensor(index.tolist()), flambeau.tensor(values.tolist()), (60, 60))
    ours, theirs = s.coalesce(), expected.coalesce()
    assert ours.indices().tolist() == theirs.indices().tolist()
    assert flambeau.allclose(ours.values(), flambeau.tensor(theirs.values().tolist()), atol=1e-5)
    table = flambeau.tensor(x.tolist())
    for a, b in ((s @ table, expected @ x), (s.t() @ table, expected.t() @ x), (ours @ table, theirs @ x)):
        assert flambeau.allclose(a, flambeau.tensor(b.tolist()), atol=1e-4)


COMPRESSED = """
a, c = torch.eye(4).to_sparse_csr(), torch.eye(4).to_sparse_csc()
b = torch.eye(4).to_sparse_bsr((2, 2))
"""


@pytest.mark.parametrize(
    "question",
    [
        "torch.empty_like(a, layout=torch.sparse_csc)", "torch.empty_like(b, layout=torch.sparse_csr)", "torch.empty_like(a, layout=torch.strided)",
        "torch.empty_like(a).values().shape", "torch.empty_like(b).values().shape", "torch.empty_like(a, dtype=torch.float64).dtype",
        "torch.zeros_like(a, layout=torch.sparse_csc)", "torch.zeros_like(a).values().shape", "a.clone().copy_(c)", "b.clone().copy_(a)",
        "a.clone().copy_(torch.ones(4, 4))", "a.clone().copy_(torch.ones(4, 4).to_sparse_csr())", "a.clone().copy_(a * 3)",
    ],
)  # fmt: skip
def test_compressed_tensors_keep_their_layout_and_places(agrees, question):
    agrees(question, COMPRESSED)
