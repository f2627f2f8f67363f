"""The negative binomial distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.grad_mode import no_grad
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.pointwise.activation import logsigmoid
from ..ops.random.sampling import poisson
from . import constraints
from .gamma import Gamma
from .parametric import ProbsOrLogits, checked
from .utils import lazy_property

__all__ = ["NegativeBinomial"]


class NegativeBinomial(ProbsOrLogits):
    """The number of successful trials, each with probability `probs`, before `total_count` have failed."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._broadcast_counts(total_count, probs, logits, validate_args)

    mean = property(lambda self: self.total_count * self.logits.exp())
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0))
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    @lazy_property
    def _gamma(self) -> Gamma:
        """The rate of the Poisson distribution that this one is a mixture of."""
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with no_grad():
            return poisson(self._gamma.sample(sample_shape))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        n = self.total_count
        log_choices = (n + value).lgamma() - (value + 1).lgamma() - n.lgamma()
        log_choices = log_choices.masked_fill(n + value == 0, 0.0)
        return log_choices + n * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
