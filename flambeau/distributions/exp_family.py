"""Exponential families: density exp(<natural parameters, statistics> - log normaliser) times a carrier measure."""

from __future__ import annotations

from typing import Any

from ..autograd.api import grad
from ..autograd.grad_mode import enable_grad
from ..core.tensor import Tensor
from .distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A family that names its natural parameters and its log normaliser A; the derivatives of A are the expected
    statistics, which give the entropy (here) and the divergence between two members (in `kl`)."""

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any, **others: Any) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def _expected_statistics(self) -> tuple[list[Tensor], Tensor, tuple[Tensor, ...]]:
        """Natural parameters, log normaliser there, and its derivatives."""
        with enable_grad():
            parameters = [p.detach().requires_grad_() for p in self._natural_params]
            normalizer = self._log_normalizer(*parameters)
            return parameters, normalizer, grad(normalizer.sum(), parameters, create_graph=True)

    def entropy(self) -> Tensor:
        carrier = self._mean_carrier_measure
        parameters, result, statistics = self._expected_statistics()
        for parameter, statistic in zip(parameters, statistics):
            result = result - (parameter * statistic).reshape(*self._batch_shape, -1).sum(-1)
        return result - carrier
