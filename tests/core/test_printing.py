"""Printed tensors against PyTorch's, character by character."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau.core import dtype as dt
from flambeau.core import print_options, printing
from flambeau.core.bfloat16 import float32_to_bits
from flambeau.core.printing import Component, sparse_repr, tensor_repr

nan, inf = math.nan, math.inf


def show(values: Any, kind: dt.dtype = dt.float32, **details: Any) -> str:
    elements = float32_to_bits(np.array(values, np.float32)) if kind is dt.bfloat16 else np.array(values, kind.numpy)
    return tensor_repr(elements, kind, default_float_dtype=dt.float32, **details)


@pytest.fixture(autouse=True)
def default_options():
    print_options.set_printoptions(profile="default")
    yield
    print_options.set_printoptions(profile="default")


# Torch-free -----------------------------------------------------------------------------------------------------------

GOLDEN = [
    ("tensor(1.5000)", show, (1.5,), {}),
    ("tensor(3)", show, (3, dt.int64), {}),
    ("tensor(True)", show, (True, dt.bool_), {}),
    ("tensor([ True, False])", show, ([True, False], dt.bool_), {}),
    ("tensor([1., 2.])", show, ([1, 2],), {}),
    ("tensor([  -inf, 1.5000,    nan])", show, ([-inf, 1.5, nan],), {}),
    ("tensor([nan, 0.])", show, ([nan, 0],), {}),
    ("tensor([1.0000e+00, 1.0000e-05])", show, ([1, 1e-5],), {}),
    ("tensor([1.0000e+09])", show, ([1e9],), {}),
    ("tensor([1., 2.], dtype=torch.float64)", show, ([1, 2], dt.float64), {}),
    ("tensor([0.1001, 2.0000], dtype=torch.bfloat16)", show, ([0.1, 2], dt.bfloat16), {}),
    ("tensor([1.+2.j, nan-infj])", show, ([1 + 2j, complex(nan, -inf)], dt.complex64), {}),
    ("tensor([1, 2], dtype=torch.uint64)", show, ([1, 2], dt.uint64), {}),
    ("tensor([])", show, ([],), {}),
    ("tensor([], dtype=torch.int64)", show, ([], dt.int64), {}),
    ("tensor([], size=(0, 3))", show, (np.zeros((0, 3)),), {}),
    ("tensor([[1., 2.],\n        [3., 4.]])", show, ([[1, 2], [3, 4]],), {}),
    ("tensor([1.], requires_grad=True)", show, ([1],), {"requires_grad": True}),
    ("tensor([1.], grad_fn=<AddBackward0>)", show, ([1],), {"requires_grad": True, "grad_fn_name": "AddBackward0"}),
    ("tensor([1.], device='cuda:0')", show, ([1],), {"device": "cuda:0"}),
    ("Mine([1.])", show, ([1],), {"prefix": "Mine("}),
]


@pytest.mark.parametrize("expected, action, arguments, details", GOLDEN, ids=[row[0][:40] for row in GOLDEN])
def test_golden_text(expected, action, arguments, details):
    assert action(*arguments, **details) == expected


def test_golden_summary():
    assert show(np.arange(2000), dt.int64) == "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"
    assert show(np.arange(1200).reshape(40, 30), dt.int64) == (
        "tensor([[   0,    1,    2,  ...,   27,   28,   29],\n"
        "        [  30,   31,   32,  ...,   57,   58,   59],\n"
        "        [  60,   61,   62,  ...,   87,   88,   89],\n"
        "        ...,\n"
        "        [1110, 1111, 1112,  ..., 1137, 1138, 1139],\n"
        "        [1140, 1141, 1142,  ..., 1167, 1168, 1169],\n"
        "        [1170, 1171, 1172,  ..., 1197, 1198, 1199]])"
    )


def test_golden_parameter():
    text = show(np.zeros((2, 3)), requires_grad=True, prefix="Parameter containing:\ntensor(")
    assert text == "Parameter containing:\ntensor([[0., 0., 0.],\n        [0., 0., 0.]], requires_grad=True)"


def test_golden_meta_and_sparse():
    meta = tensor_repr(None, dt.int64, shape=(2,), device="meta", default_float_dtype=dt.float32)
    assert meta == "tensor(..., device='meta', size=(2,), dtype=torch.int64)"
    with pytest.raises(ValueError, match="shape"):
        tensor_repr(None, dt.int64, default_float_dtype=dt.float32)
    parts = [Component("indices", np.array([[0, 1], [0, 1]]), dt.int64), Component("values", np.ones(2), dt.float64)]
    text = sparse_repr(parts, layout="torch.sparse_coo", size=(2, 2), nnz=2, default_float_dtype=dt.float64)
    assert text == (
        "tensor(indices=tensor([[0, 1],\n                       [0, 1]]),\n       values=tensor([1., 1.]),\n"
        "       size=(2, 2), nnz=2, layout=torch.sparse_coo)"
    )


def test_huge_tensors_print_at_once():
    # 10**14 elements in 8 bytes: touching more than the shown ones would never end.
    huge = np.lib.stride_tricks.as_strided(np.zeros(4), (10**7, 10**7, 3), (0, 0, 8))
    text = tensor_repr(huge, dt.float64, default_float_dtype=dt.float64)
    assert text.count("...") == 7 and text.count("0.") == 6 * 6 * 3


def test_a_gathered_summary_prints_as_the_whole():
    whole = np.arange(3000.0).reshape(30, 100)
    index = printing.summary_index(whole.shape)
    part = whole[np.ix_(*index)]
    assert part.shape == (6, 6)
    expected = tensor_repr(whole, dt.float64, default_float_dtype=dt.float32)
    assert tensor_repr(part, dt.float64, shape=whole.shape, default_float_dtype=dt.float32) == expected
    assert printing.summary_index((10, 10)) is None


def test_options_and_context():
    print_options.set_printoptions(precision=2, sci_mode=True)
    assert show([1.5]) == "tensor([1.50e+00])"
    print_options.set_printoptions(linewidth=30)
    assert print_options.get_printoptions() == {
        "precision": 2, "threshold": 1000, "edgeitems": 3, "linewidth": 30, "sci_mode": None,
    }  # fmt: skip
    with pytest.raises(KeyError), print_options.printoptions(precision=1, profile="full"):
        assert print_options.get_printoptions()["threshold"] == inf
        assert show([1.25, 2]) == "tensor([1.2, 2.0])"
        raise KeyError
    assert print_options.get_printoptions()["linewidth"] == 30 and print_options.get_printoptions()["precision"] == 2
    with pytest.raises(TypeError):
        print_options.set_printoptions(digits=3)


class Scalar:
    is_meta = False

    def __init__(self, value: Any, dims: int = 0):
        self.value, self.dims = value, dims

    def dim(self) -> int:
        return self.dims

    def item(self) -> Any:
        return self.value

    def __format__(self, spec: str) -> str:
        return printing.format_tensor(self, spec, Scalar)


def test_format_of_scalars():
    assert f"{Scalar(1.23456):.3f}" == "1.235" and f"{Scalar(3):5d}" == "    3" and f"{Scalar(True)}" == "True"
    assert "Scalar object" in f"{Scalar(1.5, dims=1)}"
    with pytest.raises(TypeError, match=r"unsupported format string passed to Scalar.__format__"):
        f"{Scalar(1.5, dims=1):.3f}"


# Against PyTorch ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return judge("torch")


@pytest.fixture(autouse=True)
def default_torch_options(request):
    yield
    if "torch" in request.fixturenames:
        library = request.getfixturevalue("torch")
        library.set_printoptions(profile="default")
        library.set_default_dtype(library.float32)


def elements_of(torch: Any, tensor: Any) -> tuple[np.ndarray, dt.dtype]:
    kind = dt.BY_NAME[str(tensor.dtype).removeprefix("torch.")]
    tensor = tensor.detach()
    return (tensor.view(torch.int16).numpy().view(np.uint16) if kind is dt.bfloat16 else tensor.numpy()), kind


def ours(torch: Any, tensor: Any, **details: Any) -> str:
    default = dt.BY_NAME[str(torch.get_default_dtype()).removeprefix("torch.")]
    return tensor_repr(*elements_of(torch, tensor), default_float_dtype=default, **details)


def random_values(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    values = rng.standard_normal(shape)
    if rng.random() < 0.5:
        values = values * 10.0 ** rng.uniform(-12, 12)
    if rng.random() < 0.3:
        values = np.round(values)
    if rng.random() < 0.3:
        values = values * np.exp(3 * rng.standard_normal(shape))
    if rng.random() < 0.15:
        values = values * 0
    if rng.random() < 0.3:
        values = np.where(rng.random(shape) < 0.3, rng.choice([0.0, -0.0, nan, inf, -inf]), values)
    return np.asarray(values)


def random_tensor(torch: Any, rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Any:
    values = random_values(rng, shape)
    if name.startswith("complex"):
        both = np.empty(shape, np.complex128)
        both.real, both.imag = values, random_values(rng, shape)
        return torch.from_numpy(both).to(getattr(torch, name))
    if dt.BY_NAME[name].category < 2:
        values = np.clip(np.nan_to_num(values, posinf=0, neginf=0), -1e18, 1e18).astype(np.int64)
    return torch.from_numpy(np.asarray(values)).to(getattr(torch, name))


def random_shape(rng: np.random.Generator) -> tuple[int, ...]:
    dims = int(rng.choice([0, 1, 1, 2, 2, 3, 4]))
    sizes = [int(n) for n in rng.choice([0, 1, 2, 3, 5, 6, 7, 8, 12, 30], dims)]
    if dims and rng.random() < 0.1:
        sizes[int(rng.integers(dims))] = int(rng.choice([100, 1001]))
    return tuple(sizes) if math.prod(sizes) < 20000 else tuple(min(n, 7) for n in sizes)


def random_options(rng: np.random.Generator) -> dict[str, Any]:
    def pick(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    if rng.random() < 0.5:
        return {}
    return {
        "precision": pick(None, 0, 1, 2, 8),
        "threshold": pick(None, 0, 5, 50),
        "edgeitems": pick(None, 0, 1, 2, 4),
        "linewidth": pick(None, 5, 20, 40, 120),
        "profile": pick(None, None, "short", "full", "default", "unknown"),
        "sci_mode": pick(None, None, True, False),
    }


@pytest.mark.parametrize("name", [d.name for d in dt.ALL_DTYPES])
def test_random_tensors_print_as_in_torch(torch, name):
    rng = np.random.default_rng([ord(letter) for letter in name])
    for _ in range(150):
        tensor = random_tensor(torch, rng, name, random_shape(rng))
        settings = random_options(rng)
        default = rng.choice(["float32", "float32", "float64", "float16", "bfloat16"])
        torch.set_default_dtype(getattr(torch, default))
        details: dict[str, Any] = {}
        if dt.BY_NAME[name].category >= 2 and rng.random() < 0.4:
            tensor.requires_grad_(True)
            details["requires_grad"] = True
            if rng.random() < 0.5:
                tensor = tensor.view_as(tensor)
                details["grad_fn_name"] = tensor.grad_fn.name()
        for library in (torch, print_options):
            library.set_printoptions(profile="default")
            library.set_printoptions(**settings)
        expected = repr(tensor)
        assert ours(torch, tensor, **details) == expected, (tuple(tensor.shape), settings, default)


@pytest.mark.parametrize("name", [d.name for d in dt.ALL_DTYPES if d.numpy.kind != "u" or d.itemsize == 1])
@pytest.mark.parametrize("side", [2, 5, 40])
def test_sparse_tensors_print_as_in_torch(torch, name, side):
    generator = torch.Generator().manual_seed(side)
    dense = (torch.rand(side, side, generator=generator) * 10).to(getattr(torch, name))
    made = [dense.to_sparse(), (dense * 0).to_sparse()]
    made += [dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((1, 1)), dense.to_sparse_bsc((1, 1))]
    made += [(dense * 0).to_sparse_csr()]
    for tensor in made:
        assert ours_sparse(torch, tensor) == repr(tensor)


def ours_sparse(torch: Any, tensor: Any, **details: Any) -> str:
    by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    if tensor.layout is torch.sparse_coo:
        parts = {"indices": tensor._indices(), "values": tensor._values()}
    elif by_row:
        parts = {"crow_indices": tensor.crow_indices(), "col_indices": tensor.col_indices(), "values": tensor.values()}
    else:
        parts = {"ccol_indices": tensor.ccol_indices(), "row_indices": tensor.row_indices(), "values": tensor.values()}
    components = [Component(name, *elements_of(torch, part)) for name, part in parts.items()]
    layout, nnz = str(tensor.layout), tensor._nnz()
    return sparse_repr(components, layout=layout, size=tensor.shape, nnz=nnz, default_float_dtype=dt.float32, **details)


def test_sparse_gradients_and_meta_print_as_in_torch(torch):
    leaf = torch.rand(3, 3, requires_grad=True)
    derived = leaf.to_sparse()
    assert ours_sparse(torch, derived, grad_fn_name=derived.grad_fn.name()) == repr(derived)
    own = torch.rand(3, 3).to_sparse().requires_grad_()
    assert ours_sparse(torch, own, requires_grad=True) == repr(own)
    parts = [Component("indices", None, dt.int64, (2, 0)), Component("values", None, dt.float32, (0,))]
    meta = torch.sparse_coo_tensor(size=(2, 3), device="meta")
    assert repr(meta) == sparse_repr(
        parts, layout="torch.sparse_coo", size=(2, 3), nnz=None, default_float_dtype=dt.float32, device="meta"
    )


@pytest.mark.parametrize("name", [d.name for d in dt.ALL_DTYPES])
def test_meta_tensors_print_as_in_torch(torch, name):
    for shape in ((), (2,), (0, 3), (4, 5, 6)):
        theirs = torch.empty(shape, device="meta", dtype=getattr(torch, name))
        mine = tensor_repr(None, dt.BY_NAME[name], shape=shape, device="meta", default_float_dtype=dt.float32)
        assert mine == repr(theirs)


def test_wrapped_tensors_print_as_in_torch(torch):
    parameter = torch.nn.Parameter(torch.randn(30, 40))
    prefix = "Parameter containing:\ntensor("
    assert ours(torch, parameter, requires_grad=True, prefix=prefix) == repr(parameter)

    class Special(torch.Tensor):
        pass

    values = torch.randn(30, 40)
    assert ours(torch, values, prefix="Special(") == repr(values.as_subclass(Special))
    assert ours(torch, values, layout="torch._mkldnn") == repr(values.to_mkldnn())
    assert ours(torch, values, contents="[hidden]") == values.__repr__(tensor_contents="[hidden]")
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(values[:3, :3], values[3:6, :3])
        assert ours(torch, values[:3, :3], tangent=ours(torch, values[3:6, :3])) == repr(dual)


def test_batched_tensors_print_as_in_torch(torch):
    values, seen = torch.randn(2, 3), []
    torch.func.vmap(lambda x: seen.append(repr(x)) or x)(values)
    flambeau.func.vmap(lambda x: seen.append(repr(x)) or x)(flambeau.tensor(values.numpy()))
    assert seen[0] == seen[1]
