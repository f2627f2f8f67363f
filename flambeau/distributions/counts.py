"""Distributions of counts and of categories, and mixtures whose component is drawn from categories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ..autograd.grad_mode import no_grad
from ..compat.former_names import settle
from ..core.dtype import int64
from ..core.numeric_limits import finfo
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.filled import ones_like, zeros, zeros_like
from ..ops.creation.ranges import eye
from ..ops.nn.embedding import one_hot
from ..ops.nn.loss import binary_cross_entropy_with_logits
from ..ops.pointwise.activation import logsigmoid
from ..ops.pointwise.special_functions import xlogy
from ..ops.random.sampling import bernoulli, binomial, multinomial, poisson
from ..ops.shape.dimensions import broadcast_tensors
from . import constraints
from .distribution import Distribution, ExponentialFamily, Parametric, ProbsOrLogits, checked
from .positive import Gamma
from .utils import broadcast_all, lazy_property


class Bernoulli(ProbsOrLogits, ExponentialFamily):
    """1 with probability `probs` (or log-odds `logits`), else 0.

    >>> Bernoulli(torch.tensor([0.3])).mean
    tensor([0.3000])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._given, given = self._choose(probs, logits)
        self._broadcast(validate_args, **{self._given: given})

    mean = property(attrgetter("probs"))
    variance = property(lambda self: self.probs * (1 - self.probs))

    @property
    def mode(self) -> Tensor:
        return (self.probs >= 0.5).to(self.probs).masked_fill(self.probs == 0.5, math.nan)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._count_up(2, expand, self._param.dtype)

    _mean_carrier_measure = 0
    _natural_params = property(lambda self: (self.probs.logit(),))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.exp().log1p()


class Binomial(ProbsOrLogits):
    """The number of successes among `total_count` trials, each with probability `probs`."""

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._broadcast_counts(total_count, probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self.total_count)

    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count))
    variance = property(lambda self: self.mean * (1 - self.probs))

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        n = self.total_count
        log_choices = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return log_choices + value * self.logits + n * logsigmoid(-self.logits)

    def _common_count(self, asked: str) -> int:
        count = int(self.total_count.max())
        if self.total_count.min() != count:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{asked}`.")
        return count

    def entropy(self) -> Tensor:
        self._common_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._count_up(1 + self._common_count("enumerate_support"), expand, self._param.dtype)


class Geometric(ProbsOrLogits):
    """The number of trials that fail before the first success of probability `probs`."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._given, given = self._choose(probs, logits)
        self._broadcast(validate_args, **{self._given: given})
        if self._validate_args and self._given == "probs" and not (self.probs > 0).all():
            raise ValueError(
                f"Expected parameter probs ({type(self.probs).__name__} of shape {tuple(self.probs.shape)}) "
                f"of distribution {self!r} to be positive but found invalid values:\n{self.probs[self.probs <= 0]}"
            )

    mean = property(lambda self: 1 / self.probs - 1)
    mode = property(lambda self: zeros_like(self.probs))
    variance = property(lambda self: self.mean / self.probs)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with no_grad():
            u = self._empty(self.probs, sample_shape).uniform_(finfo(self.probs.dtype).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        # No failure after certain success: 0 * log 0 counts as 0.
        failure = self.probs.masked_fill((self.probs == 1) & (value == 0), 0)
        return value * (-failure).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class NegativeBinomial(ProbsOrLogits):
    """The number of successful trials, each with probability `probs`, before `total_count` have failed."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._broadcast_counts(total_count, probs, logits, validate_args)

    mean = property(lambda self: self.total_count * self.logits.exp())
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0))
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    @lazy_property
    def _gamma(self) -> Gamma:
        """The distribution of the rate of the Poisson distributions that this one is a mixture of."""
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with no_grad():
            return poisson(self._gamma.sample(sample_shape))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        n = self.total_count
        log_choices = (n + value).lgamma() - (value + 1).lgamma() - n.lgamma()
        log_choices = log_choices.masked_fill(n + value == 0, 0.0)
        return log_choices + n * logsigmoid(-self.logits) + value * logsigmoid(self.logits)


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


class Categorical(ProbsOrLogits):
    """The index of one of k outcomes; `probs` or `logits` along the last dimension are normalised.

    >>> Categorical(torch.tensor([1.0, 3.0])).probs
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _binary = False

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._given, given = self._choose(probs, logits)
        if given.dim() < 1:
            raise ValueError(f"`{self._given}` parameter must be at least one-dimensional.")
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        self._num_events = self._param.shape[-1]
        super().__init__(self._param.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    mean = variance = property(lambda self: self._constant(math.nan, self.probs))
    mode = property(lambda self: self.probs.argmax(-1))

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        rows = self.probs.reshape(-1, self._num_events)
        drawn = multinomial(rows, Size(sample_shape).numel(), True).T
        return drawn.reshape(self._extended_shape(sample_shape))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        index, logits = broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        finite = self.logits.clamp(min=finfo(self.logits.dtype).min)  # an impossible outcome adds 0
        return -(finite * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._count_up(self._num_events, expand, int64)


class OneHotCategorical(Parametric):
    """An outcome of k as a vector that is 1 there and 0 elsewhere."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    probs = mean = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    param_shape = property(lambda self: self._categorical.param_shape)
    mode = property(lambda self: self._encode(self._categorical.mode))
    variance = property(lambda self: self.probs * (1 - self.probs))

    def _encode(self, indices: Tensor) -> Tensor:
        return one_hot(indices, self._categorical._num_events).to(self.probs)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self._encode(self._categorical.sample(sample_shape))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self.event_shape[0]
        values = eye(n, dtype=self.probs.dtype, device=self.probs.device).view(n, *(1 for _ in self.batch_shape), n)
        return values.expand(n, *self.batch_shape, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """A sample whose gradient is passed straight on to the probabilities (Bengio et al., 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(Parametric):
    """The counts of k outcomes in `total_count` draws."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    total_count: int

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count, probs=self.probs)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return constraints.multinomial(self.total_count)

    probs = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    param_shape = property(lambda self: self._categorical.param_shape)
    mean = property(lambda self: self.total_count * self.probs)
    variance = property(lambda self: self.mean * (1 - self.probs))

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        draws = self._categorical.sample(Size((self.total_count,)) + Size(sample_shape)).movedim(0, -1)
        counts = zeros(self._extended_shape(sample_shape), dtype=int64, device=draws.device)
        return counts.scatter_add_(-1, draws, ones_like(draws)).type_as(self.probs)

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -math.inf), 0)
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        # log n! is known, and the expected log of each count's factorial follows from its binomial distribution.
        counts = self._binomial.enumerate_support(expand=False)[1:]
        log_factorials = (self._binomial.log_prob(counts).exp() * (counts + 1).lgamma()).sum([0, -1])
        return self.total_count * self._categorical.entropy() - math.lgamma(self.total_count + 1) + log_factorials


class MixtureSameFamily(Parametric):
    """A mixture: a component, the last batch dimension of one distribution, is drawn from a categorical one, then an outcome of it.

    >>> mixture = MixtureSameFamily(Categorical(torch.ones(2)), Normal(torch.tensor([-1.0, 1.0]), 1.0))
    >>> mixture.variance
    tensor(2.)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: bool | None = None
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of torch.distributions.Distribution")
        mixture_shape, batch = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        if any(1 != a != b != 1 for a, b in zip(reversed(mixture_shape), reversed(batch))):
            raise ValueError(
                f"`mixture_distribution.batch_shape` ({mixture_shape}) is not compatible with "
                f"`component_distribution.batch_shape`({batch})"
            )
        parts, components = mixture_distribution.logits.shape[-1], component_distribution.batch_shape[-1]
        if parts != components:
            raise ValueError(
                f"`mixture_distribution component` ({parts}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({components})"
            )
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        self._dim = -1 - len(component_distribution.event_shape)  # of the components in a sample
        super().__init__(batch, component_distribution.event_shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)

    def _average(self, of_components: Tensor) -> Tensor:
        """Return the mean over components, weighted by their probabilities."""
        probs = self._mixture_distribution.probs
        return (probs.reshape(*probs.shape, *(1 for _ in self.event_shape)) * of_components).sum(self._dim)

    @property
    def mean(self) -> Tensor:
        return self._average(self._component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        centres = self._component_distribution.mean
        between = self._average((centres - self.mean.unsqueeze(self._dim)).square())
        return self._average(self._component_distribution.variance) + between

    def cdf(self, value: Tensor) -> Tensor:
        parts = self._component_distribution.cdf(value.unsqueeze(self._dim))
        return (parts * self._mixture_distribution.probs).sum(-1)

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        parts = self._component_distribution.log_prob(value.unsqueeze(self._dim))
        return (parts + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with no_grad():
            chosen = self._mixture_distribution.sample(sample_shape)
            outcomes = self._component_distribution.sample(sample_shape)
            dim = len(sample_shape) + len(self.batch_shape)
            index = chosen.reshape(*chosen.shape, 1, *(1 for _ in self.event_shape))
            return outcomes.gather(dim, index.expand(*chosen.shape, 1, *self.event_shape)).squeeze(dim)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"


settle(__name__)
