"""Categorical distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.dtype import int64
from ..core.numeric_limits import finfo
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.random.sampling import multinomial
from ..ops.shape.dimensions import broadcast_tensors
from . import constraints
from .parametric import ProbsOrLogits, checked

__all__ = ["Categorical"]


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
        return self._counted(self._num_events, expand, int64)
