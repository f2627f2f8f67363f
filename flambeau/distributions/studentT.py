"""Student's t distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.pointwise.comparison import where
from . import constraints
from .chi2 import Chi2
from .parametric import Parametric, checked
from .utils import broadcast_all

__all__ = ["StudentT"]


class StudentT(Parametric):
    """A standard normal variable over the root of an independent chi-squared one per degree of freedom."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        df, loc, scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(df)
        self._broadcast(validate_args, df=df, loc=loc, scale=scale)

    mean = property(lambda self: self.loc.masked_fill(self.df <= 1, math.nan))
    mode = property(attrgetter("loc"))

    @property
    def variance(self) -> Tensor:
        finite = self.df.masked_fill(self.df <= 2, 3.0)  # any value whose derivative is finite
        spread = self.scale.square() * finite / (finite - 2)
        return where(self.df > 2, spread, math.inf).masked_fill(self.df <= 1, math.nan)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        noise = self._empty(self.df, sample_shape).normal_()
        return self.loc + self.scale * (noise * (self._chi2.rsample(sample_shape) / self.df).rsqrt())

    def _log_beta(self) -> Tensor:
        """log B(df / 2, 1 / 2)"""
        return (0.5 * self.df).lgamma() + math.lgamma(0.5) - (0.5 * (self.df + 1)).lgamma()

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        y = (value - self.loc) / self.scale
        log_height = -self.scale.log() - 0.5 * self.df.log() - self._log_beta()
        return log_height - 0.5 * (self.df + 1) * (y.square() / self.df).log1p()

    def entropy(self) -> Tensor:
        half = 0.5 * (self.df + 1)
        tail = half * (half.digamma() - (0.5 * self.df).digamma())
        return self.scale.log() + 0.5 * self.df.log() + self._log_beta() + tail
