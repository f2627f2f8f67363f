"""Random covariance matrices."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from .. import linalg
from ..core.numeric_limits import finfo
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.construct import tensor
from ..ops.creation.ranges import arange, eye, tril_indices
from ..ops.random.fills import randn
from ..ops.shape.dimensions import broadcast_shapes
from . import constraints
from .chi2 import Chi2
from .exp_family import ExponentialFamily
from .multivariate_normal import CovarianceForms, given_form, scale_tril_of
from .parametric import checked
from .utils import Number, lazy_property

__all__ = ["Wishart"]


class Wishart(CovarianceForms, ExponentialFamily):
    """The sum of x @ x.T over `df` normal vectors x with mean 0 and this covariance (given in one of three forms)."""

    support = constraints.positive_definite
    has_rsample = True

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = given_form(covariance_matrix, precision_matrix, scale_tril, AssertionError)
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        like = {"dtype": matrix.dtype, "device": matrix.device}
        degrees = tensor(df, **like) if isinstance(df, Number) else df
        batch_shape = broadcast_shapes(matrix.shape[:-2], degrees.shape)
        self.df, n = degrees.expand(batch_shape), matrix.shape[-1]
        if (self.df <= n - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        self.__dict__[name] = matrix.expand(batch_shape + (-1, -1))
        if (self.df < n).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        super().__init__(batch_shape, matrix.shape[-2:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = scale_tril_of(name, matrix)
        self._dist_chi2 = Chi2(self.df.unsqueeze(-1) - arange(n, **like))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        factor = self._unbroadcasted_scale_tril
        return self._full(eye(factor.shape[-1], dtype=factor.dtype, device=factor.device).cholesky_solve(factor))

    mean = property(lambda self: self.df[..., None, None] * self.covariance_matrix)

    @property
    def mode(self) -> Tensor:
        excess = self.df - self._event_shape[-1] - 1
        return excess.masked_fill(excess <= 0, math.nan)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        scale = self.covariance_matrix
        diagonal = scale.diagonal(0, -2, -1)
        return self.df[..., None, None] * (scale.square() + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett(self, sample_shape: Sequence[int]) -> Tensor:
        """Bartlett's decomposition: chi variables on the diagonal of a Cholesky factor, normal ones below it."""
        n = self._event_shape[-1]
        diagonal = self._dist_chi2.rsample(sample_shape).sqrt()
        noise = diagonal.clamp(min=finfo(diagonal.dtype).eps).diag_embed()
        row, column = tril_indices(n, n, offset=-1)
        shape = Size(sample_shape) + self._batch_shape + (n * (n - 1) // 2,)
        noise[..., row, column] = randn(shape, dtype=noise.dtype, device=noise.device)
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.mT

    def _any_of_batch(self, flags: Tensor) -> Tensor:
        return flags.amax([-1 - d for d in range(len(self._batch_shape))]) if self._batch_shape else flags

    def rsample(self, sample_shape: Sequence[int] = Size(), max_try_correction: int | None = None) -> Tensor:
        sample = self._bartlett(sample_shape)
        # PyTorch draws again what passed its first test, not what failed: its numbers are those of the second draw.
        again = self._any_of_batch(self.support.check(sample))
        for _ in range(10 if max_try_correction is None else max_try_correction):
            if not again.any():
                break
            chosen = again.clone()  # kept for the backward pass, so not the tensor that changes
            fresh = self._bartlett(chosen[chosen].shape)
            sample[chosen] = fresh
            again[chosen] = self._any_of_batch(~self.support.check(fresh))
        return sample

    def _log_volume(self) -> Tensor:
        """Half of log(2 ** n * det(covariance))"""
        n = self._event_shape[-1]
        return 0.5 * n * math.log(2) + self._unbroadcasted_scale_tril.diagonal(0, -2, -1).log().sum(-1)

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        n, df = self._event_shape[-1], self.df
        log_det = linalg.slogdet(value).logabsdet
        trace = value.cholesky_solve(self._unbroadcasted_scale_tril).diagonal(0, -2, -1).sum(-1)
        return 0.5 * ((df - n - 1) * log_det - trace) - df * self._log_volume() - (df / 2).mvlgamma(n)

    def entropy(self) -> Tensor:
        n, half = self._event_shape[-1], self.df / 2
        steps = arange(n, dtype=half.dtype, device=half.device) / 2
        log_det = (half.unsqueeze(-1) - steps).digamma().sum(-1)
        return (n + 1) * self._log_volume() + half.mvlgamma(n) - (half - (n + 1) / 2) * log_det + half * n

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        n = self._event_shape[-1]
        half = y + (n + 1) / 2
        return half * (n * math.log(2) - linalg.slogdet(-2 * x).logabsdet) + half.mvlgamma(n)
