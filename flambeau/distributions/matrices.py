"""Distributions of vectors and matrices: multivariate normal, Wishart, LKJ."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from .. import linalg
from ..compat.former_names import settle
from ..core.numeric_limits import finfo
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.construct import tensor
from ..ops.creation.ranges import arange, eye, tril_indices
from ..ops.random.fills import randn
from ..ops.shape.dimensions import broadcast_shapes, broadcast_tensors
from ..ops.shape.joining import cat
from ..ops.shape.parts import diag_embed
from . import constraints
from .distribution import Distribution as Distribution
from .distribution import ExponentialFamily, Parametric, checked
from .intervals import Beta
from .positive import Chi2
from .utils import Number, _standard_normal, broadcast_all, lazy_property


def _precision_to_scale_tril(precision: Tensor) -> Tensor:
    """Return the Cholesky factor of the inverse: with P = U @ U.T for an upper triangular U, it is the inverse of U.T."""
    upper = linalg.cholesky(precision.flip(-2, -1)).flip(-2, -1)
    unit = eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return linalg.solve_triangular(upper.mT, unit, upper=False)


def _whiten(factor: Tensor, vectors: Tensor) -> Tensor:
    """Return inverse(factor) @ v for vectors v along the last dimension."""
    if factor.dim() > 2:
        return linalg.solve_triangular(factor, vectors.unsqueeze(-1), upper=False).squeeze(-1)
    columns = vectors.reshape(-1, vectors.shape[-1]).mT  # all right-hand sides of the one system at once
    return linalg.solve_triangular(factor, columns, upper=False).mT.reshape(vectors.shape)


class Gaussian(Parametric):
    """Base of normal distributions of vectors, for any form of their covariance."""

    support = constraints.real_vector
    has_rsample = True

    mean = mode = property(attrgetter("loc"))

    def _half_log_det(self) -> Tensor:
        """Return half the logarithm of the covariance's determinant."""
        raise NotImplementedError

    def _mahalanobis(self, difference: Tensor) -> Tensor:
        """Return the squared Mahalanobis length of vectors."""
        raise NotImplementedError

    def _trace_with_inverse(self, root: Tensor) -> Tensor:
        """Return trace(inverse(covariance) @ root @ root.T)."""
        raise NotImplementedError

    def _covariance_root(self) -> Tensor:
        """Return a matrix with root @ root.T = covariance."""
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
    """Base of distributions with a covariance: computes the forms that were not given."""

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
        return _whiten(self._unbroadcasted_scale_tril, difference).square().sum(-1)

    def _trace_with_inverse(self, root: Tensor) -> Tensor:
        return linalg.solve_triangular(self._unbroadcasted_scale_tril, root, upper=False).square().sum((-2, -1))

    def _covariance_root(self) -> Tensor:
        return self._unbroadcasted_scale_tril


def given_form(covariance: Any, precision: Any, scale_tril: Any, refusal: type[Exception]) -> tuple[str, Tensor]:
    """Return name and matrix of the one form in which a covariance is given."""
    forms = {"covariance_matrix": covariance, "precision_matrix": precision, "scale_tril": scale_tril}
    given = [(name, matrix) for name, matrix in forms.items() if matrix is not None]
    if len(given) != 1:
        raise refusal("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
    return given[0]


def scale_tril_of(form: str, matrix: Tensor) -> Tensor:
    """Return the Cholesky factor of a covariance that is given in one of the three forms."""
    if form == "scale_tril":
        return matrix
    return linalg.cholesky(matrix) if form == "covariance_matrix" else _precision_to_scale_tril(matrix)


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
        self._capacitance_tril = linalg.cholesky(_add_identity(self._scaled_factor() @ cov_factor))
        super().__init__(self.loc.shape[:-1], event_shape, validate_args=validate_args)

    def _scaled_factor(self) -> Tensor:
        """Return W.T @ inverse(D)."""
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
        return self._full(deviation * linalg.cholesky(_add_identity(relative @ relative.mT)))

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
        return outside - _whiten(self._capacitance_tril, inside).square().sum(-1)

    def _trace_with_inverse(self, root: Tensor) -> Tensor:
        inside = linalg.solve_triangular(self._capacitance_tril, self._scaled_factor() @ root, upper=False)
        outside = root.square() / self._unbroadcasted_cov_diag.unsqueeze(-1)
        return outside.sum((-2, -1)) - inside.square().sum((-2, -1))

    def _covariance_root(self) -> Tensor:
        return cat([self.cov_factor, diag_embed(self.cov_diag.sqrt())], -1)


def _add_identity(matrix: Tensor) -> Tensor:
    return matrix + eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


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
        """Draw by Bartlett's decomposition: chi variables on the diagonal of a Cholesky factor, normal ones below it."""
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
        """Return half of log(2 ** n * det(covariance))."""
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


class LKJCholesky(Parametric):
    """Cholesky factors of random dim x dim correlation matrices, likely in proportion to det ** (concentration - 1)
    (Lewandowski, Kurowicka and Joe, 2009)."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        # Row i is a random direction in i dimensions, of a squared length with this distribution; row 0 is a dummy.
        like = {"dtype": self.concentration.dtype, "device": self.concentration.device}
        offset = arange(-1, dim - 1, **like).clamp(min=0)
        rest = self.concentration.unsqueeze(-1) + 0.5 * (dim - 2) - 0.5 * offset
        self._beta = Beta(offset + 0.5, rest)
        super().__init__(self.concentration.shape, Size((dim, dim)), validate_args)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        length = self._beta.sample(sample_shape).sqrt().unsqueeze(-1)
        shape = self._extended_shape(sample_shape)
        direction = randn(shape, dtype=length.dtype, device=length.device).tril(-1)
        direction = direction / direction.norm(dim=-1, keepdim=True)
        direction[..., 0, :] = 0.0
        below = length * direction
        diagonal = (1 - below.square().sum(-1)).clamp(min=finfo(below.dtype).tiny).sqrt()
        return below + diag_embed(diagonal)

    @checked
    def log_prob(self, value: Tensor) -> Tensor:
        log_diagonal = value.diagonal(0, -2, -1)[..., 1:].log()
        row = arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - row
        n = self.dim - 1
        alpha = self.concentration + 0.5 * n
        log_volume = 0.5 * n * math.log(math.pi) + (alpha - 0.5).mvlgamma(n) - n * alpha.lgamma()
        return (order * log_diagonal).sum(-1) - log_volume


settle(__name__)
