"""Indexing, sorting and counting on devices other than the CPU: one whose memory the host cannot read, and meta."""

from __future__ import annotations

import pytest

import flambeau
from flambeau.core import backend
from tests.backends.toy_device import ToyBackend
from tests.door import Door


@pytest.fixture(scope="module", autouse=True)
def toy():
    if not backend.BACKENDS.get("toy"):
        backend.register("toy", ToyBackend())


def written(x, key, value):
    x[key] = value
    return x


def rows(x):
    return flambeau.tensor([0, -1], device=x.device)


def at(x):
    return flambeau.tensor([[1, 0, 2, 1, 1]], device=x.device)


CASES = {
    "row": lambda x: x[1],
    "slices": lambda x: x[1:, None, ::2],
    "rows": lambda x: x[rows(x)],
    "rows by indices on the CPU": lambda x: x[flambeau.tensor([0, -1])],
    "columns": lambda x: x[:, rows(x)],
    "two indices": lambda x: x[rows(x), rows(x)],
    "written row": lambda x: written(x, 1, 3.0),
    "written rows": lambda x: written(x, rows(x), 3.0),
    "written rows of a tensor": lambda x: written(x, rows(x), x[:2] * 2),
    "masked fill": lambda x: x.masked_fill_(x > 0, 1.0),
    "index_put": lambda x: x.index_put((rows(x),), x[0], accumulate=True),
    "gather": lambda x: x.gather(0, at(x)),
    "scatter": lambda x: x.scatter(0, at(x), 7.0),
    "scatter_add_": lambda x: x.scatter_add_(0, at(x), x[:1] + 1),
    "scatter_reduce": lambda x: x.scatter_reduce(0, at(x), x[:1] + 1, "mean", include_self=False),
    "index_select": lambda x: x.index_select(1, flambeau.tensor([4, 0], device=x.device)),
    "index_add_": lambda x: x.index_add_(0, flambeau.tensor([1], device=x.device), x[:1], alpha=2),
    "index_fill": lambda x: x.index_fill(1, rows(x), 2.0),
    "take": lambda x: x.take(rows(x)),
    "put_": lambda x: x.put_(rows(x), x[0, :2] + 1),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x.flatten()),
    "sort": lambda x: x.sort(0)[1],
    "long sort": lambda x: (x.reshape(20, 1) - x.reshape(1, 20)).flatten().sort()[0],
    "topk": lambda x: x.topk(3)[0],
    "median": lambda x: x.median(1)[1],
    "mode": lambda x: x.mode(0)[0],
    "cumsum": lambda x: x.cumsum(0),
    "cummax": lambda x: x.cummax(1)[1],
    "quantile": lambda x: x.quantile(0.3, 0),
    "searchsorted": lambda x: flambeau.searchsorted(x.sort()[0], x),
    "sum of nothing": lambda x: x[:0].sum(0),
}
BY_VALUES = {
    "mask": lambda x: x[x > 0],
    "masked rows": lambda x: x[(x > 0)[:, 0]],
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.round().unique(return_counts=True)[1],
}


def operand():
    return flambeau.linspace(-2, 2, 20).sin().reshape(4, 5).contiguous()


@pytest.mark.parametrize("name", {**CASES, **BY_VALUES})
def test_same_on_a_device_of_ones_own(name):
    function = {**CASES, **BY_VALUES}[name]
    expected, found = function(operand()), function(operand().to("toy"))
    assert found.device.type == "toy"
    assert flambeau.equal(found.cpu(), expected)


@pytest.mark.parametrize("name", CASES)
def test_layout_on_meta(name):
    if name == "quantile":
        return  # as in PyTorch, a number is looked at
    expected, found = CASES[name](operand()), CASES[name](operand().to("meta"))
    assert (found.device.type, found.shape, found.dtype) == ("meta", expected.shape, expected.dtype)
    assert found.stride() == expected.stride()


@pytest.mark.parametrize("name", BY_VALUES)
def test_meta_has_no_values(name):
    with pytest.raises(NotImplementedError):
        BY_VALUES[name](operand().to("meta"))


@pytest.mark.parametrize("name", {**CASES, **BY_VALUES})
def test_same_under_a_mode(name):
    """A mode that looks at every operator, and into composites, changes nothing."""
    function = {**CASES, **BY_VALUES}[name]
    seen = sum(Door.seen.values())
    with Door().watch():
        found = function(operand())
    assert sum(Door.seen.values()) > seen
    assert flambeau.equal(found, function(operand()))


@pytest.mark.parametrize("device", ["cpu", "toy"])
def test_bad_indices_are_refused(device):
    x, bad = flambeau.zeros(3, 3).to(device), flambeau.tensor([7]).to(device)
    for call in (
        lambda: x[bad],
        lambda: x.gather(0, bad[:, None]),
        lambda: x.index_select(0, bad),
        lambda: x.index_fill(0, bad, 0),
        lambda: x.take(bad + 2),
        lambda: x.scatter(0, bad[:, None], 1.0),
    ):
        with pytest.raises((IndexError, RuntimeError), match="index (7|9)|self: 7"):
            call()
    assert flambeau.equal(x[bad - 7].cpu(), flambeau.zeros(1, 3))  # and the next call is a good one
