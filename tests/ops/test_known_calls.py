"""Calls that were planned before take a short way: it gives the same results and the same errors as the first call."""

from __future__ import annotations

import pytest

import flambeau as fl
from flambeau.backends.cpu import heavy, onednn

F = fl.nn.functional

PRODUCTS = {
    "mm": lambda a, b: fl.mm(a, b),
    "mm transposed": lambda a, b: fl.mm(b.T, a.T),
    "mm of a part": lambda a, b: fl.mm(a[1:], b[:, 1:]),
    "mv": lambda a, b: fl.mv(a, b[:, 0]),
    "dot": lambda a, b: fl.dot(a[0], b[:, 1]),
    "bmm": lambda a, b: fl.bmm(a.expand(3, 4, 8), b.expand(3, 8, 5)),
    "linear": lambda a, b: F.linear(a, b.T.contiguous(), b[0].contiguous()),
    "linear without bias": lambda a, b: F.linear(a, b.T),
    "linear of a batch": lambda a, b: F.linear(a.view(2, 2, 8), b.T, b[0]),
    "linear of a vector": lambda a, b: F.linear(a[0], b.T, b[1]),
    "linear of a turned batch": lambda a, b: F.linear(a.view(2, 2, 8).transpose(0, 1), b.T, b[1]),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.bfloat16, fl.int64], ids=str)
def test_a_known_product_equals_the_first(name: str, dtype: fl.dtype) -> None:
    run = PRODUCTS[name]
    onednn.reset() if onednn.available() else None
    for seed in range(3):  # new memory each time: nothing of an earlier call may be left
        fl.manual_seed(seed)
        a, b = (fl.randn(4, 8) * 4).to(dtype), (fl.randn(8, 5) * 4).to(dtype)
        result = run(a, b)
        before = heavy.set_onednn_enabled(False)
        try:
            expected = run(a, b)
        finally:
            heavy.set_onednn_enabled(before)
        tolerance = {fl.float32: 1e-4, fl.float64: 1e-10, fl.bfloat16: 0.5, fl.int64: 0}[dtype]
        assert fl.allclose(result.double(), expected.double(), rtol=1e-2 if dtype is fl.bfloat16 else 0, atol=tolerance)
        assert (result.shape, result.stride(), result.dtype) == (expected.shape, expected.stride(), expected.dtype)
        assert result._base is None


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_known_product_is_recorded(name: str) -> None:
    run = PRODUCTS[name]
    gradients = []
    for _ in range(2):
        fl.manual_seed(0)
        a, b = fl.randn(4, 8, requires_grad=True), fl.randn(8, 5, requires_grad=True)
        run(a, b).sum().backward()
        gradients.append((a.grad, b.grad))
    assert all(fl.equal(x, y) for x, y in zip(*gradients, strict=True))


def test_errors_after_known_products() -> None:
    a, b = fl.randn(4, 8), fl.randn(8, 4)
    for _ in range(2):
        fl.mm(a, b)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        fl.mm(a, a)
    with pytest.raises(RuntimeError, match="same dtype"):
        fl.mm(a, b.double())
    with pytest.raises(RuntimeError, match="same device"):
        fl.mm(a, b.to("meta"))
    assert fl.mm(a.to("meta"), b.to("meta")).device.type == "meta"
