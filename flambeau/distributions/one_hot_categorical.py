"""Categorical distributions whose outcomes are one-hot vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.ranges import eye
from ..ops.nn.embedding import one_hot
from . import constraints
from .categorical import Categorical
from .parametric import Parametric, checked

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


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
