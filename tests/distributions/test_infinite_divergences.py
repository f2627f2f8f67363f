"""Divergences between distributions of which one has outcomes that the other has not: at the ends of the supports, inside and beyond."""

from __future__ import annotations

import pytest
from answers.programs import check, refusals, short

SETUP = """
D, t = L.distributions, L.tensor
kl = D.kl_divergence
low, high = t([-0.5, 0.0, 0.0, 0.5, 0.0, -1.0]), t([1.5, 1.0, 2.0, 1.0, 0.9, 1.0])  # about the interval from 0 to 1
uniform, beta, half = D.Uniform(low, high), D.Beta(t(2.0), t(3.0)), t(0.5)
"""
# A program for each line: expressions, between semicolons.
CALLS = """
kl(beta, uniform); kl(uniform, beta); kl(D.ContinuousBernoulli(t(0.3)), uniform); kl(uniform, D.ContinuousBernoulli(t(0.3))); kl(uniform, D.Uniform(0.0, 1.0)); kl(D.Uniform(0.0, 1.0), uniform); kl(uniform, D.Exponential(half)); kl(uniform, D.Gamma(t(2.0), half)); kl(uniform, D.Pareto(half, t(2.0))); kl(D.Uniform(t([0.4, 0.5, 0.6]), 2.0), D.Pareto(half, t(2.0))); kl(uniform, D.Normal(0.0, 1.0)); kl(uniform, D.Gumbel(0.0, 1.0)); kl(D.Normal(0.0, 1.0), uniform); kl(D.Exponential(half), uniform); kl(D.Gamma(t(2.0), half), uniform); kl(D.Laplace(0.0, 1.0), uniform); kl(D.Gumbel(0.0, 1.0), uniform); kl(D.Pareto(half, t(2.0)), uniform)
kl(D.Pareto(t([0.4, 0.5, 0.6]), t(2.0)), D.Pareto(half, t(3.0))); kl(D.Binomial(t(3.0), half), D.Binomial(t([2.0, 3.0, 4.0]), t(0.3))); kl(D.Bernoulli(t([0.0, 0.3, 1.0])), D.Bernoulli(t([0.0, 0.3, 1.0]))); kl(D.Bernoulli(half), D.Bernoulli(t([0.0, 0.3, 1.0]))); kl(D.Bernoulli(t([0.0, 0.3, 1.0])), D.Bernoulli(half)); kl(D.Categorical(t([0.5, 0.5, 0.0])), D.Categorical(t([0.5, 0.0, 0.5]))); kl(D.Categorical(t([0.5, 0.5, 0.0])), D.Categorical(t([0.4, 0.6, 0.0]))); kl(D.Categorical(t([0.5, 0.5, 0.0])), D.Categorical(t([0.2, 0.3, 0.5]))); kl(D.OneHotCategorical(t([0.5, 0.5])), D.OneHotCategorical(t([1.0, 0.0]))); kl(D.Poisson(half), D.Poisson(t([0.0, 0.5]))); kl(D.Poisson(half), D.Bernoulli(half)); kl(D.Poisson(half), D.Binomial(t(2.0), half)); kl(D.Geometric(half), D.Geometric(t([0.3, 1.0])))
kl(beta, D.Pareto(half, t(2.0))); kl(D.Exponential(half), beta); kl(D.Exponential(half), D.ContinuousBernoulli(half)); kl(D.Exponential(half), D.Pareto(half, t(2.0))); kl(D.Gamma(t(2.0), half), beta); kl(D.Gamma(t(2.0), half), D.Pareto(half, t(2.0))); kl(D.Normal(0.0, 1.0), beta); kl(D.Normal(0.0, 1.0), D.Exponential(half)); kl(D.Normal(0.0, 1.0), D.Gamma(t(2.0), half)); kl(D.Normal(0.0, 1.0), D.Pareto(half, t(2.0))); kl(D.Gumbel(0.0, 1.0), D.Exponential(half)); kl(D.Laplace(0.0, 1.0), D.Gamma(t(2.0), half)); kl(D.Pareto(half, t(2.0)), beta); kl(D.Pareto(half, t(2.0)), D.Exponential(half)); kl(D.Pareto(half, t(1.0)), D.Exponential(half)); kl(D.Pareto(half, t([1.5, 2.0, 2.5])), D.Normal(0.0, 1.0)); kl(D.Pareto(half, t(2.0)), D.ContinuousBernoulli(half)); kl(D.ContinuousBernoulli(half), D.Pareto(half, t(2.0))); kl(D.ContinuousBernoulli(t([0.3, 0.5])), D.Exponential(half)); kl(D.ContinuousBernoulli(t([0.3, 0.5])), D.Normal(0.0, 1.0)); kl(D.Cauchy(0.0, 1.0), D.Cauchy(1.0, 2.0)); kl(D.Cauchy(0.0, 1.0), D.Normal(0.0, 1.0)); kl(D.Weibull(half, half), beta)
"""


@pytest.mark.parametrize("program", refusals(CALLS), ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)
