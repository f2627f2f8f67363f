"""The Bernoulli distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ..autograd.grad_mode import no_grad
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.nn.loss import binary_cross_entropy_with_logits
from ..ops.random.sampling import bernoulli
from . import constraints
from .exp_family import ExponentialFamily
from .parametric import ProbsOrLogits, checked
from .utils import broadcast_all

__all__ = ["Bernoulli"]


class Bernoulli(ProbsOrLogits, ExponentialFamily):
    """1 with probability `probs` (or log-odds `logits`), else 0.

    >>> Bernoulli(torch.tensor([0.3])).mean
    tensor([0.3000])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._given, given = self._choose(probs, logits)
        self._broadcast(validate_args, **{self._given: given})

    mean = property(attrgetter("probs"))
    variance = property(lambda self: self.probs * (1 - self.probs))

    @property
    def mode(self) -> Tensor:
        return (self.probs >= 0.5).to(self.probs).masked_fill(self.probs == 0.5, math.nan)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._counted(2, expand, self._param.dtype)

    _mean_carrier_measure = 0
    _natural_params = property(lambda self: (self.probs.logit(),))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.exp().log1p()
