"""Distributions on an interval or on the simplex."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..autograd.function import Function, once_differentiable
from ..compat.former_names import settle
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.construct import tensor
from ..ops.creation.filled import ones_like, zeros_like
from ..ops.nn.embedding import one_hot
from ..ops.nn.loss import binary_cross_entropy_with_logits
from ..ops.pointwise.comparison import where
from ..ops.pointwise.special_functions import xlogy
from ..ops.random.fills import rand
from ..ops.random.sampling import dirichlet_grad, sample_dirichlet
from ..ops.shape.joining import stack
from . import constraints
from .derived import TransformedDistribution
from .distribution import ExponentialFamily, Parametric, ProbsOrLogits, checked
from .transforms import AffineTransform, PowerTransform
from .utils import Number, broadcast_all, clamp_probs, euler_constant, lazy_property, logits_to_probs


class Uniform(Parametric):
    """Equally likely everywhere from `low` up to, and without, `high`.

    >>> Uniform(1.0, 3.0).mean
    tensor(2.)
    """

    has_rsample = True

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, low=low, high=high)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.interval(self.low, self.high)

    mean = property(lambda self: (self.high + self.low) / 2)
    mode = property(lambda self: math.nan * self.high)
    stddev = property(lambda self: (self.high - self.low) / math.sqrt(12))
    variance = property(lambda self: (self.high - self.low).square() / 12)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        u = rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        inside = (self.low <= value) & (value < self.high)
        return inside.type_as(self.low).log() - (self.high - self.low).log()

    @checked
    def cdf(self, value: Tensor) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return self.low + value * (self.high - self.low)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class Beta(Parametric, ExponentialFamily):
    """A random probability, after `concentration1` successes and `concentration0` failures: a Dirichlet of two outcomes.

    >>> Beta(1.0, 3.0).mean
    tensor(0.2500)
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        pair = (concentration1, concentration0)
        numbers = all(isinstance(c, Number) for c in pair)
        both = tensor([float(c) for c in pair]) if numbers else stack(broadcast_all(*pair), -1)
        self._dirichlet = Dirichlet(both, validate_args=validate_args)
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    concentration1 = property(lambda self: self._dirichlet.concentration[..., 0])
    concentration0 = property(lambda self: self._dirichlet.concentration[..., 1])
    mean = property(lambda self: self._dirichlet.mean[..., 0])
    mode = property(lambda self: self._dirichlet.mode[..., 0])
    variance = property(lambda self: self._dirichlet.variance[..., 0])

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        return self._dirichlet.log_prob(stack([value, 1 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    _natural_params = property(lambda self: (self.concentration1, self.concentration0))

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return x.lgamma() + y.lgamma() - (x + y).lgamma()


class _Dirichlet(Function):
    """Autograd function of a sample, with its gradient by implicit differentiation: each component moves with its own parameter, and the
    others change in proportion."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor) -> Tensor:
        x = sample_dirichlet(concentration)
        ctx.save_for_backward(x, concentration)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, concentration = ctx.saved_tensors
        own = dirichlet_grad(x, concentration, concentration.sum(-1, True).expand_as(concentration))
        return own * (grad - (x * grad).sum(-1, True))


class Dirichlet(Parametric, ExponentialFamily):
    """Random probabilities of k outcomes; `concentration` counts, along its last dimension, what was seen of each.

    >>> Dirichlet(torch.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, True))

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0.0)
        inside = above / above.sum(-1, True)
        corner = one_hot(inside.argmax(-1), above.shape[-1]).to(inside)
        return where((self.concentration < 1).all(-1, True), corner, inside)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return _Dirichlet.apply(self.concentration.expand(self._extended_shape(sample_shape)))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        return xlogy(self.concentration - 1, value).sum(-1) - self._log_normalizer(self.concentration)

    def entropy(self) -> Tensor:
        a = self.concentration
        total, excess = a.sum(-1), (a - 1) * a.digamma()
        return self._log_normalizer(a) + (total - a.shape[-1]) * total.digamma() - excess.sum(-1)

    _natural_params = property(lambda self: (self.concentration,))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()


class Kumaraswamy(TransformedDistribution):
    """A relative of the beta distribution with a closed form: (1 - u ** (1 / b)) ** (1 / a) for a uniform u."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        a, b = self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(zeros_like(b), ones_like(b), validate_args=validate_args)
        steps = [PowerTransform(b.reciprocal()), AffineTransform(1.0, -1.0), PowerTransform(a.reciprocal())]
        super().__init__(base, steps, validate_args=validate_args)

    mean = property(lambda self: self._moment(1))
    variance = property(lambda self: self._moment(2) - self.mean.square())

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        log_mode = b.reciprocal() * (-b).log1p() - (-b * a).log1p()
        return log_mode.masked_fill((b < 1) | (a < 1), math.nan).exp()

    def _moment(self, n: int) -> Tensor:
        exponent, b = 1 + n / self.concentration1, self.concentration0
        return b * (exponent.lgamma() + b.lgamma() - (exponent + b).lgamma()).exp()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + euler_constant
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * harmonic - a.log() - b.log()


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """Numbers between 0 and 1 with density proportional to probs ** x * (1 - probs) ** (1 - x)
    (Loaiza-Ganem and Cunningham, 2019).

    Its formulas are 0 / 0 at probs = 1/2; between the two `lims` Taylor series around there are used instead.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._given, given = self._choose(probs, logits)
        self._lims = lims
        if probs is not None:
            (given,) = broadcast_all(probs)
            if validate_args is not None and not constraints.unit_interval.check(given).all():
                raise ValueError("The parameter probs has invalid values")
            given = clamp_probs(given)
        self._broadcast(validate_args, **{self._given: given})

    @lazy_property
    def probs(self) -> Tensor:
        return clamp_probs(logits_to_probs(self.logits, True))

    def _mask_stable(self, value: Tensor, lims: tuple[float, float]) -> tuple[Tensor, Tensor]:
        """Return a mask where the exact formulas can be used, and `value` with a harmless number elsewhere."""
        stable = (value <= lims[0]) | (value > lims[1])
        return stable, where(stable, value, lims[0])

    def _log_odds(self, p: Tensor) -> Tensor:
        return p.log() - (-p).log1p()

    def _cont_bern_log_norm(self) -> Tensor:
        """Return the logarithm of the factor that normalises the density: 2 atanh(1 - 2 p) / (1 - 2 p)."""
        stable, p = self._mask_stable(self.probs, self._lims)
        exact = self._log_odds(p).abs().log() - (1 - 2 * p).abs().log()
        square = (self.probs - 0.5).square()
        return where(stable, exact, math.log(2) + (4 / 3 + 104 / 45 * square) * square)

    @property
    def mean(self) -> Tensor:
        stable, p = self._mask_stable(self.probs, self._lims)
        x = self.probs - 0.5
        return where(stable, p / (2 * p - 1) - self._log_odds(p).reciprocal(), 0.5 + (1 / 3 + 16 / 45 * x.square()) * x)

    @property
    def variance(self) -> Tensor:
        stable, p = self._mask_stable(self.probs, self._lims)
        square = (self.probs - 0.5).square()
        exact = p * (p - 1) / (1 - 2 * p).square() + self._log_odds(p).pow(-2)
        return where(stable, exact, 1 / 12 - (1 / 15 - 128 / 945 * square) * square)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        return self._cont_bern_log_norm() - binary_cross_entropy_with_logits(logits, value, reduction="none")

    @checked
    def cdf(self, value: Tensor) -> Tensor:
        stable, p = self._mask_stable(self.probs, self._lims)
        exact = (p.pow(value) * (1 - p).pow(1 - value) + p - 1) / (2 * p - 1)
        inside = where(stable, exact, value)
        return where(value <= 0, 0.0, where(value >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        stable, p = self._mask_stable(self.probs, self._lims)
        exact = ((value * (2 * p - 1) - p).log1p() - (-p).log1p()) / self._log_odds(p)
        return where(stable, exact, value)

    def entropy(self) -> Tensor:
        return -self.mean * self._log_odds(self.probs) - (-self.probs).log1p() - self._cont_bern_log_norm()

    _mean_carrier_measure = 0
    _natural_params = property(lambda self: (self.logits,))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        stable, safe = self._mask_stable(x, (self._lims[0] - 0.5, self._lims[1] - 0.5))
        taylor = 0.5 * x + x.pow(2) / 24 - x.pow(4) / 2880
        return where(stable, safe.expm1().abs().log() - safe.abs().log(), taylor)


settle(__name__)
