"""The continuous uniform distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.random.fills import rand
from . import constraints
from .parametric import Parametric, checked

__all__ = ["Uniform"]


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
