"""Linear algebra on NVIDIA GPUs: cuSOLVER and cuBLAS for factors and triangular systems, operators for what is made of them.

Results lie by columns, as their layout rules say, so that the libraries work in place on a copy of the argument."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....core import dtype as dt
from ....core.errors import LinAlgError
from ....core.tensor import Tensor, empty, numel_of
from ....ops.creation.filled import fill_raw
from ....ops.creation.ranges import arange, eye
from ....ops.linalg import support
from ....ops.linalg.cholesky import cholesky_solve, factor_and_info, zero_on_diagonal
from ....ops.linalg.determinant import determinant, sign_and_logarithm
from ....ops.linalg.functions import exponential
from ....ops.linalg.ldl import ldl_factor_ex, ldl_solve
from ....ops.linalg.least_squares import least_squares, pseudo_inverse
from ....ops.linalg.lobpcg import extreme_eigenpairs
from ....ops.linalg.lu import packed_factors, permutation_matrix
from ....ops.linalg.orthogonal import factors_qr, geqrf, reflected
from ....ops.linalg.solving import inverse_and_info, is_vector, solution
from ....ops.linalg.spectral import (
    general_eigen,
    general_eigenvalues,
    hermitian_eigen,
    hermitian_eigenvalues,
    singular,
    singular_values,
)
from ....ops.linalg.triangular import triangular_solution
from ....ops.machinery.door import new
from ....ops.machinery.inplace import raw_copy
from ....ops.machinery.memory import dense
from ... import nvidia
from .. import cublas, cublaslt, cusolver

_BATCHED_FROM = 2  # matrices
_BATCHED_SIZE = 512  # up to this size the libraries do many at once faster than one after the other


def _bare(t: Tensor) -> Any:
    return t._bare_alias()


def _addresses(t: Tensor, own: int) -> Iterator[int]:
    """Return where the parts of a filled result start, each with its last `own` dimensions."""
    step = numel_of(t.shape[len(t.shape) - own :]) * t.dtype.itemsize
    start = t._storage.ptr + t._offset * t.dtype.itemsize
    return iter([start + i * step for i in range(numel_of(t.shape[: len(t.shape) - own]))])


def _pointers(t: Tensor, step: int, count: int) -> Tensor:
    """The addresses of `count` matrices, `step` elements from each other, in the device's memory."""
    numbers: Any = arange(count, dtype=dt.int64, device=t.device)
    return numbers * (step * t.dtype.itemsize) + (t._storage.ptr + t._offset * t.dtype.itemsize)


def _columns(shape: tuple[int, ...], d: dt.dtype, where: Any) -> Tensor:
    return new(*support.columns(shape, d, where))


def _copied(A: Tensor, d: dt.dtype | None = None) -> Tensor:
    """A copy that lies by columns."""
    copy = _columns(A.shape, d or A.dtype, A.device)
    raw_copy(copy, A)
    return copy


def _info(A: Tensor) -> Tensor:
    found = empty(A.shape[:-2], dt.int32, A.device)
    fill_raw(found, 0)
    return found


# -- triangular systems ---------------------------------------------------------------------------------------------------


def _solve_in_place(out: Tensor, A: Tensor, upper: bool, left: bool, unit: bool) -> None:
    """out = A^-1 out or out A^-1; both have the same batch dimensions, out lies by columns."""
    m, n = out.shape[-2:]
    if 0 in out.shape:
        return
    a = _bare(A).reshape(-1, *A.shape[-2:])
    order = cublaslt.matrix_order(a.shape, a._strides)
    if order is None:
        a = a.contiguous()
        order = True, a.shape[-1]
    by_rows, lda = order
    side = cublas.LEFT if left else cublas.RIGHT
    uplo = cublas.UPPER if upper != by_rows else cublas.LOWER  # rows seen as columns: the transpose
    trans = cublas.TRANSPOSED if by_rows else cublas.PLAIN
    count = a.shape[0]
    if count >= _BATCHED_FROM:
        a_places, b_places = _pointers(a, a._strides[0], count), _pointers(out, m * n, count)
        cublas.solve_triangular_batch(
            b_places.data_ptr(),
            m,
            a_places.data_ptr(),
            lda,
            m,
            n,
            side,
            uplo,
            trans,
            unit,
            count,
            out.dtype,
            out.device,
        )
    else:
        cublas.solve_triangular(
            out.data_ptr(), m, a.data_ptr(), lda, m, n, side, uplo, trans, unit, out.dtype, out.device
        )


@triangular_solution.on("cuda")
def _(out: Tensor, A: Tensor, B: Tensor, upper: bool, left: bool, unitriangular: bool) -> None:
    raw_copy(out, B)
    _solve_in_place(out, _bare(A).expand(*out.shape[:-2], *A.shape[-2:]), upper, left, unitriangular)


# -- Cholesky -------------------------------------------------------------------------------------------------------------


@factor_and_info.on("cuda")
def _(out: list[Tensor], A: Tensor, upper: bool) -> None:
    factor, info = out
    n, count, d, where = A.shape[-1], numel_of(A.shape[:-2]), A.dtype, A.device
    fill_raw(info, 0)
    if not n:
        return
    raw_copy(factor, A)
    uplo = cublas.UPPER if upper else cublas.LOWER
    if count >= _BATCHED_FROM and n <= _BATCHED_SIZE:
        places = _pointers(factor, n * n, count)
        cusolver.cholesky_batch(places.data_ptr(), n, uplo, info.data_ptr(), count, d, where)
    else:
        for a, i in zip(_addresses(factor, 2), _addresses(info, 0)):
            cusolver.cholesky(a, n, uplo, i, d, where)
    found = _bare(factor)
    raw_copy(factor, found.triu() if upper else found.tril())


@cholesky_solve.on("cuda")
def _(out: Tensor, input: Tensor, input2: Tensor, upper: bool) -> None:
    raw_copy(out, input)
    factor = _bare(input2).expand(*out.shape[:-2], *input2.shape[-2:])
    lower, higher = (factor.mH, factor) if upper else (factor, factor.mH)
    _solve_in_place(out, lower, False, True, False)
    _solve_in_place(out, higher, True, True, False)


@zero_on_diagonal.on("cuda")
def _(out: Tensor, A: Tensor) -> None:
    if not A.shape[-1]:
        fill_raw(out, 0)
        return
    zero = (_bare(A).diagonal(0, -2, -1) == 0).to(dt.int32)
    raw_copy(out, (zero.argmax(-1) + 1) * zero.amax(-1))


# -- LU -------------------------------------------------------------------------------------------------------------------


def _factor(packed: Tensor, pivots: Tensor | None, info: Tensor) -> None:
    """LU factors in place."""
    *_, m, n = packed.shape
    count, d, where = numel_of(packed.shape[:-2]), packed.dtype, packed.device
    fill_raw(info, 0)
    if 0 in packed.shape:
        return
    if count >= _BATCHED_FROM and m == n and n <= _BATCHED_SIZE:
        places = _pointers(packed, n * n, count)
        rows = 0 if pivots is None else pivots.data_ptr()
        cublas.lu_batch(places.data_ptr(), n, rows, info.data_ptr(), count, d, where)
        return
    swaps = iter([0] * count) if pivots is None else _addresses(pivots, 1)
    for a, p, i in zip(_addresses(packed, 2), swaps, _addresses(info, 0)):
        cusolver.lu(a, m, n, p, i, d, where)


# Which row comes to each place, after the swaps of `pivots` (numbers from 1; others are taken for the nearest row).
_ORDER = """
extern "C" __global__ void order_of(long long* orders, const int* swaps, long long k, long long m, long long count) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= count) return;
  long long* order = orders + i * m;
  const int* swap = swaps + i * k;
  for (long long j = 0; j < m; ++j) order[j] = j;
  for (long long j = 0; j < k; ++j) {
    long long there = swap[j] - 1;
    there = there < 0 ? 0 : there >= m ? m - 1 : there;
    long long row = order[j];
    order[j] = order[there];
    order[there] = row;
  }
}
"""


@packed_factors.on("cuda")
def _(out: list[Tensor], A: Tensor, pivot: bool) -> None:
    packed, pivots, info = out
    raw_copy(packed, A)
    if not pivot:
        raw_copy(pivots, arange(1, pivots.shape[-1] + 1, dtype=dt.int32, device=pivots.device))
    _factor(packed, pivots if pivot else None, info)


@permutation_matrix.on("cuda")
def _(out: Tensor, pivots: Tensor, m: int, d: dt.dtype, outside: str) -> None:
    count = numel_of(pivots.shape[:-1])
    order: Any = empty((*pivots.shape[:-1], m), dt.int64, out.device)
    places = order.data_ptr(), dense(pivots).data_ptr(), pivots.shape[-1], m, count
    nvidia.load_source(_ORDER, out.device).function("order_of", tuple("qqqqq"))((count + 127) // 128, 128, *places)
    columns: Any = arange(m, dtype=dt.int64, device=out.device).unsqueeze(-1)
    raw_copy(out, order.unsqueeze(-2) == columns)


def _solved(out: Tensor, packed: Tensor, pivots: Tensor, transposed: bool) -> None:
    """out (by columns) = the solution, for matrices with the same batch dimensions."""
    n, k = out.shape[-2:]
    if 0 in out.shape:
        return
    ignored = _info(packed)
    trans = cublas.TRANSPOSED if transposed else cublas.PLAIN
    places = (_addresses(packed, 2), _addresses(pivots, 1), _addresses(out, 2), _addresses(ignored, 0))
    for a, p, b, i in zip(*places):
        cusolver.lu_solve(a, n, p, b, k, trans, i, out.dtype, out.device)


@solution.on("cuda")
def _(out: list[Tensor], A: Tensor, B: Tensor, left: bool) -> None:
    result, info = out
    b, r = _bare(B), _bare(result)
    if is_vector(A, B):
        b, r = b.unsqueeze(-1), r.unsqueeze(-1)
    if not left:
        b, r = b.mT, r.mT
    batch = r.shape[:-2]
    packed = _copied(A)
    pivots, small = empty(A.shape[:-1], dt.int32, A.device), _info(A)
    _factor(packed, pivots, small)
    raw_copy(info, small)
    if packed.shape[:-2] != batch:
        packed, pivots = (
            _copied(_bare(packed).expand(*batch, *A.shape[-2:])),
            _bare(pivots).expand(*batch, -1).contiguous(),
        )
    x = _columns(r.shape, A.dtype, A.device)
    raw_copy(x, b)
    _solved(x, packed, pivots, not left)
    raw_copy(r, x)


@inverse_and_info.on("cuda")
def _(out: list[Tensor], A: Tensor) -> None:
    inverse, info = out
    packed, pivots = _copied(A), empty(A.shape[:-1], dt.int32, A.device)
    _factor(packed, pivots, info)
    raw_copy(inverse, eye(A.shape[-1], dtype=A.dtype, device=A.device))
    _solved(inverse, packed, pivots, False)


def _diagonal_and_sign(A: Tensor) -> tuple[Any, Any]:
    """The diagonal of U, and the sign of the permutation."""
    packed, pivots, info = _copied(A), empty(A.shape[:-1], dt.int32, A.device), _info(A)
    _factor(packed, pivots, info)
    n = A.shape[-1]
    moved = (_bare(pivots) != arange(1, n + 1, dtype=dt.int32, device=A.device)).sum(-1)
    return _bare(packed).diagonal(0, -2, -1), 1 - 2 * (moved % 2)


@determinant.on("cuda")
def _(out: Tensor, A: Tensor) -> None:
    if not A.shape[-1]:
        fill_raw(out, 1)
        return
    diagonal, sign = _diagonal_and_sign(A)
    raw_copy(out, diagonal.prod(-1) * sign)


@sign_and_logarithm.on("cuda")
def _(out: list[Tensor], A: Tensor) -> None:
    if not A.shape[-1]:
        fill_raw(out[0], 1)
        fill_raw(out[1], 0)
        return
    diagonal, sign = _diagonal_and_sign(A)
    raw_copy(out[0], diagonal.sgn().prod(-1) * sign)
    raw_copy(out[1], diagonal.abs().log().sum(-1))


# -- LDL ------------------------------------------------------------------------------------------------------------------


def _no_hermitian(name: str, t: Tensor, hermitian: bool) -> None:
    if hermitian and t.dtype.is_complex:
        raise RuntimeError(
            f"{name}: complex tensors with hermitian=True are not supported on CUDA (cuSOLVER has no such solver)"
        )


@ldl_factor_ex.on("cuda")
def _(out: list[Tensor], A: Tensor, *, hermitian: bool, check_errors: bool) -> None:
    _no_hermitian("torch.linalg.ldl_factor", A, hermitian)
    packed, pivots, info = out
    fill_raw(info, 0)
    if not A.shape[-1]:
        return
    raw_copy(packed, _bare(A).tril())
    for a, p, i in zip(_addresses(packed, 2), _addresses(pivots, 1), _addresses(info, 0)):
        cusolver.ldl(a, A.shape[-1], p, i, A.dtype, A.device)
    if check_errors:
        support.raise_failures("torch.linalg.ldl_factor_ex", info, "ldl")


@ldl_solve.on("cuda")
def _(out: Tensor, LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool) -> None:
    _no_hermitian("torch.linalg.ldl_solve", LD, hermitian)
    raw_copy(out, B)
    batch = out.shape[:-2]
    packed = _copied(_bare(LD).expand(*batch, *LD.shape[-2:]))
    swaps = _bare(pivots).expand(*batch, pivots.shape[-1]).to(dt.int64).contiguous()
    ignored = _info(out)
    places = (_addresses(packed, 2), _addresses(swaps, 1), _addresses(out, 2), _addresses(ignored, 0))
    for a, p, b, i in zip(*places):
        cusolver.ldl_solve(a, out.shape[-2], p, b, out.shape[-1], i, out.dtype, out.device)


# -- QR -------------------------------------------------------------------------------------------------------------------


@geqrf.on("cuda")
def _(out: list[Tensor], input: Tensor) -> None:
    vectors, tau = out
    raw_copy(vectors, input)
    fill_raw(tau, 0)
    if 0 in input.shape[-2:]:
        return
    m, n = input.shape[-2:]
    ignored = _info(input)
    for a, t, i in zip(_addresses(vectors, 2), _addresses(tau, 1), _addresses(ignored, 0)):
        cusolver.qr(a, m, n, t, i, input.dtype, input.device)


@factors_qr.on("cuda")
def _(out: list[Tensor], A: Tensor, mode: str) -> None:
    vectors, tau = geqrf(_bare(A))
    k = tau.shape[-1]
    q, r = out
    raw_copy(r, vectors[..., : r.shape[-2], :].triu())
    if mode == "r":
        return
    m, wide = q.shape[-2:]
    one: Any = eye(m, wide, dtype=A.dtype, device=A.device).expand(q.shape)
    raw_copy(q, reflected(vectors[..., :k], tau, one))


# -- eigenvalues and singular values --------------------------------------------------------------------------------------


def _need_converged(name: str, info: Tensor) -> None:
    """Raise for the first matrix whose iteration did not end, as PyTorch does, which waits for the device here."""
    code = int(_bare(info).abs().amax()) if 0 not in info.shape else 0
    if code:
        raise LinAlgError(
            f"{name}: The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated"
            f" {'singular values' if name == 'linalg.svd' else 'eigenvalues'} (error code: {code})."
        )


def _hermitian(values: Tensor, vectors: Tensor, wanted: bool, uplo: str) -> None:
    n, info = vectors.shape[-1], _info(vectors)
    side = cublas.LOWER if uplo == "L" else cublas.UPPER
    if not n:
        return
    for w, a, i in zip(_addresses(values, 1), _addresses(vectors, 2), _addresses(info, 0)):
        cusolver.hermitian_eigen(a, n, w, wanted, side, i, vectors.dtype, vectors.device)
    _need_converged("linalg.eigh", info)


@hermitian_eigen.on("cuda")
def _(out: list[Tensor], A: Tensor, uplo: str) -> None:
    raw_copy(out[1], A)
    _hermitian(out[0], out[1], True, uplo)


@hermitian_eigenvalues.on("cuda")
def _(out: Tensor, A: Tensor, uplo: str) -> None:
    _hermitian(out, _copied(A), False, uplo)


def _singular(S: Tensor, A: Tensor, job: str) -> tuple[Any, Any]:
    """Singular values into S; U and Vh (job "A" or "S"), which have as many rows and columns as the job says."""
    *batch, m, n = A.shape
    turned = m < n  # the library wants tall matrices
    a = _copied(_bare(A).mH if turned else A)
    tall, narrow = max(m, n), min(m, n)
    d, where, info = A.dtype, A.device, _info(A)
    u = _columns((*batch, tall, tall if job == "A" else narrow), d, where)
    vh = _columns((*batch, narrow, narrow), d, where)
    if narrow:
        places = [_addresses(t, own) for t, own in ((a, 2), (S, 1), (u, 2), (vh, 2), (info, 0))]
        for x, s, left, right, i in zip(*places):
            cusolver.singular(x, tall, narrow, s, left, right, job, i, d, where)
        _need_converged("linalg.svd", info)
    elif job == "A":
        raw_copy(u, eye(tall, dtype=d, device=where))
    u, vh = _bare(u), _bare(vh)
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
    if not bool(_bare(A).isfinite().all()):
        raise RuntimeError(f"torch.{name}: input tensor should not contain infs or NaNs.")
    a, info = _copied(A, values.dtype), _info(A)
    places = iter([0] * numel_of(A.shape[:-2])) if vectors is None else _addresses(vectors, 2)
    for x, w, v, i in zip(_addresses(a, 2), _addresses(values, 1), places, _addresses(info, 0)):
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
        values, left = hermitian_eigen(_bare(A), "L")
        right = left.mH
    else:
        left, values, right = singular(_bare(A), False)
    sizes = values.abs()
    atol, rtol = (_bare(t).unsqueeze(-1) if isinstance(t, Tensor) else t for t in (atol, rtol))
    counts = sizes > (sizes.amax(-1, True) * rtol).clamp(min=atol)
    inverse = values.reciprocal().masked_fill(~counts, 0)
    raw_copy(out, right.mH @ (inverse.unsqueeze(-1) * left.mH))


@extreme_eigenpairs.on("cuda")
def _(
    out: list[Tensor], A: Tensor, B: Tensor | None, X: Tensor, iK: Tensor | None, largest: bool, tol: float, niter: int
) -> None:
    # All eigenpairs at once are found faster here than some of them step by step.
    k, a = X.shape[-1], _bare(A)
    factor = None
    if B is not None:  # A x = e B x with B = L L^H is L^-1 A L^-H y = e y, y = L^H x
        factor, _ = factor_and_info(_bare(B), False)
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
    """The shortest solution by singular values, of which those above tolerance * largest count: it, how many those are, and all."""
    left, values, right = singular(a, False)
    counts = values > values.amax(-1, True) * tolerance
    inverse = values.reciprocal().masked_fill(~counts, 0)
    return right.mH @ (inverse.unsqueeze(-1) * (left.mH @ b)), counts.sum(-1), values


def _by_factors(a: Any, b: Any) -> Any:
    """The solution for matrices of full rank, by QR."""
    if a.shape[-2] >= a.shape[-1]:
        q, r = factors_qr(a, "reduced")
        return triangular_solution(r, q.mH @ b, True, True, False)
    q, r = factors_qr(a.mH, "reduced")  # the shortest solution: of A^H = Q R
    return q @ triangular_solution(r.mH, b, False, True, False)


@least_squares.on("cuda")
def _(out: list[Tensor], A: Tensor, B: Tensor, rcond: float, driver: str) -> None:
    result, residuals, ranks, singular_ones = out
    vector = is_vector(A, B)
    a, b = _bare(A), _bare(B).unsqueeze(-1) if vector else _bare(B)
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
    a = _bare(A)
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
