"""The largest singular values of big matrices from random projections (Halko, Martinsson and Tropp 2011)."""

from __future__ import annotations

from ...core.tensor import Tensor
from ..machinery.declare import composite
from ..random.fills import randn
from . import support
from .orthogonal import qr
from .spectral import svd


def _basis(A: Tensor, q: int, niter: int, M: Tensor | None) -> Tensor:
    """Return orthonormal columns that nearly span the range of A - M."""

    def times(matrix: Tensor, shift: Tensor | None, x: Tensor) -> Tensor:
        return matrix @ x if shift is None else matrix @ x - shift @ x

    adjoint, shift = A.mH, None if M is None else M.mH
    Q = qr(times(A, M, randn(A.shape[-1], q, dtype=A.dtype, device=A.device)))[0]
    for _ in range(niter):
        Q = qr(times(adjoint, shift, Q))[0]
        Q = qr(times(A, M, Q))[0]
    return Q


@composite(method=False)
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """About the q largest singular values of A - M, and their vectors: (U, S, V)."""
    support.check_matrix("svd_lowrank", A)
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    m, n = A.shape[-2:]
    if M is not None:
        M = M.broadcast_to(A.shape)
    wide = m < n
    if wide:
        A, M = A.mH, None if M is None else M.mH
    Q = _basis(A, q, niter, M)
    B = Q.mH @ A
    if M is not None:
        B = B - Q.mH @ M
    U, S, Vh = svd(B, full_matrices=False)
    U, V = Q @ U, Vh.mH
    return (V, S, U) if wide else (U, S, V)


@composite(method=False)
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Principal components of the rows of A: svd_lowrank of A minus its mean row."""
    support.check_matrix("pca_lowrank", A)
    m, n = A.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    if A.dtype.category < 2:
        raise ValueError(f"input must have a floating point or complex dtype, got {A.dtype}")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter=niter)
