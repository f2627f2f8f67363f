"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.nn.loss import binary_cross_entropy_with_logits
from ..ops.pointwise.comparison import where
from ..ops.random.fills import rand
from . import constraints
from .exp_family import ExponentialFamily
from .parametric import ProbsOrLogits, checked
from .utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """Numbers between 0 and 1 with density proportional to probs ** x * (1 - probs) ** (1 - x)
    (Loaiza-Ganem and Cunningham, 2019).

    Its formulas are 0 / 0 at probs = 1/2; between the two `lims` Taylor series around there are used instead.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._given, given = self._choose(probs, logits)
        self._lims = lims
        if probs is not None:
            (given,) = broadcast_all(probs)
            if validate_args is not None and not constraints.unit_interval.check(given).all():
                raise ValueError("The parameter probs has invalid values")
            given = clamp_probs(given)
        self._broadcast(validate_args, **{self._given: given})

    @lazy_property
    def probs(self) -> Tensor:
        return clamp_probs(logits_to_probs(self.logits, True))

    def _stable(self, value: Tensor, lims: tuple[float, float]) -> tuple[Tensor, Tensor]:
        """Return a mask where the exact formulas can be used, and `value` with a harmless number elsewhere."""
        stable = (value <= lims[0]) | (value > lims[1])
        return stable, where(stable, value, lims[0])

    def _log_odds(self, p: Tensor) -> Tensor:
        return p.log() - (-p).log1p()

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of the factor that makes the density integrate to 1: 2 atanh(1 - 2 p) / (1 - 2 p)."""
        stable, p = self._stable(self.probs, self._lims)
        exact = self._log_odds(p).abs().log() - (1 - 2 * p).abs().log()
        square = (self.probs - 0.5).square()
        return where(stable, exact, math.log(2) + (4 / 3 + 104 / 45 * square) * square)

    @property
    def mean(self) -> Tensor:
        stable, p = self._stable(self.probs, self._lims)
        x = self.probs - 0.5
        return where(stable, p / (2 * p - 1) - self._log_odds(p).reciprocal(), 0.5 + (1 / 3 + 16 / 45 * x.square()) * x)

    @property
    def variance(self) -> Tensor:
        stable, p = self._stable(self.probs, self._lims)
        square = (self.probs - 0.5).square()
        exact = p * (p - 1) / (1 - 2 * p).square() + self._log_odds(p).pow(-2)
        return where(stable, exact, 1 / 12 - (1 / 15 - 128 / 945 * square) * square)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        return self._cont_bern_log_norm() - binary_cross_entropy_with_logits(logits, value, reduction="none")

    @checked
    def cdf(self, value: Tensor) -> Tensor:
        stable, p = self._stable(self.probs, self._lims)
        exact = (p.pow(value) * (1 - p).pow(1 - value) + p - 1) / (2 * p - 1)
        inside = where(stable, exact, value)
        return where(value <= 0, 0.0, where(value >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        stable, p = self._stable(self.probs, self._lims)
        exact = ((value * (2 * p - 1) - p).log1p() - (-p).log1p()) / self._log_odds(p)
        return where(stable, exact, value)

    def entropy(self) -> Tensor:
        return -self.mean * self._log_odds(self.probs) - (-self.probs).log1p() - self._cont_bern_log_norm()

    _mean_carrier_measure = 0
    _natural_params = property(lambda self: (self.logits,))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        stable, safe = self._stable(x, (self._lims[0] - 0.5, self._lims[1] - 0.5))
        taylor = 0.5 * x + x.pow(2) / 24 - x.pow(4) / 2880
        return where(stable, safe.expm1().abs().log() - safe.abs().log(), taylor)
