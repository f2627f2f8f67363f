"""Transforms whose events are vectors or matrices: to the simplex, to Cholesky factors and to positive definite matrices."""

from __future__ import annotations

import math

from .. import linalg
from ..core.numeric_limits import finfo
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.ranges import arange, eye
from ..ops.pointwise.activation import logsigmoid, softplus
from ..ops.shape.padding import pad
from . import constraints
from .transform_base import ByValue, Transform, _clipped_sigmoid
from .utils import tril_matrix_to_vec, vec_to_tril_matrix


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


class CorrCholeskyTransform(Transform):
    """Vectors of D (D - 1) / 2 numbers onto Cholesky factors of D x D correlation matrices.

    tanh makes partial correlations of the numbers; row by row they say which share of the length that is left goes to
    the next column, and the diagonal gets the rest.
    """

    domain, codomain = constraints.real_vector, constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        margin = finfo(x.dtype).eps
        shares = vec_to_tril_matrix(x.tanh().clamp(-1 + margin, 1 - margin), diag=-1)
        left = (1 - shares * shares).sqrt().cumprod(-1)
        unit = eye(shares.shape[-1], dtype=shares.dtype, device=shares.device)
        return (shares + unit) * pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = pad(1 - (y * y).cumsum(-1)[..., :-1], [1, 0], value=1)
        shares = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (shares.log1p() - (-shares).log1p()) / 2  # atanh

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor, intermediates: None = None) -> Tensor:
        left = tril_matrix_to_vec(1 - (y * y).cumsum(-1), diag=-2)
        log_tanh_slope = -2 * (x + softplus(-2 * x) - math.log(2.0))
        return left.log().sum(-1) / 2 + log_tanh_slope.sum(-1)

    def forward_shape(self, shape: Size) -> Size:
        _require(len(shape) >= 1, "Too few dimensions on input")
        entries = shape[-1]
        side = round((1 + (1 + 8 * entries) ** 0.5) / 2)
        _require(side * (side - 1) // 2 == entries, "Input is not a flattened lower-diagonal number")
        return shape[:-1] + (side, side)

    def inverse_shape(self, shape: Size) -> Size:
        _require(len(shape) >= 2, "Too few dimensions on input")
        _require(shape[-2] == shape[-1], "Input is not square")
        return shape[:-2] + (shape[-1] * (shape[-1] - 1) // 2,)


class SoftmaxTransform(ByValue):
    """Vectors onto the simplex: exp, normalised. Not bijective: adding a constant changes nothing."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        weights = (x - x.max(-1, True)[0]).exp()
        return weights / weights.sum(-1, True)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Size) -> Size:
        _require(len(shape) >= 1, "Too few dimensions on input")
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(ByValue):
    """Vectors of n numbers onto the simplex of n + 1: each number, through a sigmoid, breaks its share off what is left.

    The sigmoids are shifted so that zeros give equal shares.
    """

    domain, codomain = constraints.real_vector, constraints.simplex
    bijective = True

    @staticmethod
    def _log_pieces_left(like: Tensor, n: int) -> Tensor:
        return arange(n, 0, -1, dtype=like.dtype, device=like.device).log()

    def _call(self, x: Tensor) -> Tensor:
        share = _clipped_sigmoid(x - self._log_pieces_left(x, x.shape[-1]))
        left = (1 - share).cumprod(-1)
        return pad(share, [0, 1], value=1) * pad(left, [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        pieces = y[..., :-1]
        left = (1 - pieces.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return pieces.log() - left.log() + self._log_pieces_left(y, pieces.shape[-1])

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        shifted = x - self._log_pieces_left(x, x.shape[-1])
        return (y[..., :-1].log() - shifted + logsigmoid(shifted)).sum(-1)

    def forward_shape(self, shape: Size) -> Size:
        _require(len(shape) >= 1, "Too few dimensions on input")
        return shape[:-1] + (shape[-1] + 1,)

    def inverse_shape(self, shape: Size) -> Size:
        _require(len(shape) >= 1, "Too few dimensions on input")
        return shape[:-1] + (shape[-1] - 1,)


class LowerCholeskyTransform(ByValue):
    """Square matrices onto lower triangular ones with a positive diagonal (exp of the old one)."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(0, -2, -1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(0, -2, -1).log().diag_embed()


class PositiveDefiniteTransform(ByValue):
    """Square matrices onto positive definite ones: L @ L.T of the lower Cholesky transform."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(linalg.cholesky(y))
