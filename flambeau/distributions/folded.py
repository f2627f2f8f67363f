"""Absolute values of variables that are symmetric around 0."""

from __future__ import annotations

import math

from ..core.tensor import Tensor
from ..ops.creation.construct import as_tensor
from ..ops.creation.filled import zeros_like
from ..ops.pointwise.comparison import where
from . import constraints
from .distribution import Distribution
from .parametric import checked
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform

__all__ = ["Folded"]


class Folded(TransformedDistribution):
    """|x| for x from a distribution symmetric around 0: twice its density on the positive side."""

    support = constraints.nonnegative
    has_rsample = True

    def _fold(self, base: Distribution, validate_args: bool | None) -> None:
        TransformedDistribution.__init__(self, base, AbsTransform(), validate_args=validate_args)

    scale = property(lambda self: self.base_dist.scale)
    mode = property(lambda self: zeros_like(self.scale))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        value = as_tensor(value, dtype=self.scale.dtype, device=self.scale.device)
        return where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    @checked
    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob: Tensor) -> Tensor:
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
