"""The Poisson distribution."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ..autograd.grad_mode import no_grad
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.pointwise.special_functions import xlogy
from ..ops.random.sampling import poisson
from . import constraints
from .exp_family import ExponentialFamily
from .parametric import Parametric, checked

__all__ = ["Poisson"]


class Poisson(Parametric, ExponentialFamily):
    """The number of events in a time in which `rate` are expected."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, rate=rate)

    mean = variance = property(attrgetter("rate"))
    mode = property(lambda self: self.rate.floor())

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        return xlogy(value, self.rate) - self.rate - (value + 1).lgamma()

    _natural_params = property(lambda self: (self.rate.log(),))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.exp()
