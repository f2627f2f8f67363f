"""First-class dimensions: what PyTorch's `functorch.dim` computes, written with positional dimensions."""

from __future__ import annotations

import pytest

import flambeau
from flambeau.func.dim import DimensionBindError, dims, stack

a, b = flambeau.arange(12.0).reshape(3, 4).sin(), flambeau.arange(20.0).reshape(4, 5).cos()


def test_products_are_sums_over_a_shared_dimension():
    i, j, k = dims(3)
    assert flambeau.allclose((a[i, k] * b[k, j]).sum(k).order(i, j), a @ b)
    assert (i.size, j.size, k.size) == (3, 5, 4)


def test_operators_go_along_a_dimension():
    i, k = dims(2)
    assert (2 * a[i, k]).softmax(k).order(i, k).equal((2 * a).softmax(1))
    assert a[i, k].max(k)[0].order(i).equal(a.max(1)[0]) and a[i, k].sum((i, k)).equal(a.sum((0, 1)))
    assert flambeau.where(a[i, k] > 0, a[i, k], 0.0).order(k, i).equal(a.clamp_min(0).T)
    assert (a[i] * i).order(i).equal(a * flambeau.arange(3)[:, None])


def test_dimensions_are_split_joined_and_chosen_from():
    x, rows = flambeau.arange(24.0).reshape(6, 4), flambeau.tensor([2, 0, 1])
    outer, inner, m, c = dims(4)
    outer.size = 2
    assert x[(outer, inner),].order(inner, outer).equal(x.reshape(2, 3, 4).transpose(0, 1))
    assert x[(outer, inner),].order((inner, outer)).equal(x.reshape(2, 3, 4).transpose(0, 1).reshape(6, 4))
    assert x[rows[m], c].order(m, c).equal(x[rows]) and x[:, c].order(c).equal(x.T) and x[1, c].order(c).equal(x[1])
    (n,) = (dims(1),)
    assert stack([x[0], x[1]], n).order(n).equal(x[:2])


def test_gradients_flow_through_dimensions():
    i, k = dims(2)
    x = a.clone().requires_grad_()
    (x[i, k] * x[i, k]).sum((i, k)).backward()
    assert flambeau.allclose(x.grad, 2 * a)


def test_sizes_that_do_not_fit_are_told():
    i, j, k = dims(3)
    i.size = 2
    with pytest.raises(DimensionBindError, match="cannot bind to a dimension of size 3"):
        i.size = 3
    with pytest.raises(DimensionBindError, match="cannot be bound"):
        a[(i, j),]
    with pytest.raises(DimensionBindError, match="not a dimension of this tensor"):
        a[j].order(k)
    with pytest.raises(ValueError, match="unbound"):
        _ = k.size
