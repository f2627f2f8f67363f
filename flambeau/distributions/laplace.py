"""The Laplace distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ..core.numeric_limits import finfo
from ..core.size import Size
from ..core.tensor import Tensor
from . import constraints
from .parametric import Parametric, checked

__all__ = ["Laplace"]


class Laplace(Parametric):
    """Exponential on both sides of `loc`, with mean distance `scale`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, loc=loc, scale=scale)

    mean = mode = property(attrgetter("loc"))
    stddev = property(lambda self: math.sqrt(2) * self.scale)
    variance = property(lambda self: 2 * self.scale.square())

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        # Starting just above -1 keeps the logarithm finite.
        u = self._empty(self.loc, sample_shape).uniform_(finfo(self.loc.dtype).eps - 1, 1)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    @checked
    def cdf(self, value: Tensor) -> Tensor:
        distance = value - self.loc
        return 0.5 - 0.5 * distance.sign() * (-distance.abs() / self.scale).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        side = value - 0.5
        return self.loc - self.scale * side.sign() * (-2 * side.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()
