"""The Kumaraswamy distribution."""

from __future__ import annotations

import math
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation.filled import ones_like, zeros_like
from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .uniform import Uniform
from .utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


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
