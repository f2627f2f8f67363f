"""The beta distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.construct import tensor
from ..ops.shape.joining import stack
from . import constraints
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily
from .parametric import Parametric, checked
from .utils import Number, broadcast_all

__all__ = ["Beta"]


class Beta(Parametric, ExponentialFamily):
    """A random probability, after `concentration1` successes and `concentration0` failures: a Dirichlet of two outcomes.

    >>> Beta(1.0, 3.0).mean
    tensor(0.2500)
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        pair = (concentration1, concentration0)
        numbers = all(isinstance(c, Number) for c in pair)
        both = tensor([float(c) for c in pair]) if numbers else stack(broadcast_all(*pair), -1)
        self._dirichlet = Dirichlet(both, validate_args=validate_args)
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    concentration1 = property(lambda self: self._dirichlet.concentration[..., 0])
    concentration0 = property(lambda self: self._dirichlet.concentration[..., 1])
    mean = property(lambda self: self._dirichlet.mean[..., 0])
    mode = property(lambda self: self._dirichlet.mode[..., 0])
    variance = property(lambda self: self._dirichlet.variance[..., 0])

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        return self._dirichlet.log_prob(stack([value, 1 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    _natural_params = property(lambda self: (self.concentration1, self.concentration0))

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return x.lgamma() + y.lgamma() - (x + y).lgamma()
