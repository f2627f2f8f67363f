"""Divergences between distributions.

Most are a difference of two numbers: KL(p || q) = (cross entropy of q under p) - (entropy of p). The cross entropy takes
only a few expected values under p, such as the mean, the variance or the mean logarithm, so that one formula for each q
serves every p that knows them. Where p has outcomes that q excludes, the divergence is infinite.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from ..core.settings import may_change
from ..core.tensor import Tensor
from ..ops.creation.filled import full
from ..ops.pointwise.activation import softplus
from ..ops.pointwise.special_functions import xlogy
from .counts import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from .derived import Independent, TransformedDistribution
from .distribution import Distribution, ExponentialFamily
from .intervals import Beta, ContinuousBernoulli, Dirichlet, Uniform
from .location_scale import Cauchy, Gumbel, HalfNormal, Laplace, Normal
from .matrices import LowRankMultivariateNormal, MultivariateNormal
from .positive import Exponential, Gamma, Pareto
from .utils import _sum_rightmost, euler_constant

__all__ = ["kl_divergence", "register_kl"]

_Formula = Callable[[Any, Any], Tensor]
_registered: dict[tuple[type, type], _Formula] = may_change({}, "_formula_cache")
_formula_cache: dict[tuple[type, type], _Formula | None] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[_Formula], _Formula]:
    """Return a decorator that makes a function of (p, q) the divergence between these classes and their subclasses.

    >>> @register_kl(Normal, MyNormal)
    ... def divergence(p, q):
    ...     return ...
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type):  # of any kind: libraries register classes of their own that only behave like one
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def decorator(formula: _Formula) -> _Formula:
        _registered[type_p, type_q] = formula
        _formula_cache.clear()
        return formula

    return decorator


def _find(type_p: type, type_q: type) -> _Formula | None:
    """Return the formula of the nearest base classes; warns if nearness in p and in q leads to different ones."""
    order_p, order_q = type_p.__mro__, type_q.__mro__
    matches = [(order_p.index(p), order_q.index(q), p, q) for p, q in _registered if p in order_p and q in order_q]
    if not matches:
        return None
    by_p = min(matches, key=lambda match: (match[0], match[1]))
    by_q = min(matches, key=lambda match: (match[1], match[0]))
    if _registered[by_p[2:]] is not _registered[by_q[2:]]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({by_p[2].__name__}, {by_q[3].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _registered[by_p[2:]]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Return the Kullback-Leibler divergence: the expected value, under p, of log p(x) - log q(x).

    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
    tensor(0.5000)
    """
    pair = type(p), type(q)
    if pair not in _formula_cache:
        _formula_cache[pair] = _find(*pair)
    formula = _formula_cache[pair]
    if formula is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
        )
    return formula(p, q)


_KL_REGISTRY = _registered  # PyTorch's name for it, into which libraries look


def _register(sources: Iterable[type], targets: Iterable[type]) -> Callable[[Callable], Callable]:
    """Register one function for every pair."""

    def decorator(formula: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        for p in sources:
            for q in tuple(targets):
                register_kl(p, q)(formula)
        return formula

    return decorator


# -- expected values --------------------------------------------------------------------------------------------------


def _mean_log_between(low: Tensor, high: Tensor) -> Tensor:
    """Return E[log x] for x uniform between two numbers."""
    return (xlogy(high, high) - xlogy(low, low)) / (high - low) - 1


_MEAN_LOG: dict[type, Callable[[Any], Tensor]] = {
    Beta: lambda p: p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Exponential: lambda p: -euler_constant - p.rate.log(),
    Gamma: lambda p: p.concentration.digamma() - p.rate.log(),
    Pareto: lambda p: p.scale.log() + p.alpha.reciprocal(),
    Uniform: lambda p: _mean_log_between(p.low, p.high),
}
# E[exp(-x / s)]
_MEAN_DECAY: dict[type, Callable[[Any, Tensor], Tensor]] = {
    Exponential: lambda p, s: (1 + 1 / (p.rate * s)).reciprocal(),
    Gamma: lambda p, s: (1 + 1 / (p.rate * s)).pow(-p.concentration),
    Gumbel: lambda p, s: (-p.loc / s + (1 + p.scale / s).lgamma()).exp(),
    Normal: lambda p, s: (-p.loc / s + 0.5 * (p.scale / s).square()).exp(),
    Uniform: lambda p, s: s / (p.high - p.low) * ((-p.low / s).exp() - (-p.high / s).exp()),
}


def _expected(table: dict[type, Callable], p: Any, *arguments: Tensor) -> Tensor:
    return next(table[kind] for kind in type(p).__mro__ if kind in table)(p, *arguments)


# -- one formula for each q -------------------------------------------------------------------------------------------


@_register((Beta, ContinuousBernoulli, Exponential, Gamma, Pareto), (Exponential,))
def _to_exponential(p: Any, q: Exponential) -> Tensor:
    return q.rate * p.mean - q.rate.log() - p.entropy()


@_register((Beta, Exponential, Gamma, Pareto), (Gamma,))
def _to_gamma(p: Any, q: Gamma) -> Tensor:
    a, rate = q.concentration, q.rate
    return a.lgamma() - a * rate.log() + (1 - a) * _expected(_MEAN_LOG, p) + rate * p.mean - p.entropy()


@_register((Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Normal, Pareto, Uniform), (Normal,))
def _to_normal(p: Any, q: Normal) -> Tensor:
    distance = p.variance + (p.mean - q.loc).square()
    return 0.5 * math.log(2 * math.pi) + q.scale.log() + 0.5 * distance / q.variance - p.entropy()


@register_kl(Normal, Normal)
def _normal_normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()  # exactly 0 for equal distributions
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@_register((Exponential, Gamma, Gumbel, Normal, Uniform), (Gumbel,))
def _to_gumbel(p: Any, q: Gumbel) -> Tensor:
    decay = (q.loc / q.scale).exp() * _expected(_MEAN_DECAY, p, q.scale)
    return q.scale.log() + (p.mean - q.loc) / q.scale + decay - p.entropy()


@_register((Beta, ContinuousBernoulli), (ContinuousBernoulli,))
def _to_continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Tensor:
    return -p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm() - p.entropy()


@register_kl(Laplace, Laplace)
def _laplace_laplace(p: Laplace, q: Laplace) -> Tensor:
    distance = (p.loc - q.loc).abs()
    mean_distance = distance + p.scale * (-distance / p.scale).exp()
    return mean_distance / q.scale + (q.scale / p.scale).log() - 1


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    distance = p.loc - q.loc
    relative = distance / (p.scale * math.sqrt(2))
    mean_distance = math.sqrt(2 / math.pi) * p.scale * (-relative.square()).exp() + distance * relative.erf()
    return mean_distance / q.scale + (2 * q.scale).log() - p.entropy()


@register_kl(Pareto, Pareto)
def _pareto_pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return result.masked_fill(p.scale < q.scale, math.inf)


# -- uniform distributions: infinite unless one interval contains the other -------------------------------------------


@register_kl(Uniform, Uniform)
def _uniform_uniform(p: Uniform, q: Uniform) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return result.masked_fill((q.low > p.low) | (q.high < p.high), math.inf)


@register_kl(Beta, Uniform)
def _beta_uniform(p: Beta, q: Uniform) -> Tensor:
    return ((q.high - q.low).log() - p.entropy()).masked_fill((q.low > 0) | (q.high < 1), math.inf)


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_bernoulli_uniform(p: ContinuousBernoulli, q: Uniform) -> Tensor:
    # As in PyTorch, also infinite where the two intervals share an end.
    return ((q.high - q.low).log() - p.entropy()).masked_fill((q.low >= 0) | (q.high <= 1), math.inf)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p: Uniform, q: ContinuousBernoulli) -> Tensor:
    return _to_continuous_bernoulli(p, q).masked_fill((p.high >= 1) | (p.low <= 0), math.inf)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Uniform, q: Exponential) -> Tensor:
    return _to_exponential(p, q).masked_fill(p.low < 0, math.inf)


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Uniform, q: Gamma) -> Tensor:
    return _to_gamma(p, q).masked_fill(p.low < 0, math.inf)


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    log_x, log_rest = _mean_log_between(p.low, p.high), _mean_log_between(1 - p.high, 1 - p.low)
    result = (1 - a) * log_x + (1 - b) * log_rest + q._log_normalizer(a, b) - p.entropy()
    return result.masked_fill((p.high > 1) | (p.low < 0), math.inf)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    result = (q.alpha + 1) * _expected(_MEAN_LOG, p) - q.alpha.log() - q.alpha * q.scale.log() - p.entropy()
    return result.masked_fill(p.low < q.scale, math.inf)


# -- outcomes that the other excludes ---------------------------------------------------------------------------------


@_register((Normal, Laplace, Gumbel), (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform))
@_register((Exponential, Gamma), (Beta, ContinuousBernoulli, Pareto, Uniform))
@_register((Pareto,), (Beta, ContinuousBernoulli, Uniform))
@_register((Beta, ContinuousBernoulli), (Pareto,))
@_register((Poisson,), (Bernoulli, Binomial))
def _infinite_divergence(p: Any, q: Any) -> Tensor:
    mean = p.mean
    return full(p.batch_shape, math.inf, dtype=mean.dtype, device=mean.device)


# -- discrete ---------------------------------------------------------------------------------------------------------


def _bernoulli_term(p: Tensor, q: Tensor, logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """Return p log(p / q), one of the two terms, with its limits."""
    term = p * (softplus(-logits_q) - softplus(-logits_p))
    return term.masked_fill(q == 0, math.inf).masked_fill(p == 0, 0)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli_bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    success = _bernoulli_term(p.probs, q.probs, p.logits, q.logits)
    return success + _bernoulli_term(1 - p.probs, 1 - q.probs, -p.logits, -q.logits)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.probs * q.rate.log() - p.entropy()


@register_kl(Binomial, Binomial)
def _binomial_binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    one_trial = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return (p.total_count * one_trial).masked_fill(p.total_count > q.total_count, math.inf)


@register_kl(Categorical, Categorical)
def _categorical_categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    return terms.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical_categorical(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _geometric_geometric(p: Geometric, q: Geometric) -> Tensor:
    return -(-q.probs).log1p() / p.probs - q.logits - p.entropy()


@register_kl(Poisson, Poisson)
def _poisson_poisson(p: Poisson, q: Poisson) -> Tensor:
    return xlogy(p.rate, p.rate) - xlogy(p.rate, q.rate) - p.rate + q.rate


# -- other pairs of one family ----------------------------------------------------------------------------------------


@register_kl(Dirichlet, Dirichlet)
def _dirichlet_dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    mean_log = a.digamma() - a.sum(-1, True).digamma()
    return q._log_normalizer(b) - p._log_normalizer(a) + ((a - b) * mean_log).sum(-1)


@register_kl(Beta, Beta)
def _beta_beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet_dirichlet(p._dirichlet, q._dirichlet)


@register_kl(HalfNormal, HalfNormal)
def _half_normal_half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normal_normal(p.base_dist, q.base_dist)


@register_kl(Cauchy, Cauchy)
def _cauchy_cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    """Return the divergence between Cauchy distributions (Chyzak and Nielsen, 2019)."""
    return ((p.scale + q.scale).square() + (p.loc - q.loc).square()).log() - (4 * p.scale * q.scale).log()


@_register((MultivariateNormal, LowRankMultivariateNormal), (MultivariateNormal, LowRankMultivariateNormal))
def _gaussian_gaussian(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {'Low Rank ' if isinstance(p, LowRankMultivariateNormal) else ''}"
            "Multivariate Normals with different event shapes cannot be computed"
        )
    trace = q._trace_with_inverse(p._covariance_root())
    distance = q._mahalanobis(q.loc - p.loc)
    return 0.5 * (trace + distance - p.event_shape[0]) + q._half_log_det() - p._half_log_det()


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_families(p: Any, q: Any) -> Tensor:
    """Return the Bregman divergence of the log normaliser."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman divergences"
        )
    parameters, normalizer, statistics = p._expected_statistics()
    others = q._natural_params
    result = q._log_normalizer(*others) - normalizer
    for mine, other, statistic in zip(parameters, others, statistics):
        result = result - _sum_rightmost((other - mine) * statistic, len(q.event_shape))
    return result


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed_transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms:
        raise NotImplementedError("the divergence of variables transformed in different ways is not known")
    if p.event_shape != q.event_shape:
        raise NotImplementedError(f"events have different shapes: {p.event_shape} and {q.event_shape}")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent_independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            f"reinterpreted_batch_ndims differ: {p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}"
        )
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
