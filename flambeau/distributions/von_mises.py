"""The von Mises distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from .. import special
from ..autograd.grad_mode import no_grad
from ..core.dtype import bool_, float64
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.filled import zeros
from ..ops.pointwise.comparison import where
from ..ops.random.fills import rand
from . import constraints
from .parametric import Parametric, checked
from .utils import lazy_property

__all__ = ["VonMises"]


class VonMises(Parametric):
    """Angles around `loc`: what a normal distribution becomes on the circle."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._broadcast(validate_args, loc=loc, concentration=concentration)

    mean = mode = property(attrgetter("loc"))

    @lazy_property
    def variance(self) -> Tensor:
        """The circular variance: 1 minus the length of the mean direction."""
        return 1 - special.i1e(self.concentration) / special.i0e(self.concentration)

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        # i0e(x) = exp(-x) I0(x) neither over- nor underflows.
        above = self.concentration * ((value - self.loc).cos() - 1)
        return above - math.log(2 * math.pi) - special.i0e(self.concentration).log()

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        """Best and Fisher's rejection (1979): proposals from a wrapped Cauchy distribution, in float64."""
        loc, kappa = self.loc.to(float64), self.concentration.to(float64)
        r = self._proposal_shape(kappa)
        shape = self._extended_shape(sample_shape)
        x = zeros(shape, dtype=float64, device=loc.device)
        done = zeros(shape, dtype=bool_, device=loc.device)
        while not done.all():
            u1, u2, u3 = rand((3, *shape), dtype=float64, device=loc.device).unbind()
            z = (math.pi * u1).cos()
            f = (1 + r * z) / (r + z)
            c = kappa * (r - f)
            accepted = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
            x = where(accepted, (u3 - 0.5).sign() * f.acos(), x)
            done = done | accepted
        return ((x + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    @staticmethod
    def _proposal_shape(kappa: Tensor) -> Tensor:
        tau = 1 + (1 + 4 * kappa.square()).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
        return where(kappa < 1e-5, 1 / kappa + kappa, (1 + rho.square()) / (2 * rho))
