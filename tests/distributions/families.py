"""Every family, with parameters for it: a table of (name, constructor), the same for PyTorch and Flambeau."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# name: how to build it from a module that looks like torch, and P, which makes parameters (leaves that require grad)
FAMILIES: dict[str, Callable[[Any, Any], Any]] = {
    "Bernoulli": lambda D, P: D.Bernoulli(P([0.2, 0.5, 0.9])),
    "Bernoulli(logits)": lambda D, P: D.Bernoulli(logits=P([[-1.0, 0.0, 3.0]])),
    "Beta": lambda D, P: D.Beta(P([0.5, 1.0, 3.0]), P([[2.0], [0.7]])),
    "Beta(numbers)": lambda D, P: D.Beta(2.0, 3.0),
    "Binomial": lambda D, P: D.Binomial(8, P([0.1, 0.5, 0.8])),
    "Binomial(logits)": lambda D, P: D.Binomial(P([3.0, 40.0, 1.0]), logits=P([0.1, -0.5, 0.8])),
    "Categorical": lambda D, P: D.Categorical(P([[1.0, 2.0, 3.0], [0.1, 0.1, 5.0]])),
    "Categorical(logits)": lambda D, P: D.Categorical(logits=P([0.1, -2.0, 3.0, 0.0])),
    "Cauchy": lambda D, P: D.Cauchy(P([0.0, 1.0]), P([1.0, 3.0])),
    "Chi2": lambda D, P: D.Chi2(P([1.5, 4.0, 20.0])),
    "ContinuousBernoulli": lambda D, P: D.ContinuousBernoulli(P([0.1, 0.5, 0.5005, 0.97])),
    "ContinuousBernoulli(logits)": lambda D, P: D.ContinuousBernoulli(logits=P([0.1, -2.5, 0.0])),
    "Dirichlet": lambda D, P: D.Dirichlet(P([[0.5, 1.0, 3.0], [4.0, 5.0, 6.0]])),
    "Exponential": lambda D, P: D.Exponential(P([0.5, 2.0])),
    "Exponential(number)": lambda D, P: D.Exponential(3.0),
    "FisherSnedecor": lambda D, P: D.FisherSnedecor(P([3.0, 5.0]), P([1.5, 6.0])),
    "Gamma": lambda D, P: D.Gamma(P([0.4, 1.0, 7.0]), P([1.0, 2.0, 0.5])),
    "GeneralizedPareto": lambda D, P: D.GeneralizedPareto(P([0.0, 1.0, 0.5]), P([1.0, 2.0, 1.5]), P([0.3, 0.0, -0.4])),
    "Geometric": lambda D, P: D.Geometric(P([0.2, 0.7])),
    "Geometric(logits)": lambda D, P: D.Geometric(logits=P([0.2, -0.7])),
    "Gumbel": lambda D, P: D.Gumbel(P([0.0, 1.0]), P([1.0, 3.0])),
    "Gumbel(numbers)": lambda D, P: D.Gumbel(0.5, 2.0),
    "HalfCauchy": lambda D, P: D.HalfCauchy(P([1.0, 3.0])),
    "HalfNormal": lambda D, P: D.HalfNormal(P([1.0, 3.0])),
    "Independent": lambda D, P: D.Independent(D.Normal(P([[0.0, 1.0, 2.0]] * 2), P([1.0, 2.0, 3.0])), 1),
    "InverseGamma": lambda D, P: D.InverseGamma(P([1.5, 5.0]), P([1.0, 2.0])),
    "Kumaraswamy": lambda D, P: D.Kumaraswamy(P([1.5, 5.0]), P([1.0, 2.0])),
    "LKJCholesky": lambda D, P: D.LKJCholesky(3, P([0.7, 2.0])),
    "Laplace": lambda D, P: D.Laplace(P([0.0, 1.0]), P([1.0, 3.0])),
    "LogNormal": lambda D, P: D.LogNormal(P([0.0, 1.0]), P([1.0, 0.3])),
    "LogisticNormal": lambda D, P: D.LogisticNormal(P([[0.0, 1.0], [2.0, 0.5]]), P([1.0, 0.3])),
    "LowRankMultivariateNormal": lambda D, P: D.LowRankMultivariateNormal(
        P([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0]]), P([[1.0], [2.0], [0.5]]), P([1.0, 2.0, 0.3])
    ),
    "MixtureSameFamily": lambda D, P: D.MixtureSameFamily(
        D.Categorical(P([[0.3, 0.7]] * 3)), D.Normal(P([[0.0, 3.0], [1.0, 2.0], [5.0, 6.0]]), P([1.0, 0.5]))
    ),
    "MixtureSameFamily(vectors)": lambda D, P: D.MixtureSameFamily(
        D.Categorical(P([[0.3, 0.7]] * 3)),
        D.Independent(D.Normal(P([[[0.0, 3.0], [1.0, 2.0]]] * 3), P([1.0, 0.5])), 1),
    ),
    "Multinomial": lambda D, P: D.Multinomial(5, P([[1.0, 2.0, 3.0], [0.1, 0.1, 5.0]])),
    "MultivariateNormal": lambda D, P: D.MultivariateNormal(P([1.0, 2.0]), P([[2.0, 0.5], [0.5, 1.0]])),
    "MultivariateNormal(tril)": lambda D, P: D.MultivariateNormal(
        P([[1.0, 2.0], [0.0, 1.0], [3.0, 3.0]]), scale_tril=P([[2.0, 0.0], [0.5, 1.0]])
    ),
    "MultivariateNormal(precision)": lambda D, P: D.MultivariateNormal(
        P([1.0, 2.0]), precision_matrix=P([[[2.0, 0.5], [0.5, 1.0]], [[1.0, 0.1], [0.1, 3.0]]])
    ),
    "NegativeBinomial": lambda D, P: D.NegativeBinomial(P([3.0, 8.0]), P([0.3, 0.6])),
    "Normal": lambda D, P: D.Normal(P([0.0, 1.0, -2.0]), P([[1.0], [3.0]])),
    "Normal(numbers)": lambda D, P: D.Normal(0.5, 2.0),
    "OneHotCategorical": lambda D, P: D.OneHotCategorical(P([[1.0, 2.0, 3.0], [0.1, 0.1, 5.0]])),
    "OneHotCategoricalStraightThrough": lambda D, P: D.OneHotCategoricalStraightThrough(logits=P([0.1, 2.0, 3.0])),
    "Pareto": lambda D, P: D.Pareto(P([1.0, 2.0, 1.0]), P([3.0, 0.7, 1.5])),
    "Poisson": lambda D, P: D.Poisson(P([0.0, 0.5, 3.0, 40.0])),
    "RelaxedBernoulli": lambda D, P: D.RelaxedBernoulli(P(0.7), P([0.2, 0.9])),
    "RelaxedOneHotCategorical": lambda D, P: D.RelaxedOneHotCategorical(P(0.7), P([[0.2, 0.9], [0.5, 0.5]])),
    "StudentT": lambda D, P: D.StudentT(P([0.9, 1.5, 5.0]), P([0.0, 1.0, 2.0]), P([1.0, 2.0, 0.5])),
    "TransformedDistribution": lambda D, P: D.TransformedDistribution(
        D.Normal(P([0.0, 1.0]), P([1.0, 2.0])), [D.AffineTransform(1.0, -2.0), D.SigmoidTransform()]
    ),
    "Uniform": lambda D, P: D.Uniform(P([0.0, 1.0]), P([1.0, 3.0])),
    "VonMises": lambda D, P: D.VonMises(P([0.0, 1.0]), P([1.0, 8.0])),
    "Weibull": lambda D, P: D.Weibull(P([1.0, 2.0]), P([1.0, 3.0])),
    "Wishart": lambda D, P: D.Wishart(P(4.0), P([[2.0, 0.5], [0.5, 1.0]])),
}
NEEDS_LINALG = ("MultivariateNormal", "LowRankMultivariateNormal", "Wishart")


def build(torch: Any, name: str) -> tuple[Any, list[Any]]:
    """The distribution of this name, and its parameters."""
    leaves: list[Any] = []

    def parameter(values: Any) -> Any:
        leaves.append(torch.tensor(values, requires_grad=True))
        return leaves[-1]

    return FAMILIES[name](torch.distributions, parameter), leaves
