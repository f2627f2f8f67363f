"""Transforms from unconstrained to constrained numbers, by constraint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.settings import may_change
from . import constraints, transforms
from .transforms import Transform
from .utils import Number

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Calls the factory registered for a constraint's class.

    >>> transform_to(constraints.positive)(torch.tensor(0.0))
    tensor(1.)
    """

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Transform]] = may_change({}, "_registry")

    def register(self, constraint: Any, factory: Callable | None = None) -> Any:
        """Register `factory` for a constraint's class; without a factory, a decorator that does."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        if isinstance(constraint, constraints.Constraint):
            constraint = type(constraint)
        if not (isinstance(constraint, type) and issubclass(constraint, constraints.Constraint)):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[constraint] = factory
        return factory

    def __call__(self, constraint: constraints.Constraint) -> Transform:
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _into_half_line(bound: Any, direction: int) -> Transform:
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(bound, direction)])


def _map_to_interval(c: Any) -> Transform:
    low, high = c.lower_bound, c.upper_bound
    if isinstance(low, Number) and isinstance(high, Number) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


def _into_lower_bounded(c: Any) -> Transform:
    return _into_half_line(c.lower_bound, 1)


# Bijective in both registries.
_BIJECTIONS: dict[Any, Callable[[Any], Transform]] = {
    constraints.real: lambda c: transforms.identity_transform,
    constraints.greater_than: _into_lower_bounded,
    constraints.greater_than_eq: _into_lower_bounded,
    constraints.less_than: lambda c: _into_half_line(c.upper_bound, -1),
    constraints.interval: _map_to_interval,
    constraints.half_open_interval: _map_to_interval,
    constraints.corr_cholesky: lambda c: transforms.CorrCholeskyTransform(),
}
# Only in transform_to, because they lose information (or are, as the simplex, easier on optimizers that way).
_SURJECTIONS: dict[Any, Callable[[Any], Transform]] = {
    constraints.simplex: lambda c: transforms.SoftmaxTransform(),
    constraints.lower_cholesky: lambda c: transforms.LowerCholeskyTransform(),
    constraints.positive_definite: lambda c: transforms.PositiveDefiniteTransform(),
    constraints.positive_semidefinite: lambda c: transforms.PositiveDefiniteTransform(),
}


def _fill(registry: ConstraintRegistry) -> None:
    for region, factory in _BIJECTIONS.items():
        registry.register(region, factory)
    registry.register(
        constraints.independent,
        lambda c: transforms.IndependentTransform(registry(c.base_constraint), c.reinterpreted_batch_ndims),
    )
    registry.register(
        constraints.cat, lambda c: transforms.CatTransform([registry(part) for part in c.cseq], c.dim, c.lengths)
    )
    registry.register(
        constraints.stack, lambda c: transforms.StackTransform([registry(part) for part in c.cseq], c.dim)
    )


_fill(biject_to)
_fill(transform_to)
biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
for _region, _factory in _SURJECTIONS.items():
    transform_to.register(_region, _factory)
