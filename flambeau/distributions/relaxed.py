"""Differentiable relaxations of Bernoulli and one-hot categorical variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..compat.former_names import settle
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.random.fills import rand
from . import constraints
from .counts import Categorical
from .derived import TransformedDistribution
from .distribution import Parametric, ProbsOrLogits, checked
from .transforms import ExpTransform, SigmoidTransform
from .utils import clamp_probs


class LogitRelaxedBernoulli(ProbsOrLogits):
    """The log-odds of a relaxed Bernoulli variable: logistic noise around `logits`, divided by the temperature."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.temperature = temperature
        self._given, given = self._choose(probs, logits)
        self._broadcast(validate_args, **{self._given: given})

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(rand(shape, dtype=probs.dtype, device=probs.device))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        distance = self.logits - value * self.temperature
        return self.temperature.log() + distance - 2 * distance.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    """Numbers between 0 and 1 that approach Bernoulli samples as the temperature falls (Maddison et al., 2016)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)


class ExpRelaxedCategorical(Parametric):
    """The logarithm of a relaxed one-hot vector: Gumbel noise on `logits`, divided by the temperature, normalised."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical, self.temperature = Categorical(probs, logits), temperature
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    logits = property(lambda self: self._categorical.logits)
    probs = property(lambda self: self._categorical.probs)
    param_shape = property(lambda self: self._categorical.param_shape)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        u = rand(self._extended_shape(sample_shape), dtype=self.logits.dtype, device=self.logits.device)
        gumbel = -(-clamp_probs(u).log()).log()
        return ((self.logits + gumbel) / self.temperature).log_softmax(-1)

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        k = self.event_shape[0]
        score = (self.logits - value * self.temperature).log_softmax(-1).sum(-1)
        return score + math.lgamma(k) + (k - 1) * self.temperature.log()


class RelaxedOneHotCategorical(TransformedDistribution):
    """Vectors on the simplex that approach one-hot samples as the temperature falls (Maddison et al., 2016)."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)


settle(__name__)
