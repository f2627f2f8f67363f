"""Mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.grad_mode import no_grad
from ..core.size import Size
from ..core.tensor import Tensor
from . import constraints
from .categorical import Categorical
from .distribution import Distribution
from .parametric import Parametric, checked

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Parametric):
    """A component, the last batch dimension of one distribution, is drawn from a categorical one, then an outcome of it.

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
        """The mean over components, with their probabilities."""
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
