"""The normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ..autograd.grad_mode import no_grad
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.random.sampling import normal
from . import constraints
from .exp_family import ExponentialFamily
from .parametric import Parametric, checked

__all__ = ["Normal"]


class Normal(Parametric, ExponentialFamily):
    """The Gauss curve around `loc` with standard deviation `scale`.

    >>> Normal(0.0, 1.0).log_prob(torch.tensor(0.0))
    tensor(-0.9189)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, loc=loc, scale=scale)

    mean = mode = property(attrgetter("loc"))
    stddev = property(attrgetter("scale"))
    variance = property(lambda self: self.scale.square())

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.loc + self._empty(self.loc, sample_shape).normal_() * self.scale

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        distance = (value - self.loc) / self.scale
        return -0.5 * distance.square() - self.scale.log() - 0.5 * math.log(2 * math.pi)

    @checked
    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return self.scale.log() + 0.5 * (1 + math.log(2 * math.pi))

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        precision = self.variance.reciprocal()
        return self.loc * precision, -0.5 * precision

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return -0.25 * x.square() / y + 0.5 * (-math.pi / y).log()
