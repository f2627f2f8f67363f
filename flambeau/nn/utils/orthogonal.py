"""Weights that stay orthogonal (or unitary) during training."""

from __future__ import annotations

from typing import Any

from ...autograd import no_grad
from ...core.numeric_limits import finfo
from ...core.tensor import Tensor
from ...ops.creation.ranges import eye
from ...ops.linalg.functions import matrix_exp
from ...ops.linalg.orthogonal import geqrf, householder_product
from ...ops.linalg.solving import solve
from ...ops.random.fills import randn
from ...ops.reduce.agreement import allclose
from ...ops.shape.joining import cat
from ..modules.module import Module
from .parametrize import register_parametrization

MAPS = ("matrix_exp", "cayley", "householder")


def _is_orthogonal(Q: Tensor) -> bool:
    n, k = Q.shape[-2:]
    one = eye(k, dtype=Q.dtype, device=Q.device)
    return allclose(Q.mH @ Q, one, atol=10 * n * finfo(Q.dtype).eps)


def _make_orthogonal(A: Tensor) -> Tensor:
    """Return the Q of the QR factorization whose R has a positive diagonal, which is unique."""
    packed, tau = geqrf(A)
    return householder_product(packed, tau) * packed.diagonal(0, -2, -1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """An orthogonal matrix from an unconstrained one, times a fixed orthogonal `base` if there is one.

    Matrices with more columns than rows are handled transposed, so below there are never more columns than rows."""

    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True):
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    @property
    def has_base(self) -> bool:
        return "base" in self._buffers

    def forward(self, X: Tensor) -> Tensor:
        wide = X.size(-2) < X.size(-1)
        if wide:
            X = X.mT
        Q = self._reflections(X) if self.orthogonal_map == "householder" else self._from_skew(X)
        if self.has_base:
            Q = self.base @ Q
        return Q.mT if wide else Q

    def _from_skew(self, X: Tensor) -> Tensor:
        n, k = X.shape[-2:]
        X = X.tril()
        if n != k:
            X = cat([X, X.new_zeros(n, n - k).expand(*X.shape[:-2], -1, -1)], -1)
        skew = X - X.mH
        if self.orthogonal_map == "matrix_exp":
            Q = matrix_exp(skew)
        else:
            one = eye(n, dtype=X.dtype, device=X.device)
            Q = solve(one.add(skew, alpha=-0.5), one.add(skew, alpha=0.5))
        return Q if n == k else Q[..., :k]

    def _reflections(self, X: Tensor) -> Tensor:
        A = X.tril(-1)
        tau = 2.0 / (1.0 + (A * A).sum(-2))
        # The diagonal holds the signs of the columns: numbers to multiply with, nothing to train.
        return householder_product(A, tau) * X.diagonal(0, -2, -1).int().unsqueeze(-2)

    @no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}."
            )
        wide = Q.size(-2) < Q.size(-1)
        tall = Q.mT if wide else Q
        if not self.has_base:
            A = self._reflectors_of(tall)
            return A.mT if wide else A
        self.base = self._square_base(tall)
        start = Q.new_zeros(Q.shape)
        start.diagonal(0, -2, -1).fill_(-1.0)  # minus one: the identity for every map, and a valid sign for reflections
        return start

    def _reflectors_of(self, Q: Tensor) -> Tensor:
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when"
                " use_trivialization=False."
            )
        A, tau = geqrf(Q)
        signs = A.diagonal(0, -2, -1)
        signs.sign_()
        signs[tau == 0.0] *= -1  # LAPACK skips a reflection that would only flip the sign
        return A

    @staticmethod
    def _square_base(Q: Tensor) -> Tensor:
        n, k = Q.shape[-2:]
        if n == k:
            return Q.clone() if _is_orthogonal(Q) else _make_orthogonal(Q)
        more = randn(*Q.shape[:-2], n, n - k, dtype=Q.dtype, device=Q.device)
        return _make_orthogonal(cat([Q, more], -1))


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Keep a weight orthogonal (its smaller side orthonormal), or unitary if it is complex.

    The map from what is trained is "matrix_exp" (default for square and complex weights), "cayley" or "householder" (default
    otherwise). With use_trivialization training starts from the weight itself, kept in the buffer `base`.

    >>> layer = orthogonal(nn.Linear(20, 40))
    >>> Q = layer.weight
    >>> torch.dist(Q.T @ Q, torch.eye(20)) < 1e-4
    tensor(True)
    """
    weight: Any = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in MAPS:
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    mapping = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return register_parametrization(module, name, mapping, unsafe=True)
