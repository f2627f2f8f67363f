"""The Weibull distribution."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops.creation.filled import ones_like
from . import constraints
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """Lifetimes whose failure rate grows as time ** (concentration - 1)."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(ones_like(self.scale), validate_args=validate_args)
        steps = [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)]
        super().__init__(base, steps, validate_args=validate_args)

    concentration_reciprocal = property(lambda self: self.concentration.reciprocal())
    mean = property(lambda self: self.scale * self._moment(1))
    variance = property(lambda self: self.scale.square() * (self._moment(2) - self._moment(1).square()))

    @property
    def mode(self) -> Tensor:
        return self.scale * (1 - self.concentration_reciprocal) ** self.concentration_reciprocal

    def _moment(self, n: int) -> Tensor:
        return (1 + n * self.concentration_reciprocal).lgamma().exp()

    def entropy(self) -> Tensor:
        flat = self.concentration_reciprocal
        return euler_constant * (1 - flat) + (self.scale * flat).log() + 1
