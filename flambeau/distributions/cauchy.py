"""The Cauchy distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ..core.size import Size
from ..core.tensor import Tensor
from . import constraints
from .parametric import Parametric, checked

__all__ = ["Cauchy"]


class Cauchy(Parametric):
    """The quotient of two centred normal variables: median `loc`, half-width at half-maximum `scale`, no mean."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, loc=loc, scale=scale)

    mode = property(attrgetter("loc"))
    mean = property(lambda self: self._constant(math.nan, self.loc))
    variance = property(lambda self: self._constant(math.inf, self.loc))

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.loc + self._empty(self.loc, sample_shape).cauchy_() * self.scale

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        return -math.log(math.pi) - self.scale.log() - ((value - self.loc) / self.scale).square().log1p()

    @checked
    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 + ((value - self.loc) / self.scale).atan() / math.pi

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (math.pi * (value - 0.5)).tan()

    def entropy(self) -> Tensor:
        return self.scale.log() + math.log(4 * math.pi)
