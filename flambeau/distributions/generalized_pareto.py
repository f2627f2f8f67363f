"""The generalized Pareto distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.filled import zeros_like
from ..ops.pointwise.comparison import isclose, where
from ..ops.random.fills import rand
from . import constraints
from .parametric import Parametric, checked

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Parametric):
    """The excess over a high threshold `loc`: tails that are exponential (`concentration` 0), heavy (> 0) or end (< 0)."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, where(self.concentration < 0, end, math.inf))

    mode = property(attrgetter("loc"))

    @property
    def mean(self) -> Tensor:
        c, finite = self.concentration, self.concentration < 1
        return where(finite, self.loc + self.scale / (1 - where(finite, c, 0.5)), math.nan)

    @property
    def variance(self) -> Tensor:
        finite = self.concentration < 0.5
        c = where(finite, self.concentration, 0.25)
        return where(finite, (self.scale / (1 - c)).square() / (1 - 2 * c), math.nan)

    def _shape(self) -> tuple[Tensor, Tensor]:
        """Return a mask where the tail is exponential, and the concentration with 1 in these places."""
        exponential = isclose(self.concentration, zeros_like(self.concentration))
        return exponential, where(exponential, 1.0, self.concentration)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        exponential, c = self._shape()
        z = (value - self.loc) / self.scale
        power = 1 / c + 1 + zeros_like(z)
        fall = where(power == 0, power, power * (c * z).log1p())
        return -self.scale.log() - where(exponential, z, fall)

    @checked
    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability to exceed `value`."""
        exponential, c = self._shape()
        z = (value - self.loc) / self.scale
        return where(exponential, -z, -(c * z).log1p() / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of `cdf`."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        exponential, c = self._shape()
        log_tail = (-value).log1p()
        return where(exponential, self.loc - self.scale * log_tail, self.loc + self.scale / c * (-c * log_tail).expm1())

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
