"""The Pareto distribution."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from ..core.tensor import Tensor
from . import constraints
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform
from .utils import broadcast_all

__all__ = ["Pareto"]


class Pareto(TransformedDistribution):
    """Values above `scale` whose chance to exceed x falls as x ** -alpha."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.greater_than_eq(self.scale)

    mode = property(attrgetter("scale"))

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)  # infinite up to there
        return a * self.scale / (a - 1)

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)
        return self.scale.square() * a / ((a - 1).square() * (a - 2))

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()
