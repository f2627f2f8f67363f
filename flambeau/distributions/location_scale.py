"""Distributions of real numbers around a location: Normal, Laplace, Cauchy, Gumbel, Student's t, von Mises, and functions of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from .. import special
from ..autograd.grad_mode import no_grad
from ..compat.former_names import settle
from ..core.dtype import bool_, float64
from ..core.numeric_limits import finfo
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.construct import as_tensor
from ..ops.creation.filled import full_like, ones_like, zeros, zeros_like
from ..ops.pointwise.comparison import where
from ..ops.random.fills import rand
from ..ops.random.sampling import normal
from . import constraints
from .derived import TransformedDistribution
from .distribution import Distribution, ExponentialFamily, Parametric, checked
from .intervals import Uniform
from .positive import Chi2
from .transforms import AbsTransform, AffineTransform, ExpTransform, StickBreakingTransform
from .utils import broadcast_all, euler_constant, lazy_property


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
        return 0.5 * (1 + ((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)).erf())

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


class Gumbel(TransformedDistribution):
    """The largest of many variables: loc - scale * log(-log(u)) for a uniform u."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        limits = finfo(self.loc.dtype)  # the ends are left out, where the logarithms are infinite
        bounds = full_like(self.loc, limits.tiny), full_like(self.loc, 1 - limits.eps)
        steps = [
            ExpTransform().inv,
            AffineTransform(0, -ones_like(self.scale)),
            ExpTransform().inv,
            AffineTransform(loc, -self.scale),
        ]
        super().__init__(Uniform(*bounds, validate_args=validate_args), steps, validate_args=validate_args)

    mean = property(lambda self: self.loc + self.scale * euler_constant)
    mode = property(attrgetter("loc"))
    stddev = property(lambda self: math.pi / math.sqrt(6) * self.scale)
    variance = property(lambda self: self.stddev.square())

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)


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
        """Return log B(df / 2, 1 / 2)."""
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
        """Draw angles by Best and Fisher's rejection (1979): proposals from a wrapped Cauchy distribution, in float64."""
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


class HalfNormal(Folded):
    """The absolute value of a centred normal variable with standard deviation `scale`."""

    arg_constraints = {"scale": constraints.positive}

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        self._fold(Normal(0, scale, validate_args=False), validate_args)

    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = property(lambda self: self.scale.square() * (1 - 2 / math.pi))


class HalfCauchy(Folded):
    """The absolute value of a centred Cauchy variable."""

    arg_constraints = {"scale": constraints.positive}

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        self._fold(Cauchy(0, scale, validate_args=False), validate_args)

    mean = property(lambda self: self._constant(math.inf, self.scale))
    variance = property(lambda self: self.base_dist.variance)


class LogNormal(TransformedDistribution):
    """exp of a normal variable with mean `loc` and standard deviation `scale`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    loc = property(lambda self: self.base_dist.loc)
    scale = property(lambda self: self.base_dist.scale)
    mean = property(lambda self: (self.loc + self.scale.square() / 2).exp())
    mode = property(lambda self: (self.loc - self.scale.square()).exp())
    variance = property(lambda self: self.scale.square().expm1() * (2 * self.loc + self.scale.square()).exp())

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class LogisticNormal(TransformedDistribution):
    """Normal variables brought onto the simplex by stick breaking."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    loc = property(lambda self: self.base_dist.base_dist.loc)
    scale = property(lambda self: self.base_dist.base_dist.scale)


settle(__name__)
