"""Probability distributions: samples with gradients, log-probabilities, entropies, divergences.

>>> policy = Categorical(logits=torch.zeros(4))
>>> policy.log_prob(torch.tensor(2))
tensor(-1.3863)
"""

from . import constraints, transforms
from .constraint_registry import biject_to, transform_to
from .counts import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    MixtureSameFamily,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)
from .derived import Independent, TransformedDistribution
from .distribution import Distribution, ExponentialFamily
from .intervals import Beta, ContinuousBernoulli, Dirichlet, Kumaraswamy, Uniform
from .kl import kl_divergence, register_kl
from .location_scale import (
    Cauchy,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    LogisticNormal,
    LogNormal,
    Normal,
    StudentT,
    VonMises,
)
from .matrices import LKJCholesky, LowRankMultivariateNormal, MultivariateNormal, Wishart
from .positive import Chi2, Exponential, FisherSnedecor, Gamma, GeneralizedPareto, InverseGamma, Pareto, Weibull
from .relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from .transforms import *

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli", "Dirichlet",
    "Distribution", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Geometric",
    "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace",
    "LogNormal", "LogisticNormal", "LowRankMultivariateNormal", "MixtureSameFamily", "Multinomial",
    "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough",
    "Pareto", "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical", "StudentT", "TransformedDistribution",
    "Uniform", "VonMises", "Weibull", "Wishart", "biject_to", "constraints", "kl_divergence", "register_kl",
    "transform_to", "transforms",
]  # fmt: skip
__all__ += transforms.__all__
