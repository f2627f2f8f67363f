"""Differentiable stand-ins for one-hot categorical distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.random.fills import rand
from . import constraints
from .categorical import Categorical
from .parametric import Parametric, checked
from .transformed_distribution import TransformedDistribution
from .transforms import ExpTransform
from .utils import clamp_probs

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


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
