"""Linear algebra on NVIDIA GPUs: cuSOLVER and cuBLAS for factors and triangular systems, operators for what is composed of them.

Results are stored by columns, as their layout rules say, so that the libraries work in place on a copy of the argument."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....core import dtype as dt
from ....core.raw_memory import first_address
from ....core.tensor import Tensor, empty, numel_of
from ....ops.creation.filled import fill_raw
from ....ops.creation.ranges import arange, eye
from ....ops.linalg import support
from ....ops.linalg.cholesky import cholesky_solve, factor_and_info, zero_on_diagonal
from ....ops.linalg.determinant import determinant, sign_and_logarithm
from ....ops.linalg.ldl import ldl_factor_ex, ldl_solve
from ....ops.linalg.lu import packed_factors, permutation_matrix
from ....ops.linalg.orthogonal import factors_qr, geqrf, reflected
from ....ops.linalg.solving import inverse_and_info, is_vector, solution
from ....ops.linalg.triangular import triangular_solution
from ....ops.machinery.door import new
from ....ops.machinery.inplace import raw_copy
from ....ops.machinery.memory import dense
from ... import nvidia
from .. import cublas, cublaslt, cusolver

_BATCHED_FROM = 2  # matrices
_BATCHED_SIZE = 512  # up to this size the libraries do many at once faster than one after the other


def bare(t: Tensor) -> Any:
    return t._bare_alias()


def addresses(t: Tensor, own: int) -> Iterator[int]:
    """Return the addresses of the parts of a dense result, each with its last `own` dimensions."""
    step = numel_of(t.shape[len(t.shape) - own :]) * t.dtype.itemsize
    start = first_address(t)
    return iter([start + i * step for i in range(numel_of(t.shape[: len(t.shape) - own]))])


def _pointers(t: Tensor, step: int, count: int) -> Tensor:
    """Return the addresses of `count` matrices, `step` elements from each other, in the device's memory."""
    numbers: Any = arange(count, dtype=dt.int64, device=t.device)
    return numbers * (step * t.dtype.itemsize) + first_address(t)


def columns(shape: tuple[int, ...], d: dt.dtype, where: Any) -> Tensor:
    return new(*support.columns(shape, d, where))


def copied(A: Tensor, d: dt.dtype | None = None) -> Tensor:
    """Return a copy of matrices, stored by columns."""
    copy = columns(A.shape, d or A.dtype, A.device)
    raw_copy(copy, A)
    return copy


def new_info(A: Tensor) -> Tensor:
    found = empty(A.shape[:-2], dt.int32, A.device)
    fill_raw(found, 0)
    return found


# -- triangular systems ---------------------------------------------------------------------------------------------------


def _solve_in_place(out: Tensor, A: Tensor, upper: bool, left: bool, unit: bool) -> None:
    """Compute out = A^-1 out or out A^-1; both have the same batch dimensions, out is stored by columns."""
    m, n = out.shape[-2:]
    if 0 in out.shape:
        return
    a = bare(A).reshape(-1, *A.shape[-2:])
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
    _solve_in_place(out, bare(A).expand(*out.shape[:-2], *A.shape[-2:]), upper, left, unitriangular)


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
        for a, i in zip(addresses(factor, 2), addresses(info, 0)):
            cusolver.cholesky(a, n, uplo, i, d, where)
    found = bare(factor)
    raw_copy(factor, found.triu() if upper else found.tril())


@cholesky_solve.on("cuda")
def _(out: Tensor, input: Tensor, input2: Tensor, upper: bool) -> None:
    raw_copy(out, input)
    factor = bare(input2).expand(*out.shape[:-2], *input2.shape[-2:])
    lower, higher = (factor.mH, factor) if upper else (factor, factor.mH)
    _solve_in_place(out, lower, False, True, False)
    _solve_in_place(out, higher, True, True, False)


@zero_on_diagonal.on("cuda")
def _(out: Tensor, A: Tensor) -> None:
    if not A.shape[-1]:
        fill_raw(out, 0)
        return
    zero = (bare(A).diagonal(0, -2, -1) == 0).to(dt.int32)
    raw_copy(out, (zero.argmax(-1) + 1) * zero.amax(-1))


# -- LU -------------------------------------------------------------------------------------------------------------------


def _factor(packed: Tensor, pivots: Tensor | None, info: Tensor) -> None:
    """Compute LU factors in place."""
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
    swaps = iter([0] * count) if pivots is None else addresses(pivots, 1)
    for a, p, i in zip(addresses(packed, 2), swaps, addresses(info, 0)):
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
    """Compute out (by columns) = the solution, for matrices with the same batch dimensions."""
    n, k = out.shape[-2:]
    if 0 in out.shape:
        return
    ignored = new_info(packed)
    trans = cublas.TRANSPOSED if transposed else cublas.PLAIN
    places = (addresses(packed, 2), addresses(pivots, 1), addresses(out, 2), addresses(ignored, 0))
    for a, p, b, i in zip(*places):
        cusolver.lu_solve(a, n, p, b, k, trans, i, out.dtype, out.device)


@solution.on("cuda")
def _(out: list[Tensor], A: Tensor, B: Tensor, left: bool) -> None:
    result, info = out
    b, r = bare(B), bare(result)
    if is_vector(A, B):
        b, r = b.unsqueeze(-1), r.unsqueeze(-1)
    if not left:
        b, r = b.mT, r.mT
    batch = r.shape[:-2]
    packed = copied(A)
    pivots, small = empty(A.shape[:-1], dt.int32, A.device), new_info(A)
    _factor(packed, pivots, small)
    raw_copy(info, small)
    if packed.shape[:-2] != batch:
        packed, pivots = (
            copied(bare(packed).expand(*batch, *A.shape[-2:])),
            bare(pivots).expand(*batch, -1).contiguous(),
        )
    x = columns(r.shape, A.dtype, A.device)
    raw_copy(x, b)
    _solved(x, packed, pivots, not left)
    raw_copy(r, x)


@inverse_and_info.on("cuda")
def _(out: list[Tensor], A: Tensor) -> None:
    inverse, info = out
    packed, pivots = copied(A), empty(A.shape[:-1], dt.int32, A.device)
    _factor(packed, pivots, info)
    raw_copy(inverse, eye(A.shape[-1], dtype=A.dtype, device=A.device))
    _solved(inverse, packed, pivots, False)


def _diagonal_and_sign(A: Tensor) -> tuple[Any, Any]:
    """Return the diagonal of U, and the sign of the permutation."""
    packed, pivots, info = copied(A), empty(A.shape[:-1], dt.int32, A.device), new_info(A)
    _factor(packed, pivots, info)
    n = A.shape[-1]
    moved = (bare(pivots) != arange(1, n + 1, dtype=dt.int32, device=A.device)).sum(-1)
    return bare(packed).diagonal(0, -2, -1), 1 - 2 * (moved % 2)


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
    raw_copy(packed, bare(A).tril())
    for a, p, i in zip(addresses(packed, 2), addresses(pivots, 1), addresses(info, 0)):
        cusolver.ldl(a, A.shape[-1], p, i, A.dtype, A.device)
    if check_errors:
        support.raise_failures("torch.linalg.ldl_factor_ex", info)


@ldl_solve.on("cuda")
def _(out: Tensor, LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool) -> None:
    _no_hermitian("torch.linalg.ldl_solve", LD, hermitian)
    raw_copy(out, B)
    batch = out.shape[:-2]
    packed = copied(bare(LD).expand(*batch, *LD.shape[-2:]))
    swaps = bare(pivots).expand(*batch, pivots.shape[-1]).to(dt.int64).contiguous()
    ignored = new_info(out)
    places = (addresses(packed, 2), addresses(swaps, 1), addresses(out, 2), addresses(ignored, 0))
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
    ignored = new_info(input)
    for a, t, i in zip(addresses(vectors, 2), addresses(tau, 1), addresses(ignored, 0)):
        cusolver.qr(a, m, n, t, i, input.dtype, input.device)


@factors_qr.on("cuda")
def _(out: list[Tensor], A: Tensor, mode: str) -> None:
    vectors, tau = geqrf(bare(A))
    k = tau.shape[-1]
    q, r = out
    raw_copy(r, vectors[..., : r.shape[-2], :].triu())
    if mode == "r":
        return
    m, wide = q.shape[-2:]
    one: Any = eye(m, wide, dtype=A.dtype, device=A.device).expand(q.shape)
    raw_copy(q, reflected(vectors[..., :k], tau, one))
