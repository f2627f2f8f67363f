"""The Gumbel distribution."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

from ..core.numeric_limits import finfo
from ..core.tensor import Tensor
from ..ops.creation.filled import full_like, ones_like
from . import constraints
from .parametric import checked
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform
from .uniform import Uniform
from .utils import broadcast_all, euler_constant

__all__ = ["Gumbel"]


class Gumbel(TransformedDistribution):
    """The largest of many variables: loc - scale * log(-log(u)) for a uniform u."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        limits = finfo(self.loc.dtype)  # the ends are left out, where the logarithms are infinite
        bounds = full_like(self.loc, limits.tiny), full_like(self.loc, 1 - limits.eps)
        steps = [
            ExpTransform().inv,
            AffineTransform(0, -ones_like(self.scale)),
            ExpTransform().inv,
            AffineTransform(loc, -self.scale),
        ]
        super().__init__(Uniform(*bounds, validate_args=validate_args), steps, validate_args=validate_args)

    mean = property(lambda self: self.loc + self.scale * euler_constant)
    mode = property(attrgetter("loc"))
    stddev = property(lambda self: math.pi / math.sqrt(6) * self.scale)
    variance = property(lambda self: self.stddev.square())

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)
