"""The exponential distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.filled import zeros_like
from . import constraints
from .exp_family import ExponentialFamily
from .parametric import Parametric, checked

__all__ = ["Exponential"]


class Exponential(Parametric, ExponentialFamily):
    """The waiting time for an event that happens at a constant `rate`."""

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, rate=rate)

    mean = stddev = property(lambda self: self.rate.reciprocal())
    mode = property(lambda self: zeros_like(self.rate))
    variance = property(lambda self: self.rate.pow(-2))

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self._empty(self.rate, sample_shape).exponential_() / self.rate

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    @checked
    def cdf(self, value: Tensor) -> Tensor:
        return -(-self.rate * value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    _mean_carrier_measure = 0
    _natural_params = property(lambda self: (-self.rate,))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return -(-x).log()
