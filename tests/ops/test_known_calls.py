"""Calls that were planned before take a short way: it gives the same results and the same errors as the first call."""

from __future__ import annotations

import pytest

import flambeau as fl
from flambeau.backends.cpu import heavy, onednn
from flambeau.ops.index import indexing

F = fl.nn.functional

PRODUCTS = {
    "mm": lambda a, b: fl.mm(a, b),
    "mm transposed": lambda a, b: fl.mm(b.T, a.T),
    "mm of a part": lambda a, b: fl.mm(a[1:], b[:, 1:]),
    "mm of repeated rows": lambda a, b: fl.mm(a[:1].expand(4, 8), b[:, :1].expand(8, 5)),
    "bmm of repeated matrices": lambda a, b: fl.bmm(a.expand(3, 4, 8), b[:1].expand(3, 8, 5)),
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


INDEX = fl.tensor([0, 2, -1])
GRID = fl.tensor([[1], [3]])
KEYS = {
    "tensor": INDEX,
    "grid": GRID,
    "two tensors": (INDEX, INDEX),
    "broadcast tensors": (INDEX, GRID),
    "column": (slice(None), INDEX),
    "apart": (INDEX, slice(None), INDEX),
    "last": (slice(None), slice(None), INDEX),
    "int32": INDEX.int(),
    "mask": fl.arange(4 * 5 * 6).reshape(4, 5, 6) % 3 == 0,
    "empty mask": fl.zeros(4, 5, 6, dtype=fl.bool),
    "full mask": fl.ones(4, 5, 6, dtype=fl.bool),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("turned", [False, True])
def test_short_ways_of_indexing_equal_the_general_one(name: str, turned: bool) -> None:
    key = KEYS[name]
    whole = fl.arange(4.0 * 5 * 6).reshape(4, 5, 6)
    t = whole.permute(2, 1, 0).contiguous().permute(2, 1, 0) if turned else whole
    part, tensors = indexing.apply_basic(t, key)
    general = indexing.index(part, tensors)
    short = t[key]
    assert fl.equal(short, general)
    assert short.stride() == general.stride() or 0 in short.shape
    written, expected = t.clone(), t.clone()
    written[key] = -1.0
    part, tensors = indexing.apply_basic(expected, key)
    indexing.put_raw(part, tensors, fl.tensor(-1.0), False)
    assert fl.equal(written, expected)
    assert written._version == 1


@pytest.mark.parametrize("key", [(INDEX, INDEX, INDEX, INDEX), fl.tensor([4]), fl.tensor([-5]), fl.tensor([1.5])])
def test_short_ways_of_indexing_refuse_what_the_general_one_refuses(key: object) -> None:
    t = fl.zeros(4, 5, 6)
    with pytest.raises(IndexError) as general:
        part, tensors = indexing.apply_basic(t, key)
        indexing.index(part, tensors)
    with pytest.raises(IndexError) as short:
        t[key]
    assert str(short.value) == str(general.value)


PLAIN_KEYS = [None, ..., (..., None), (None, ...), (..., 0), (0, ..., None), (slice(1, 3), None), (..., slice(None, None, 2)),
              (0, 1, 2), (0, 1, 2, ...), (..., 0, 1, 2, None), (slice(5, 2),)]  # fmt: skip


@pytest.mark.parametrize("key", PLAIN_KEYS, ids=str)
def test_views_by_one_step_equal_those_of_many(key: object) -> None:
    t = fl.arange(4.0 * 5 * 6).reshape(4, 5, 6)[:, 1:]
    short = t[key]
    general, _ = indexing.apply_basic(t, key)
    assert (short.shape, short.stride(), short.storage_offset()) == (
        general.shape,
        general.stride(),
        general.storage_offset(),
    )


@pytest.mark.parametrize("key", [(0, 1, 2, 3), (..., 0, 1, 2, 3), (4,), (..., slice(None, None, -1))], ids=str)
def test_wrong_views_are_refused(key: object) -> None:
    with pytest.raises((IndexError, ValueError)):
        fl.zeros(4, 5, 6)[key]


@pytest.mark.parametrize(
    "dtype", [fl.float32, fl.float64, fl.int64, fl.int32, fl.int16, fl.int8, fl.uint8, fl.bool], ids=str
)
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1, 4), (1,), (0,), (2, 0), ()], ids=str)
def test_tolist_of_small_tensors(dtype: fl.dtype, shape: tuple[int, ...]) -> None:
    t = (fl.arange(2 * 3 * 8)[: fl.empty(shape).numel()].reshape(shape) - 3).to(dtype)
    assert t.tolist() == t.numpy().tolist()
    if shape and t.numel():
        assert t[1:].tolist() == t.numpy()[1:].tolist()
        assert t.T.tolist() == t.numpy().T.tolist() if t.dim() < 3 else True
        assert all(type(v) is (bool if dtype is fl.bool else type(t.flatten()[0].item())) for v in t.flatten().tolist())


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.int64, fl.uint8, fl.bool], ids=str)
@pytest.mark.parametrize("count", [6, 6000])
def test_equal_of_few_and_many(dtype: fl.dtype, count: int) -> None:
    a = (fl.arange(count).reshape(2, -1) % 2).to(dtype)
    b = a.clone()
    assert fl.equal(a, b) is True
    assert fl.equal(a, b.T.contiguous().T) is True
    b[1, -1] = 0
    assert fl.equal(a, b) is False
    assert fl.equal(a, a.reshape(-1)) is False
    if dtype.is_floating_point:
        a[0, 0], b = float("nan"), fl.zeros(2, count // 2, dtype=dtype)
        assert fl.equal(a, a) is False
        assert fl.equal(b, -b) is True
