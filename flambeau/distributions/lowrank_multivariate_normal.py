"""Normal distributions of vectors whose covariance is a few factors plus a diagonal."""

from __future__ import annotations

from collections.abc import Sequence

from .. import linalg
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.ranges import eye
from ..ops.shape.dimensions import broadcast_tensors
from ..ops.shape.joining import cat
from ..ops.shape.parts import diag_embed
from . import constraints
from .multivariate_normal import Gaussian, _whitened
from .utils import _standard_normal, lazy_property

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Gaussian):
    """Normal vectors with covariance W @ W.T + diag(D), `cov_factor` W (n x m) and `cov_diag` D.

    Inverse and determinant go through the small m x m matrix 1 + W.T @ inverse(D) @ W (Woodbury's identity).
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            columns = broadcast_tensors(loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1))
        except RuntimeError as problem:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from problem
        self.loc, self.cov_factor, self.cov_diag = columns[0][..., 0], columns[1], columns[2][..., 0]
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = linalg.cholesky(_plus_one(self._scaled_factor() @ cov_factor))
        super().__init__(self.loc.shape[:-1], event_shape, validate_args=validate_args)

    def _scaled_factor(self) -> Tensor:
        """W.T @ inverse(D)"""
        return self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)

    def _full(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape * 2)

    @lazy_property
    def variance(self) -> Tensor:
        diagonal = self._unbroadcasted_cov_factor.square().sum(-1) + self._unbroadcasted_cov_diag
        return diagonal.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        deviation = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        relative = self._unbroadcasted_cov_factor / deviation
        return self._full(deviation * linalg.cholesky(_plus_one(relative @ relative.mT)))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        factor = self._unbroadcasted_cov_factor
        return self._full(factor @ factor.mT + diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        root = linalg.solve_triangular(self._capacitance_tril, self._scaled_factor(), upper=False)
        return self._full(diag_embed(self._unbroadcasted_cov_diag.reciprocal()) - root.mT @ root)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        like = {"dtype": self.loc.dtype, "device": self.loc.device}
        shared = _standard_normal(shape[:-1] + self.cov_factor.shape[-1:], **like)
        own = _standard_normal(shape, **like)
        common = (self._unbroadcasted_cov_factor @ shared.unsqueeze(-1)).squeeze(-1)
        return self.loc + common + self._unbroadcasted_cov_diag.sqrt() * own

    def _half_log_det(self) -> Tensor:
        small = self._capacitance_tril.diagonal(0, -2, -1).log().sum(-1)
        return small + 0.5 * self._unbroadcasted_cov_diag.log().sum(-1)

    def _mahalanobis(self, difference: Tensor) -> Tensor:
        inside = (self._scaled_factor() @ difference.unsqueeze(-1)).squeeze(-1)
        outside = (difference.square() / self._unbroadcasted_cov_diag).sum(-1)
        return outside - _whitened(self._capacitance_tril, inside).square().sum(-1)

    def _trace_with_inverse(self, root: Tensor) -> Tensor:
        inside = linalg.solve_triangular(self._capacitance_tril, self._scaled_factor() @ root, upper=False)
        outside = root.square() / self._unbroadcasted_cov_diag.unsqueeze(-1)
        return outside.sum((-2, -1)) - inside.square().sum((-2, -1))

    def _covariance_root(self) -> Tensor:
        return cat([self.cov_factor, diag_embed(self.cov_diag.sqrt())], -1)


def _plus_one(matrix: Tensor) -> Tensor:
    return matrix + eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
