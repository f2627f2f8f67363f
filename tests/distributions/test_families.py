"""Every family against PyTorch: the same numbers from the same seed, gradients, densities, moments, errors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from answers import judge
from families import FAMILIES, build

import flambeau

torch = judge("torch")


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Wishart's of PyTorch warns of singular samples that are not
        yield


def both(name):
    (mine, my_leaves), (theirs, their_leaves) = build(flambeau, name), build(torch, name)
    return mine, my_leaves, theirs, their_leaves


def values(t):
    return t.detach().numpy()


def same(mine, theirs, tolerance=1e-5):
    assert tuple(mine.shape) == tuple(theirs.shape)
    assert str(mine.dtype) == str(theirs.dtype)
    np.testing.assert_allclose(values(mine), values(theirs), rtol=tolerance, atol=tolerance)


def outcome(call):
    try:
        return call()
    except (NotImplementedError, ValueError, RuntimeError, TypeError, AttributeError) as problem:
        return type(problem)


def same_outcome(mine, theirs, tolerance=1e-5):
    """The same tensor, or the same kind of error."""
    mine, theirs = outcome(mine), outcome(theirs)
    if isinstance(theirs, type) or isinstance(mine, type):
        assert mine is theirs
    else:
        same(mine, theirs, tolerance)


@pytest.mark.parametrize("name", FAMILIES)
def test_samples_have_pytorchs_numbers(name):
    mine, _, theirs, _ = both(name)
    for shape in ((), (4,), (3, 5)):
        flambeau.manual_seed(1), torch.manual_seed(1)
        a, b = mine.sample(shape), theirs.sample(shape)
        assert not a.requires_grad
        same(a, b, 2e-6)
        np.testing.assert_array_equal(flambeau.rand(2).numpy(), torch.rand(2).numpy())  # as many draws were taken


@pytest.mark.parametrize("name", FAMILIES)
def test_rsample_and_its_gradient(name):
    mine, my_leaves, theirs, their_leaves = both(name)
    assert mine.has_rsample == theirs.has_rsample
    if not theirs.has_rsample:
        assert outcome(mine.rsample) is outcome(theirs.rsample) is NotImplementedError or name.startswith("Logit")
        return
    flambeau.manual_seed(2), torch.manual_seed(2)
    a, b = mine.rsample((6,)), theirs.rsample((6,))
    same(a, b, 2e-6)
    if name == "Wishart":  # PyTorch's own backward pass stops with an error
        a.sum().backward()
        assert all(flambeau.isfinite(leaf.grad).all() for leaf in my_leaves)
    elif their_leaves:
        weight = np.random.default_rng(0).normal(size=tuple(b.shape)).astype(np.float32)
        (a * flambeau.tensor(weight)).sum().backward(), (b * torch.tensor(weight)).sum().backward()
        for x, y in zip(my_leaves, their_leaves, strict=True):
            np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=3e-4, atol=3e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_log_prob_and_its_gradient(name):
    mine, my_leaves, theirs, their_leaves = both(name)
    torch.manual_seed(3)
    value = theirs.sample((7,))
    a, b = mine.log_prob(flambeau.tensor(value.numpy())), theirs.log_prob(value)
    same(a, b, 2e-5)
    if their_leaves:
        a.sum().backward(), b.sum().backward()
        for x, y in zip(my_leaves, their_leaves, strict=True):
            assert (x.grad is None) == (y.grad is None)
            if y.grad is not None:
                np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_distribution_functions(name):
    mine, _, theirs, _ = both(name)
    torch.manual_seed(4)
    value = theirs.sample((5,))
    probability = torch.linspace(0.05, 0.95, 5).reshape(5, *(1 for _ in theirs.batch_shape))
    same_outcome(lambda: mine.cdf(flambeau.tensor(value.numpy())), lambda: theirs.cdf(value), 2e-5)
    same_outcome(lambda: mine.icdf(flambeau.tensor(probability.numpy())), lambda: theirs.icdf(probability), 2e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_moments_and_entropy(name):
    mine, _, theirs, _ = both(name)
    for attribute in ("mean", "variance", "stddev", "mode"):
        same_outcome(lambda a=attribute: getattr(mine, a), lambda a=attribute: getattr(theirs, a), 3e-5)
    for method in ("entropy", "perplexity"):
        same_outcome(lambda m=method: getattr(mine, m)(), lambda m=method: getattr(theirs, m)(), 5e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_shapes_support_and_printing(name):
    mine, _, theirs, _ = both(name)
    assert tuple(mine.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(mine.event_shape) == tuple(theirs.event_shape)
    assert repr(mine) == repr(theirs)
    assert repr(mine.support) == repr(theirs.support)
    assert mine.support.is_discrete == theirs.support.is_discrete
    assert mine.has_enumerate_support == theirs.has_enumerate_support
    assert list(mine.arg_constraints) == list(theirs.arg_constraints)
    assert [repr(c) for c in mine.arg_constraints.values()] == [repr(c) for c in theirs.arg_constraints.values()]
    if theirs.has_enumerate_support:
        for expand in (True, False):
            same_outcome(lambda e=expand: mine.enumerate_support(e), lambda e=expand: theirs.enumerate_support(e))


@pytest.mark.parametrize("name", FAMILIES)
def test_expand(name):
    mine, _, theirs, _ = both(name)
    shape = (2, *theirs.batch_shape)
    a, b = mine.expand(shape), theirs.expand(shape)
    assert tuple(a.batch_shape) == tuple(b.batch_shape)
    assert type(a) is type(mine)
    flambeau.manual_seed(5), torch.manual_seed(5)
    x, y = a.sample((3,)), b.sample((3,))
    same(x, y, 2e-6)
    same(a.log_prob(flambeau.tensor(y.numpy())), b.log_prob(y), 2e-5)
    same_outcome(lambda: a.mean, lambda: b.mean, 3e-5)
    same_outcome(lambda: a.variance, lambda: b.variance, 3e-5)
