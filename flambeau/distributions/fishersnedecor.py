"""The Fisher-Snedecor distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.numeric_limits import finfo
from ..core.size import Size
from ..core.tensor import Tensor
from . import constraints
from .gamma import Gamma
from .parametric import Parametric, checked
from .utils import broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Parametric):
    """F distribution: the quotient of two chi-squared variables, each per degree of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        df1, df2 = broadcast_all(df1, df2)
        self._gamma1, self._gamma2 = Gamma(0.5 * df1, df1), Gamma(0.5 * df2, df2)
        self._broadcast(validate_args, df1=df1, df2=df2)

    @property
    def mean(self) -> Tensor:
        df2 = self.df2.masked_fill(self.df2 <= 2, math.nan)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return mode.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self) -> Tensor:
        df1, df2 = self.df1, self.df2.masked_fill(self.df2 <= 4, math.nan)
        return 2 * (df2 / (df2 - 2)).square() * (df1 + df2 - 2) / (df1 * (df2 - 4))

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        above, below = self._gamma1.rsample(sample_shape), self._gamma2.rsample(sample_shape)
        tiny = finfo(below.dtype).tiny
        return (above / below.clamp(min=tiny)).clamp(min=tiny)

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        a, b, ratio = 0.5 * self.df1, 0.5 * self.df2, self.df1 / self.df2
        log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
        return a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p() - log_beta
