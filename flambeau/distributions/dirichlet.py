"""The Dirichlet distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.function import Function, once_differentiable
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.nn.embedding import one_hot
from ..ops.pointwise.comparison import where
from ..ops.pointwise.special_functions import xlogy
from ..ops.random.sampling import dirichlet_grad, sample_dirichlet
from . import constraints
from .exp_family import ExponentialFamily
from .parametric import Parametric, checked

__all__ = ["Dirichlet"]


class _Dirichlet(Function):
    """A sample, with its gradient by implicit differentiation: each component moves with its own parameter, and the
    others make room in proportion."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor) -> Tensor:
        x = sample_dirichlet(concentration)
        ctx.save_for_backward(x, concentration)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, concentration = ctx.saved_tensors
        own = dirichlet_grad(x, concentration, concentration.sum(-1, True).expand_as(concentration))
        return own * (grad - (x * grad).sum(-1, True))


class Dirichlet(Parametric, ExponentialFamily):
    """Random probabilities of k outcomes; `concentration` counts, along its last dimension, what was seen of each.

    >>> Dirichlet(torch.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, True))

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0.0)
        inside = above / above.sum(-1, True)
        corner = one_hot(inside.argmax(-1), above.shape[-1]).to(inside)
        return where((self.concentration < 1).all(-1, True), corner, inside)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return _Dirichlet.apply(self.concentration.expand(self._extended_shape(sample_shape)))

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        return xlogy(self.concentration - 1, value).sum(-1) - self._log_normalizer(self.concentration)

    def entropy(self) -> Tensor:
        a = self.concentration
        total, excess = a.sum(-1), (a - 1) * a.digamma()
        return self._log_normalizer(a) + (total - a.shape[-1]) * total.digamma() - excess.sum(-1)

    _natural_params = property(lambda self: (self.concentration,))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()
