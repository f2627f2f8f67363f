"""PyTorch's former signatures, which old programs use: the factors stand among the tensors."""

from __future__ import annotations

import pytest

import flambeau

pytestmark = pytest.mark.filterwarnings("ignore:This overload of")


def equal(a, b):
    return flambeau.equal(a, b)


def test_optimizers_of_old_repositories():
    t, g = flambeau.zeros(3), flambeau.ones(3)
    t.mul_(0.9).add_(0.5, g)
    assert t.tolist() == [0.5] * 3
    assert t.addcmul_(0.5, g, g).tolist() == [1.0] * 3
    assert t.addcdiv_(-1, g, g).tolist() == [0.0] * 3
    assert flambeau.sub(t, 2, g).tolist() == [-2.0] * 3


def test_distance_matrix_of_old_repositories():
    a, b = flambeau.randn(2, 3), flambeau.randn(4, 3)
    start = flambeau.rand(2, 4)
    want = flambeau.addmm(start, a, b.t(), beta=1, alpha=-2)
    assert equal(flambeau.addmm(1, start, -2, a, b.t()), want)
    assert equal(start.clone().addmm_(1, -2, a, b.t()), want)


def test_the_warning_names_the_call(monkeypatch):
    monkeypatch.setattr("flambeau.ops.machinery.former._warned", set())
    with pytest.warns(UserWarning, match="This overload of add_ is deprecated"):
        flambeau.ones(2).add_(2, flambeau.ones(2))


def test_three_operands_are_still_refused():
    one = flambeau.ones(2)
    with pytest.raises(TypeError):
        flambeau.add(one, one, one)
    with pytest.raises(TypeError):
        flambeau.addmm(one, "a", one, one)
