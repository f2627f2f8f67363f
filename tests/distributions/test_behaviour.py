"""Checks of arguments, user subclasses, and statistics of samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from answers import judge
from families import FAMILIES, build

import flambeau
from flambeau import distributions as D
from flambeau.distributions import constraints

# Wrong calls: PyTorch's message is the expected one.
WRONG = {
    "scale": lambda torch, D: D.Normal(torch.zeros(2), torch.tensor([1.0, -1.0])),
    "nan": lambda torch, D: D.Normal(float("nan"), 1.0),
    "order": lambda torch, D: D.Uniform(2.0, 1.0),
    "not a number": lambda torch, D: D.Normal("0", 1.0),
    "both": lambda torch, D: D.Bernoulli(0.5, 0.5),
    "neither": lambda torch, D: D.Categorical(),
    "scalar probs": lambda torch, D: D.Categorical(torch.tensor(0.5)),
    "simplex": lambda torch, D: D.Categorical(torch.tensor([0.5, -0.5])),
    "probability": lambda torch, D: D.Bernoulli(torch.tensor([1.5])),
    "zero": lambda torch, D: D.Geometric(torch.tensor([0.0, 0.5])),
    "count": lambda torch, D: D.Binomial(torch.tensor([1.5]), torch.tensor([0.5])),
    "total count": lambda torch, D: D.Multinomial(torch.tensor(3), torch.tensor([0.5, 0.5])),
    "dim": lambda torch, D: D.LKJCholesky(1),
    "scalar concentration": lambda torch, D: D.Dirichlet(torch.tensor(1.0)),
    "reinterpreted": lambda torch, D: D.Independent(D.Normal(0.0, 1.0), 1),
    "transforms": lambda torch, D: D.TransformedDistribution(D.Normal(0.0, 1.0), [3]),
    "transform": lambda torch, D: D.TransformedDistribution(D.Normal(0.0, 1.0), 3),
    "too few dimensions": lambda torch, D: D.TransformedDistribution(D.Normal(0.0, 1.0), D.StickBreakingTransform()),
    "mixture": lambda torch, D: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(0.0, 1.0)),
    "components": lambda torch, D: D.MixtureSameFamily(D.Categorical(torch.ones(2)), D.Normal(torch.zeros(3), 1.0)),
    "number as value": lambda torch, D: D.Normal(0.0, 1.0).log_prob(0.5),
    "shape of value": lambda torch, D: D.Normal(torch.zeros(3), 1.0).log_prob(torch.zeros(2)),
    "event shape": lambda torch, D: D.Dirichlet(torch.ones(3)).log_prob(torch.ones(2)),
    "support": lambda torch, D: D.Exponential(torch.ones(2)).log_prob(torch.tensor([1.0, -1.0])),
    "outcome": lambda torch, D: D.Categorical(torch.ones(3)).log_prob(torch.tensor(3)),
    "cdf": lambda torch, D: D.Uniform(0.0, 1.0).cdf(torch.tensor(2.0)),
    "inhomogeneous": lambda torch, D: D.Binomial(torch.tensor([1.0, 2.0]), torch.tensor([0.5])).enumerate_support(),
    "enumerate": lambda torch, D: D.Independent(D.Bernoulli(torch.ones(2)), 1).enumerate_support(),
    "validate": lambda torch, D: D.Distribution.set_default_validate_args(3),
    "no mode": lambda torch, D: D.LogisticNormal(torch.zeros(2), torch.ones(2)).mode,
    "loc": lambda torch, D: D.MultivariateNormal(torch.tensor(1.0), torch.eye(1)),
    "forms": lambda torch, D: D.MultivariateNormal(torch.ones(2)),
    "matrix": lambda torch, D: D.MultivariateNormal(torch.ones(2), scale_tril=torch.ones(2)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_raise_as_in_pytorch(name):
    torch = judge("torch")
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        WRONG[name](torch, torch.distributions)
    with pytest.raises(type(theirs.value)) as mine:
        WRONG[name](flambeau, flambeau.distributions)
    if name != "validate":
        assert str(mine.value).replace("flambeau.distributions", "torch.distributions") == str(theirs.value)


def test_validation_can_be_turned_off():
    wrong = D.Normal(0.0, -1.0, validate_args=False)
    assert math.isnan(wrong.log_prob(flambeau.tensor(0.0)))
    D.Distribution.set_default_validate_args(False)
    try:
        D.Bernoulli(flambeau.tensor(2.0))
        assert float(D.Exponential(1.0).log_prob(flambeau.tensor(-1.0))) == 1
    finally:
        D.Distribution.set_default_validate_args(True)


class Triangular(D.Distribution):
    """A user's own family."""

    arg_constraints = {"high": constraints.positive}
    has_rsample = True

    def __init__(self, high, validate_args=None):
        (self.high,) = D.utils.broadcast_all(high)
        super().__init__(self.high.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.interval(0.0, self.high)

    def rsample(self, sample_shape=()):
        return self.high * flambeau.rand(self._extended_shape(sample_shape)).sqrt()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return (2 * value / self.high.square()).log()


def test_users_subclasses():
    mine = Triangular(flambeau.tensor([1.0, 2.0]))
    assert repr(mine) == "Triangular(high: torch.Size([2]))"
    assert mine.sample((5,)).shape == (5, 2)
    with pytest.raises(ValueError, match="within the support"):
        mine.log_prob(flambeau.tensor([1.5, 1.5]))
    for call in (mine.entropy, lambda: mine.expand((3, 2)), lambda: mine.cdf(1), lambda: mine.mean):
        with pytest.raises(NotImplementedError):
            call()
    both = D.Independent(mine, 1)
    assert both.log_prob(flambeau.tensor([0.5, 0.5])).shape == ()

    class Shifted(D.Normal):
        def __init__(self, loc):
            super().__init__(loc + 1, 1.0)

    with pytest.raises(NotImplementedError, match="must also define a custom .expand"):
        Shifted(flambeau.zeros(2)).expand((3, 2))

    class Unit(D.Normal):
        pass

    assert type(Unit(0.0, 1.0).expand((3,))) is Unit


def test_a_user_can_expand_through_the_base():
    class Squashed(D.TransformedDistribution):
        def __init__(self, loc):
            super().__init__(D.Normal(loc, 1.0), [D.TanhTransform()])
            self.tag = 5

        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Squashed, _instance)
            new.tag = 6
            return super().expand(batch_shape, _instance=new)

    wide = Squashed(flambeau.zeros(2)).expand((3, 2))
    assert (wide.tag, wide.batch_shape, wide.sample().shape) == (6, (3, 2), (3, 2))


def test_gradients_pass_through_lazy_parameters():
    logits = flambeau.zeros(3, requires_grad=True)
    policy = D.Categorical(logits=logits)
    with flambeau.no_grad():
        assert policy.probs.shape == (3,)
    policy.probs[0].backward()
    np.testing.assert_allclose(logits.grad.numpy(), [2 / 9, -1 / 9, -1 / 9], rtol=1e-6)


def test_policy_gradient_program():
    """A typical use: sample an action, reinforce it."""
    flambeau.manual_seed(0)
    logits = flambeau.zeros(4, requires_grad=True)
    for _ in range(200):
        policy = D.Categorical(logits=logits)
        action = policy.sample()
        loss = -policy.log_prob(action) * (1.0 if action.item() == 2 else 0.0)
        (gradient,) = flambeau.autograd.grad(loss, logits)
        logits = (logits - 0.5 * gradient).detach().requires_grad_()
    assert D.Categorical(logits=logits).probs[2] > 0.9


_HEAVY_TAILS = ("Cauchy", "HalfCauchy", "Pareto", "StudentT", "FisherSnedecor", "InverseGamma", "GeneralizedPareto")
_NO_MOMENTS = (
    "Categorical", "LKJCholesky", "LogisticNormal", "RelaxedBernoulli", "RelaxedOneHotCategorical",
    "TransformedDistribution", "VonMises", "Wishart",
)  # fmt: skip


@pytest.mark.parametrize("name", [n for n in FAMILIES if n.split("(")[0] not in (*_HEAVY_TAILS, *_NO_MOMENTS)])
def test_samples_have_the_moments_they_should(name):
    flambeau.manual_seed(0)
    family, _ = build(flambeau, name)
    n = 4000
    samples = family.sample((n,)).double().numpy()
    mean, deviation = (t.detach().double().numpy() for t in (family.mean, family.stddev))
    np.testing.assert_array_less(np.abs(samples.mean(0) - mean), 5 * deviation / math.sqrt(n) + 1e-6)
    np.testing.assert_allclose(samples.std(0), deviation, rtol=0.25, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["Normal", "Cauchy", "Laplace", "Gumbel", "Weibull", "Kumaraswamy", "Uniform", "HalfCauchy"]
)
def test_quantiles_invert_the_distribution_function(name):
    family, _ = build(flambeau, name)
    p = flambeau.linspace(0.05, 0.95, 7).reshape(-1, *(1 for _ in family.batch_shape))
    back = family.cdf(family.icdf(p))
    np.testing.assert_allclose(back.detach().numpy(), np.broadcast_to(p.numpy(), back.shape), atol=2e-5)


@pytest.mark.parametrize("name", ["Gamma", "Beta", "Dirichlet", "Chi2", "StudentT", "FisherSnedecor", "InverseGamma"])
def test_implicit_gradients_move_the_mean(name):
    """d E[x] / d parameter, by moving each sample, against the derivative of the mean's formula."""
    flambeau.manual_seed(0)
    family, leaves = build(flambeau, name)
    family.rsample((3000,)).mean(0).sum().backward()
    if name in ("Gamma", "Chi2", "Beta", "Dirichlet"):
        moved = [leaf.grad.clone() for leaf in leaves]
        for leaf in leaves:
            leaf.grad = None
        family, _ = build(flambeau, name)
        again, leaves = build(flambeau, name)
        again.mean.sum().backward()
        for a, b in zip(moved, leaves, strict=True):
            np.testing.assert_allclose(a.numpy(), b.grad.numpy(), rtol=0.1, atol=0.05)
    else:
        assert all(flambeau.isfinite(leaf.grad).all() for leaf in leaves)
