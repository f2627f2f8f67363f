"""Normal distributions of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from .. import linalg
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.ranges import eye
from ..ops.shape.dimensions import broadcast_shapes
from . import constraints
from .distribution import Distribution as Distribution
from .parametric import Parametric, checked
from .utils import lazy_property

__all__ = ["MultivariateNormal"]


def _precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The Cholesky factor of the inverse: with P = U @ U.T for an upper triangular U, it is the inverse of U.T."""
    upper = linalg.cholesky(precision.flip(-2, -1)).flip(-2, -1)
    unit = eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return linalg.solve_triangular(upper.mT, unit, upper=False)


def _whitened(factor: Tensor, vectors: Tensor) -> Tensor:
    """inverse(factor) @ v for vectors v along the last dimension."""
    if factor.dim() > 2:
        return linalg.solve_triangular(factor, vectors.unsqueeze(-1), upper=False).squeeze(-1)
    columns = vectors.reshape(-1, vectors.shape[-1]).mT  # all right-hand sides of the one system at once
    return linalg.solve_triangular(factor, columns, upper=False).mT.reshape(vectors.shape)


class Gaussian(Parametric):
    """The base of normal distributions of vectors, whatever form their covariance has."""

    support = constraints.real_vector
    has_rsample = True

    mean = mode = property(attrgetter("loc"))

    def _half_log_det(self) -> Tensor:
        """Half the logarithm of the covariance's determinant."""
        raise NotImplementedError

    def _mahalanobis(self, difference: Tensor) -> Tensor:
        """The squared length of vectors, measured in the covariance."""
        raise NotImplementedError

    def _trace_with_inverse(self, root: Tensor) -> Tensor:
        """trace(inverse(covariance) @ root @ root.T)"""
        raise NotImplementedError

    def _covariance_root(self) -> Tensor:
        """A matrix with root @ root.T = covariance."""
        raise NotImplementedError

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        log_volume = 0.5 * self._event_shape[0] * math.log(2 * math.pi) + self._half_log_det()
        return -0.5 * self._mahalanobis(value - self.loc) - log_volume

    def entropy(self) -> Tensor:
        return (0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi)) + self._half_log_det()).expand(
            self._batch_shape
        )


class CovarianceForms(Parametric):
    """The covariance in the forms that were not given."""

    _unbroadcasted_scale_tril: Tensor

    def _full(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + matrix.shape[-2:])

    @lazy_property
    def scale_tril(self) -> Tensor:
        return self._full(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        return self._full(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)


class MultivariateNormal(CovarianceForms, Gaussian):
    """Normal vectors with mean `loc` and a covariance given in one of three forms; `scale_tril`, its Cholesky factor, is
    the cheapest, because the others are turned into it.

    >>> MultivariateNormal(torch.zeros(2), torch.eye(2)).log_prob(torch.zeros(2))
    tensor(-1.8379)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = given_form(covariance_matrix, precision_matrix, scale_tril, ValueError)
        if matrix.dim() < 2:
            named = name if name != "scale_tril" else "scale_tril matrix"
            raise ValueError(f"{named} must be at least two-dimensional, with optional leading batch dimensions")
        batch_shape = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.__dict__[name] = matrix.expand(batch_shape + (-1, -1))
        self.loc = loc.expand(batch_shape + (-1,))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = scale_tril_of(name, matrix)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        return self._full(self._unbroadcasted_scale_tril.cholesky_inverse())

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.square().sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        noise = self._empty(self.loc, sample_shape).normal_()
        return self.loc + (self._unbroadcasted_scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self) -> Tensor:
        return self._unbroadcasted_scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def _mahalanobis(self, difference: Tensor) -> Tensor:
        return _whitened(self._unbroadcasted_scale_tril, difference).square().sum(-1)

    def _trace_with_inverse(self, root: Tensor) -> Tensor:
        return linalg.solve_triangular(self._unbroadcasted_scale_tril, root, upper=False).square().sum((-2, -1))

    def _covariance_root(self) -> Tensor:
        return self._unbroadcasted_scale_tril


def given_form(covariance: Any, precision: Any, scale_tril: Any, refusal: type[Exception]) -> tuple[str, Tensor]:
    """Name and matrix of the one form in which a covariance is given."""
    forms = {"covariance_matrix": covariance, "precision_matrix": precision, "scale_tril": scale_tril}
    given = [(name, matrix) for name, matrix in forms.items() if matrix is not None]
    if len(given) != 1:
        raise refusal("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
    return given[0]


def scale_tril_of(form: str, matrix: Tensor) -> Tensor:
    """The Cholesky factor of a covariance that is given in one of the three forms."""
    if form == "scale_tril":
        return matrix
    return linalg.cholesky(matrix) if form == "covariance_matrix" else _precision_to_scale_tril(matrix)
