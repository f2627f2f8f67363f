"""Transforms and constraints against PyTorch."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau.distributions import constraints, transforms

torch = judge("torch")

# name: (how to make it from a module that looks like torch.distributions, shape of an argument, in its domain?)
TRANSFORMS = {
    "Abs": (lambda D, t: D.AbsTransform(), (4,), "real"),
    "Affine": (lambda D, t: D.AffineTransform(1.0, -2.0), (4,), "real"),
    "Affine(tensors)": (lambda D, t: D.AffineTransform(t([1.0, 2.0]), t([3.0, -0.5])), (3, 2), "real"),
    "Affine(event)": (lambda D, t: D.AffineTransform(t([1.0, 2.0]), t([3.0, -0.5]), event_dim=1), (3, 2), "real"),
    "Cat": (lambda D, t: D.CatTransform([D.ExpTransform(), D.SigmoidTransform()], 1, [1, 2]), (2, 3), "real"),
    "Cat(negative)": (lambda D, t: D.CatTransform([D.ExpTransform(), D.TanhTransform()], -1, [1, 2]), (2, 3), "real"),
    "Compose": (lambda D, t: D.ComposeTransform([D.AffineTransform(1.0, 2.0), D.ExpTransform()]), (4,), "real"),
    "Compose(events)": (
        lambda D, t: D.ComposeTransform([D.AffineTransform(1.0, 2.0), D.StickBreakingTransform()]), (3, 4), "real"
    ),
    "CorrCholesky": (lambda D, t: D.CorrCholeskyTransform(), (2, 6), "real"),
    "CumulativeDistribution": (lambda D, t: D.CumulativeDistributionTransform(D.Normal(0.5, 2.0)), (4,), "real"),
    "Exp": (lambda D, t: D.ExpTransform(), (4,), "real"),
    "Independent": (lambda D, t: D.IndependentTransform(D.ExpTransform(), 1), (3, 2), "real"),
    "Inverse": (lambda D, t: D.ExpTransform().inv, (4,), "positive"),
    "LowerCholesky": (lambda D, t: D.LowerCholeskyTransform(), (2, 3, 3), "real"),
    "PositiveDefinite": (lambda D, t: D.PositiveDefiniteTransform(), (2, 3, 3), "real"),
    "Power": (lambda D, t: D.PowerTransform(t([2.0, 0.5, -1.0])), (4, 3), "positive"),
    "Reshape": (lambda D, t: D.ReshapeTransform((2, 3), (6,)), (4, 2, 3), "real"),
    "Sigmoid": (lambda D, t: D.SigmoidTransform(), (4,), "real"),
    "Softmax": (lambda D, t: D.SoftmaxTransform(), (4, 3), "real"),
    "Softplus": (lambda D, t: D.SoftplusTransform(), (4,), "real"),
    "Stack": (lambda D, t: D.StackTransform([D.ExpTransform(), D.SigmoidTransform()], 1), (3, 2), "real"),
    "StickBreaking": (lambda D, t: D.StickBreakingTransform(), (2, 4), "real"),
    "Tanh": (lambda D, t: D.TanhTransform(), (4,), "real"),
}  # fmt: skip


def argument(shape, region):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    return np.exp(x) if region == "positive" else x


def outcome(call):
    try:
        return call()
    except (NotImplementedError, ValueError, AssertionError, RuntimeError) as problem:
        return type(problem)


def agree(mine, theirs):
    mine, theirs = outcome(mine), outcome(theirs)
    if isinstance(mine, type) or isinstance(theirs, type):
        assert mine is theirs
        return
    assert tuple(mine.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("cache", [0, 1])
def test_there_and_back(name, cache):
    make, shape, region = TRANSFORMS[name]
    mine, theirs = make(flambeau.distributions, flambeau.tensor), make(torch.distributions, torch.tensor)
    if cache:
        mine, theirs = mine.with_cache(), theirs.with_cache()
    x = argument(shape, region)
    a, b = flambeau.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, z = mine(a), theirs(b)
    agree(lambda: y, lambda: z)
    agree(lambda: mine.log_abs_det_jacobian(a, y), lambda: theirs.log_abs_det_jacobian(b, z))
    agree(lambda: mine.inv(y), lambda: theirs.inv(z))
    if cache and not isinstance(mine, transforms.ComposeTransform):
        assert mine.inv(y) is a
    y.square().sum().backward(), z.square().sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_regions_shapes_and_printing(name):
    make, shape, region = TRANSFORMS[name]
    mine, theirs = make(flambeau.distributions, flambeau.tensor), make(torch.distributions, torch.tensor)
    assert repr(mine) == repr(theirs)
    assert mine.bijective == theirs.bijective
    assert repr(mine.domain) == repr(theirs.domain)
    assert repr(mine.codomain) == repr(theirs.codomain)
    for method in ("forward_shape", "inverse_shape"):
        for size in (shape, (2,), (3, 3), ()):
            a = outcome(lambda m=method, s=size: tuple(getattr(mine, m)(flambeau.Size(s))))
            b = outcome(lambda m=method, s=size: tuple(getattr(theirs, m)(torch.Size(s))))
            assert a == b
    same, other = make(flambeau.distributions, flambeau.tensor), flambeau.distributions.ExpTransform()
    assert (mine == same) == (theirs == make(torch.distributions, torch.tensor))
    assert (mine == other) == (theirs == torch.distributions.ExpTransform())


def test_inverse_of_the_inverse():
    t = transforms.ExpTransform()
    assert t.inv.inv is t
    assert t.inv == transforms.ExpTransform().inv
    assert t.inv != t
    chain = transforms.ComposeTransform([t, transforms.AffineTransform(1.0, 2.0)])
    assert chain.inv.inv is chain
    assert pickle.loads(pickle.dumps(t)) == t


def test_bad_arguments():
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        transforms.ExpTransform(cache_size=2)
    with pytest.raises(ValueError, match="different numbers of elements"):
        transforms.ReshapeTransform((2,), (3,))
    with pytest.raises(ValueError, match="Too few dimensions"):
        transforms.IndependentTransform(transforms.ExpTransform(), 1)(flambeau.tensor(1.0))
    with pytest.raises(AssertionError, match="must be Transform instances"):
        transforms.CatTransform([1, 2])
    with pytest.raises(AssertionError, match=r"x.size\(0\) = 3 must equal length 2"):
        transforms.CatTransform([transforms.ExpTransform()] * 2)(flambeau.ones(3))

    class Custom(transforms.Transform):
        def __init__(self, extra):
            super().__init__()

    with pytest.raises(NotImplementedError, match="with_cache is not implemented"):
        Custom(1).with_cache()


CONSTRAINTS = {
    "boolean": lambda c, t: c.boolean,
    "cat": lambda c, t: c.cat([c.positive, c.real], 0, [1, 2]),
    "corr_cholesky": lambda c, t: c.corr_cholesky,
    "greater_than": lambda c, t: c.greater_than(0.5),
    "greater_than_eq": lambda c, t: c.greater_than_eq(t(1.0)),
    "half_open_interval": lambda c, t: c.half_open_interval(0.0, 1.0),
    "independent": lambda c, t: c.independent(c.positive, 1),
    "integer_interval": lambda c, t: c.integer_interval(0, 2),
    "interval": lambda c, t: c.interval(-1.0, 1.0),
    "less_than": lambda c, t: c.less_than(0.5),
    "lower_cholesky": lambda c, t: c.lower_cholesky,
    "lower_triangular": lambda c, t: c.lower_triangular,
    "multinomial": lambda c, t: c.multinomial(3),
    "nonnegative": lambda c, t: c.nonnegative,
    "nonnegative_integer": lambda c, t: c.nonnegative_integer,
    "one_hot": lambda c, t: c.one_hot,
    "positive": lambda c, t: c.positive,
    "positive_definite": lambda c, t: c.positive_definite,
    "positive_integer": lambda c, t: c.positive_integer,
    "positive_semidefinite": lambda c, t: c.positive_semidefinite,
    "real": lambda c, t: c.real,
    "real_vector": lambda c, t: c.real_vector,
    "simplex": lambda c, t: c.simplex,
    "square": lambda c, t: c.square,
    "stack": lambda c, t: c.stack([c.positive, c.real, c.boolean], 0),
    "symmetric": lambda c, t: c.symmetric,
    "unit_interval": lambda c, t: c.unit_interval,
}
SQUARES = [
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8]],
    [[2.0, 0.5, 0.5], [0.5, 1.0, 0.0], [0.5, 0.0, 1.0]],
    [[-1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]],
    [[0.2, 0.3, 0.5], [float("nan"), 1.0, 1.0], [1.0, 1.5, 3.0]],
]


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints(name):
    mine = CONSTRAINTS[name](constraints, flambeau.tensor)
    theirs = CONSTRAINTS[name](torch.distributions.constraints, torch.tensor)
    assert repr(mine) == repr(theirs)
    assert mine.event_dim == theirs.event_dim
    assert mine.is_discrete == theirs.is_discrete
    for values in SQUARES:
        a, b = mine.check(flambeau.tensor(values)), theirs.check(torch.tensor(values))
        assert a.tolist() == b.tolist()
    for registry in ("biject_to", "transform_to"):
        a = outcome(lambda r=registry: repr(getattr(flambeau.distributions, r)(mine)))
        b = outcome(lambda r=registry: repr(getattr(torch.distributions, r)(theirs)))
        assert a == b


def test_registered_transforms_lead_into_the_region():
    x = flambeau.randn(5, 6, 6)
    for name in ("greater_than", "less_than", "interval", "unit_interval", "simplex", "lower_cholesky", "real_vector"):
        region = CONSTRAINTS[name](constraints, flambeau.tensor)
        assert region.check(flambeau.distributions.transform_to(region)(x)).all()


def test_dependent_constraints():
    assert constraints.is_dependent(constraints.dependent)
    with pytest.raises(ValueError, match="Cannot determine validity"):
        constraints.dependent.check(flambeau.ones(1))
    with pytest.raises(NotImplementedError, match="event_dim cannot be determined statically"):
        constraints.dependent.event_dim
    assert constraints.dependent(event_dim=1).event_dim == 1
    assert constraints.is_dependent(flambeau.distributions.Uniform.support)
    with pytest.raises(NotImplementedError, match="Cannot transform _Multinomial constraints"):
        flambeau.distributions.biject_to(constraints.multinomial(3))


@pytest.mark.parametrize("diag", [-2, -1, 0, 1])
def test_triangles_as_vectors(diag):
    utils, theirs = flambeau.distributions.utils, torch.distributions.utils
    matrix = np.arange(2 * 16, dtype=np.float32).reshape(2, 4, 4)
    a, b = (
        utils.tril_matrix_to_vec(flambeau.tensor(matrix), diag),
        theirs.tril_matrix_to_vec(torch.tensor(matrix), diag),
    )
    np.testing.assert_array_equal(a.numpy(), b.numpy())
    np.testing.assert_array_equal(utils.vec_to_tril_matrix(a, diag).numpy(), theirs.vec_to_tril_matrix(b, diag).numpy())
    with pytest.raises(ValueError, match="cannot be expressed"):
        utils.vec_to_tril_matrix(flambeau.ones(5))
