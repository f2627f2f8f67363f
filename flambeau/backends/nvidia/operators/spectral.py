"""Spectra on NVIDIA GPUs: eigenvalues, singular values, and the pseudo-inverse, least squares and matrix exponential."""

from __future__ import annotations

from typing import Any

from ....core.errors import LinAlgError
from ....core.tensor import Tensor, numel_of
from ....ops.creation.ranges import eye
from ....ops.linalg.cholesky import factor_and_info
from ....ops.linalg.functions import exponential
from ....ops.linalg.least_squares import least_squares, pseudo_inverse
from ....ops.linalg.lobpcg import extreme_eigenpairs
from ....ops.linalg.orthogonal import factors_qr
from ....ops.linalg.solving import is_vector, solution
from ....ops.linalg.spectral import (
    general_eigen,
    general_eigenvalues,
    hermitian_eigen,
    hermitian_eigenvalues,
    singular,
    singular_values,
)
from ....ops.linalg.triangular import triangular_solution
from ....ops.machinery.inplace import raw_copy
from .. import cublas, cusolver
from .linalg import addresses, bare, columns, copied, new_info

# -- eigenvalues and singular values --------------------------------------------------------------------------------------


def _need_converged(name: str, info: Tensor) -> None:
    """Raise for the first matrix whose iteration did not converge, as PyTorch does, which waits for the device here."""
    code = int(bare(info).abs().amax()) if 0 not in info.shape else 0
    if code:
        raise LinAlgError(
            f"{name}: The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated"
            f" {'singular values' if name == 'linalg.svd' else 'eigenvalues'} (error code: {code})."
        )


def _hermitian(values: Tensor, vectors: Tensor, wanted: bool, uplo: str) -> None:
    n, info = vectors.shape[-1], new_info(vectors)
    side = cublas.LOWER if uplo == "L" else cublas.UPPER
    if not n:
        return
    for w, a, i in zip(addresses(values, 1), addresses(vectors, 2), addresses(info, 0)):
        cusolver.hermitian_eigen(a, n, w, wanted, side, i, vectors.dtype, vectors.device)
    _need_converged("linalg.eigh", info)


@hermitian_eigen.on("cuda")
def _(out: list[Tensor], A: Tensor, uplo: str) -> None:
    raw_copy(out[1], A)
    _hermitian(out[0], out[1], True, uplo)


@hermitian_eigenvalues.on("cuda")
def _(out: Tensor, A: Tensor, uplo: str) -> None:
    _hermitian(out, copied(A), False, uplo)


def _singular(S: Tensor, A: Tensor, job: str) -> tuple[Any, Any]:
    """Compute singular values into S; return U and Vh (job "A" or "S"), with the rows and columns that the job requests."""
    *batch, m, n = A.shape
    turned = m < n  # the library requires tall matrices
    a = copied(bare(A).mH if turned else A)
    tall, narrow = max(m, n), min(m, n)
    d, where, info = A.dtype, A.device, new_info(A)
    u = columns((*batch, tall, tall if job == "A" else narrow), d, where)
    vh = columns((*batch, narrow, narrow), d, where)
    if narrow:
        places = [addresses(t, own) for t, own in ((a, 2), (S, 1), (u, 2), (vh, 2), (info, 0))]
        for x, s, left, right, i in zip(*places):
            cusolver.singular(x, tall, narrow, s, left, right, job, i, d, where)
        _need_converged("linalg.svd", info)
    elif job == "A":
        raw_copy(u, eye(tall, dtype=d, device=where))
    u, vh = bare(u), bare(vh)
    return (vh.mH, u.mH) if turned else (u, vh)


@singular.on("cuda")
def _(out: list[Tensor], A: Tensor, full_matrices: bool) -> None:
    U, S, Vh = out
    for result, found in zip((U, Vh), _singular(S, A, "A" if full_matrices else "S")):
        raw_copy(result, found)


@singular_values.on("cuda")
def _(out: Tensor, A: Tensor) -> None:
    _singular(out, A, "N")


def _general(values: Tensor, vectors: Tensor | None, A: Tensor, name: str) -> None:
    if not bool(bare(A).isfinite().all()):
        raise RuntimeError(f"torch.{name}: input tensor should not contain infs or NaNs.")
    a, info = copied(A, values.dtype), new_info(A)
    places = iter([0] * numel_of(A.shape[:-2])) if vectors is None else addresses(vectors, 2)
    for x, w, v, i in zip(addresses(a, 2), addresses(values, 1), places, addresses(info, 0)):
        cusolver.eigen(x, A.shape[-1], w, v, i, values.dtype, A.device)
    _need_converged(name, info)


@general_eigen.on("cuda")
def _(out: list[Tensor], A: Tensor, name: str) -> None:
    _general(out[0], out[1], A, name)


@general_eigenvalues.on("cuda")
def _(out: Tensor, A: Tensor) -> None:
    _general(out, None, A, "linalg.eigvals")


# -- made of the others ---------------------------------------------------------------------------------------------------


@pseudo_inverse.on("cuda")
def _(out: Tensor, A: Tensor, atol: Any, rtol: Any, hermitian: bool) -> None:
    if hermitian:
        values, left = hermitian_eigen(bare(A), "L")
        right = left.mH
    else:
        left, values, right = singular(bare(A), False)
    sizes = values.abs()
    atol, rtol = (bare(t).unsqueeze(-1) if isinstance(t, Tensor) else t for t in (atol, rtol))
    counts = sizes > (sizes.amax(-1, True) * rtol).clamp(min=atol)
    inverse = values.reciprocal().masked_fill(~counts, 0)
    raw_copy(out, right.mH @ (inverse.unsqueeze(-1) * left.mH))


@extreme_eigenpairs.on("cuda")
def _(
    out: list[Tensor], A: Tensor, B: Tensor | None, X: Tensor, iK: Tensor | None, largest: bool, tol: float, niter: int
) -> None:
    # All eigenpairs at once are found faster here than some of them step by step.
    k, a = X.shape[-1], bare(A)
    factor = None
    if B is not None:  # A x = e B x with B = L L^H is L^-1 A L^-H y = e y, y = L^H x
        factor, _ = factor_and_info(bare(B), False)
        half = triangular_solution(factor, a, False, True, False)
        a = triangular_solution(factor, half.mH, False, True, False).mH
    values, vectors = hermitian_eigen(a, "L")
    values, vectors = (
        (values[..., -k:].flip(-1), vectors[..., -k:].flip(-1)) if largest else (values[..., :k], vectors[..., :k])
    )
    if factor is not None:
        vectors = triangular_solution(factor.mH, vectors, True, True, False)
    raw_copy(out[0], values)
    raw_copy(out[1], vectors)


def _shortest(a: Any, b: Any, tolerance: float) -> tuple[Any, Any, Any]:
    """Return the shortest solution by singular values above tolerance * largest, the number of these, and all singular values."""
    left, values, right = singular(a, False)
    counts = values > values.amax(-1, True) * tolerance
    inverse = values.reciprocal().masked_fill(~counts, 0)
    return right.mH @ (inverse.unsqueeze(-1) * (left.mH @ b)), counts.sum(-1), values


def _by_factors(a: Any, b: Any) -> Any:
    """Return the solution for matrices of full rank, by QR."""
    if a.shape[-2] >= a.shape[-1]:
        q, r = factors_qr(a, "reduced")
        return triangular_solution(r, q.mH @ b, True, True, False)
    q, r = factors_qr(a.mH, "reduced")  # the shortest solution: of A^H = Q R
    return q @ triangular_solution(r.mH, b, False, True, False)


@least_squares.on("cuda")
def _(out: list[Tensor], A: Tensor, B: Tensor, rcond: float, driver: str) -> None:
    result, residuals, ranks, singular_ones = out
    vector = is_vector(A, B)
    a, b = bare(A), bare(B).unsqueeze(-1) if vector else bare(B)
    if driver == "gels":
        x = _by_factors(a, b)
    else:
        x, rank, values = _shortest(a, b, rcond)
        raw_copy(ranks, rank)
        if driver != "gelsy":
            raw_copy(singular_ones, values)
    raw_copy(result, x.squeeze(-1) if vector else x)
    if residuals.shape != (0,):
        raw_copy(residuals, (b - a @ x).abs().square().sum(-2))


# Coefficients of the Pade approximation of degree 13 (Higham 2005), and up to which norm it is exact to rounding.
_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
    670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_REACH = 4.25


@exponential.on("cuda")
def _(out: Tensor, A: Tensor) -> None:
    a = bare(A)
    norm = float(a.abs().sum(-2).amax())
    squarings = 0
    while norm > _REACH:
        norm, squarings = norm / 2, squarings + 1
    a = a / 2**squarings
    one: Any = eye(a.shape[-1], dtype=a.dtype, device=a.device)
    c, square = _PADE, a @ a
    fourth = square @ square
    sixth = fourth @ square
    odd = (
        sixth @ (c[13] * sixth + c[11] * fourth + c[9] * square)
        + c[7] * sixth
        + c[5] * fourth
        + c[3] * square
        + c[1] * one
    )
    odd = a @ odd
    even = (
        sixth @ (c[12] * sixth + c[10] * fourth + c[8] * square)
        + c[6] * sixth
        + c[4] * fourth
        + c[2] * square
        + c[0] * one
    )
    found = solution(even - odd, even + odd, True)[0]
    for _ in range(squarings):
        found = found @ found
    raw_copy(out, found)
