"""Dense linear algebra on batches of NumPy matrices: NumPy's LAPACK, including routines that NumPy does not expose.

Every function takes matrices in the last two dimensions and keeps its input unchanged. Functions that fail for singular matrices return
LAPACK's `info` per matrix (0: success, i: failure at row i) instead of raising; callers choose the message.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np

from flambeau.backends.cpu import lapack_routines as routines
from flambeau.core.dtype import FROM_NUMPY, int32
from flambeau.kernels.library.lu import (
    cholesky_rows,
    clear_below,
    follow_swaps,
    lu_columns,
    solve_systems,
    substitute,
    turn,
)

_BLOCK = 24  # below this many rows, row by row; above, LAPACK one matrix at a time, or halves joined by matrix products


def broadcast_batches(*matrices: np.ndarray) -> list[np.ndarray]:
    """Return the matrices with their batch dimensions broadcast together."""
    if len({m.shape[:-2] for m in matrices}) == 1:
        return list(matrices)
    batch = np.broadcast_shapes(*(m.shape[:-2] for m in matrices))
    return [np.broadcast_to(m, batch + m.shape[-2:]) for m in matrices]


# -- triangular systems -----------------------------------------------------------------------------------------------


def solve_triangular(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool = False) -> np.ndarray:
    """Return x with a @ x = b. Only one triangle of `a` is read; a zero on its diagonal gives infinities, not an error."""
    a, b = broadcast_batches(a, b)
    n, columns = b.shape[-2:]
    if n > _BLOCK and routines.available(a.dtype) and b.size:
        x, triangles = _by_columns(b), _by_columns(a)
        if not routines.solve_triangular(triangles, x, upper, unit).any():
            return _from_columns(x, b.shape)
    x = np.array(b, order="C")  # the factorization works on rows
    if n <= _BLOCK and _has_kernel(a.dtype) and b.size:
        substitute(x, np.ascontiguousarray(a), x.size // (n * columns), n, columns, upper=upper, unit=unit)
        return x
    with np.errstate(all="ignore"):
        _substitute(a, x, upper, unit)
    return x


def _by_columns(a: np.ndarray, lower: bool = False) -> np.ndarray:
    """Return copies of matrices for LAPACK: (count, columns, rows); with `lower`, zeros above the diagonal."""
    m, n = a.shape[-2:]
    if a.flags.c_contiguous and _has_kernel(a.dtype) and a.size:
        columns = np.empty((a.size // (m * n), n, m), a.dtype)
        turn(columns, a, len(columns), m, n, lower=lower)
        return columns
    turned = np.swapaxes(np.tril(a) if lower else a, -2, -1)
    return np.array(turned, order="C").reshape(-1, n, m)


def _from_columns(columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return columns.swapaxes(-2, -1).reshape(shape)


def _substitute(a: np.ndarray, x: np.ndarray, upper: bool, unit: bool) -> None:
    n = a.shape[-1]
    if n > _BLOCK:
        half = n // 2
        first, second = (slice(half, n), slice(0, half)) if upper else (slice(0, half), slice(half, n))
        _substitute(a[..., first, first], x[..., first, :], upper, unit)
        x[..., second, :] -= a[..., second, first] @ x[..., first, :]
        _substitute(a[..., second, second], x[..., second, :], upper, unit)
        return
    for i in reversed(range(n)) if upper else range(n):
        if not unit:
            x[..., i, :] /= a[..., i, i, None]
        rest = slice(0, i) if upper else slice(i + 1, n)
        x[..., rest, :] -= a[..., rest, i, None] * x[..., i, None, :]


# -- LU ---------------------------------------------------------------------------------------------------------------


def lu(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Factor P a = L U with partial pivoting: return both factors in one matrix, LAPACK's pivots (row i was swapped with row pivots[i],
    counted from 1), and info, the first zero pivot."""
    *batch, m, n = a.shape
    k = min(m, n)
    count = math.prod(batch)
    if k > _BLOCK and routines.available(a.dtype) and count:
        columns, swaps = _by_columns(a), routines.integers(count, k)
        found = routines.lu(columns, swaps).astype(np.int32).reshape(batch)
        return _from_columns(columns, a.shape), swaps.astype(np.int32).reshape(*batch, k), found
    work = np.array(a, order="C").reshape(count, m, n)
    pivots = np.zeros((count, k), np.int32)
    if n == k <= _BLOCK and _has_kernel(a.dtype):
        _factor_columns(work, pivots, 0, k)
    else:
        with np.errstate(all="ignore"):
            _factor_columns(work, pivots, 0, k)
            _substitute(work[:, :, :k], work[:, :, k:], False, True)
    info = np.zeros(count, np.int32)
    zero = work.diagonal(0, -2, -1) == 0
    if zero.any():
        info[:] = np.where(zero.any(-1), zero.argmax(-1) + 1, 0)
    return work.reshape(a.shape), pivots.reshape(*batch, k), info.reshape(batch)


@lru_cache
def _has_kernel(d: np.dtype) -> bool:
    """Return whether compiled code factors columns: not for complex numbers, nor if kernels are interpreted."""
    if d.kind == "c":
        return False
    return lu_columns.native(FROM_NUMPY[d], int32, *[int] * 6) is not None


def _factor_columns(work: np.ndarray, pivots: np.ndarray, low: int, high: int) -> None:
    if high - low > _BLOCK:
        middle = (low + high) // 2
        left, right = slice(low, middle), slice(middle, high)
        _factor_columns(work, pivots, low, middle)
        _substitute(work[:, left, left], work[:, left, right], False, True)
        work[:, middle:, right] -= work[:, middle:, left] @ work[:, left, right]
        _factor_columns(work, pivots, middle, high)
        return
    if _has_kernel(work.dtype):
        lu_columns(work, pivots, len(work), *work.shape[1:], pivots.shape[1], low, high)
        return
    matrices = np.arange(len(work))
    for j in range(low, high):
        chosen = j + pivot_size(work[:, j:, j]).argmax(-1)
        pivots[:, j] = chosen + 1
        row = work[:, j].copy()
        work[:, j] = work[matrices, chosen]
        work[matrices, chosen] = row
        pivot = work[:, j, j, None]
        work[:, j + 1 :, j] /= np.where(pivot == 0, 1, pivot)
        work[:, j + 1 :, j + 1 : high] -= work[:, j + 1 :, j, None] * work[:, j, None, j + 1 : high]


def pivot_size(x: np.ndarray) -> np.ndarray:
    """Return what LAPACK compares to choose a pivot: |x|, for complex numbers |real| + |imag|."""
    return np.abs(x.real) + np.abs(x.imag) if x.dtype.kind == "c" else np.abs(x)


def permutation(pivots: np.ndarray, m: int) -> np.ndarray:
    """Return the order of rows that a list of swaps leads to: row i of P a is row order[i] of a."""
    *batch, k = pivots.shape
    count = math.prod(batch)
    order = np.empty((*batch, m), np.int64)
    if order.size:
        follow_swaps(order, np.ascontiguousarray(pivots, np.int32), count, k, m)
    return order


# -- square systems ---------------------------------------------------------------------------------------------------


def solve(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return x with a @ x = b, and info: the first zero pivot of each matrix."""
    a, b = broadcast_batches(a, b)
    n, columns = b.shape[-2:]
    if routines.available(a.dtype) and _has_kernel(a.dtype) and b.size:
        return _solve_small(a, b) if n <= _BLOCK else _solve_large(a, b)
    try:
        return np.linalg.solve(a, b), np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        packed, pivots, info = lu(a)
        moved = np.take_along_axis(b, permutation(pivots, a.shape[-1])[..., None], -2)
        return solve_triangular(packed, solve_triangular(packed, moved, False, True), True), info


def _solve_small(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n, columns = b.shape[-2:]
    x, work = np.array(b, order="C"), np.array(a, order="C")
    pivots, info = np.empty((*a.shape[:-1],), np.int32), np.empty(a.shape[:-2], np.int32)
    solve_systems(x, work, pivots, info, info.size, n, columns)
    return x, info


def _solve_large(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    matrices, x = _by_columns(a), _by_columns(b)
    pivots = routines.integers(len(x), a.shape[-1])
    info = routines.lu(matrices, pivots)
    routines.lu_solve(matrices, pivots, x)
    return _from_columns(x, b.shape), info.reshape(a.shape[:-2])


def inverse(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = a.shape[-1]
    if n <= _BLOCK or not routines.available(a.dtype) or not a.size:
        return solve(a, np.eye(n, dtype=a.dtype))
    matrices = _by_columns(a)
    pivots = routines.integers(len(matrices), n)
    info = routines.lu(matrices, pivots)
    routines.lu_inverse(matrices, pivots)  # leaves singular ones unchanged
    return _from_columns(matrices, a.shape), info.reshape(a.shape[:-2])


def cholesky(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower factor, computed from the lower triangle, and info: the first leading minor that is not positive."""
    n = a.shape[-1]
    if n <= _BLOCK and _has_kernel(a.dtype) and a.size:
        factor, info = np.empty(a.shape, a.dtype), np.zeros(a.shape[:-2], np.int32)
        cholesky_rows(factor, np.ascontiguousarray(a), info, info.size, n)
        return factor, info
    if routines.available(a.dtype) and a.size:
        columns = _by_columns(a, lower=True)
        return _from_columns(columns, a.shape), routines.cholesky(columns).reshape(a.shape[:-2])
    try:
        return np.linalg.cholesky(a), np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        flat = a.reshape(-1, *a.shape[-2:])
        pairs = [_cholesky_until(m) for m in flat]
        factors = np.stack([p[0] for p in pairs]).reshape(a.shape)
        return factors, np.array([p[1] for p in pairs], np.int32).reshape(a.shape[:-2])


def _cholesky_until(a: np.ndarray) -> tuple[np.ndarray, int]:
    """Factor one matrix column by column, up to the first pivot that is not positive."""
    factor = np.tril(a)
    for j in range(len(a)):
        row = factor[j, :j].conj()
        pivot = factor[j, j].real - (row * row.conj()).sum().real
        if not pivot > 0:
            return factor, j + 1
        factor[j, j] = np.sqrt(pivot)
        factor[j + 1 :, j] = (factor[j + 1 :, j] - factor[j + 1 :, :j] @ row) / factor[j, j]
    return factor, 0


# -- orthogonal factors -----------------------------------------------------------------------------------------------


def reflectors(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return R in the upper triangle with the Householder vectors below it, and their factors tau."""
    *batch, m, n = a.shape
    if 0 in a.shape:
        return a.copy(), np.zeros((*batch, min(m, n)), a.dtype)
    if routines.available(a.dtype):
        columns = _by_columns(a)
        factors = routines.reflectors(columns)
        return _from_columns(columns, a.shape), factors.reshape(*batch, min(m, n))
    packed, tau = np.linalg.qr(a, mode="raw")
    return np.swapaxes(packed, -2, -1), tau


def qr(a: np.ndarray, mode: Literal["reduced", "complete"]) -> tuple[np.ndarray, np.ndarray]:
    *batch, m, n = a.shape
    k = m if mode == "complete" else min(m, n)
    if 0 in a.shape:
        return np.broadcast_to(np.eye(m, k, dtype=a.dtype), (*batch, m, k)), np.zeros((*batch, k, n), a.dtype)
    if not routines.available(a.dtype):
        return np.linalg.qr(a, mode=mode)
    packed, tau = reflectors(a)
    shared = min(k, n)
    columns = np.empty((math.prod(batch), k, m), a.dtype)
    columns[:, :shared] = np.swapaxes(packed, -2, -1).reshape(-1, n, m)[:, :shared]
    columns[:, shared:] = 0
    routines.orthogonal(columns, tau.reshape(len(columns), -1))
    return _from_columns(columns, (*batch, m, k)), _upper(packed)[..., :k, :]


def _upper(packed: np.ndarray) -> np.ndarray:
    """Return the triangle R of a result of `reflectors`, in place."""
    columns = np.swapaxes(packed, -2, -1)
    if not (columns.flags.c_contiguous and _has_kernel(packed.dtype)):
        return np.triu(packed)
    *batch, n, m = columns.shape
    clear_below(columns, math.prod(batch), m, n)
    return packed


def can_factor(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether `least_squares` can be called."""
    return routines.available(a.dtype) and bool(a.size) and bool(b.size)


def least_squares(a: np.ndarray, b: np.ndarray, rcond: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the shortest x that minimise |a @ x - b|, and the ranks of the matrices, by QR with pivoting. With rcond None use plain QR, and
    return instead of ranks `info`: the row of R that shows a matrix not to have full rank, else 0."""
    a, b = broadcast_batches(a, b)
    (m, n), k = a.shape[-2:], b.shape[-1]
    matrices = _by_columns(a)
    x = np.zeros((len(matrices), k, max(m, n)), a.dtype)
    x[..., :m] = _by_columns(b)
    if rcond is None:
        ranks = routines.full_rank_least_squares(matrices, x)
    else:
        ranks = routines.least_squares(matrices, x, rcond)
    return _from_columns(x[..., :n], (*b.shape[:-2], n, k)), ranks.reshape(a.shape[:-2])


# -- singular values and eigenvalues ----------------------------------------------------------------------------------


def svd(a: np.ndarray, full_matrices: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return U, the singular values and V^H; raise LinAlgError if that fails."""
    if not routines.available(a.dtype) or not a.size:
        return np.linalg.svd(a, full_matrices=full_matrices)
    _need_finite(a)
    *batch, m, n = a.shape
    k = min(m, n)
    u, s, vh = routines.svd(_by_columns(a), full_matrices, True)
    rows, columns = (m, n) if full_matrices else (k, k)
    return _from_columns(u, (*batch, m, rows)), s.reshape(*batch, k), _from_columns(vh, (*batch, columns, n))


def singular_values(a: np.ndarray) -> np.ndarray:
    if not routines.available(a.dtype) or not a.size:
        return np.linalg.svd(a, compute_uv=False)
    _need_finite(a)
    return routines.svd(_by_columns(a), False, False)[1].reshape(*a.shape[:-2], min(a.shape[-2:]))


def _need_finite(a: np.ndarray) -> None:
    """Raise LinAlgError for infinities or NaN, with which LAPACK's iteration for singular values may not end."""
    if not np.isfinite(a).all():
        raise np.linalg.LinAlgError("the matrix has elements that are not finite")


def eigh(a: np.ndarray, uplo: str = "L") -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues and eigenvectors of symmetric or Hermitian matrices, of which one triangle is read."""
    if a.shape[-1] > 1:
        _need_finite(a)
    if not routines.available(a.dtype) or not a.size:
        return np.linalg.eigh(a, uplo)  # type: ignore[call-overload]
    columns = _by_columns(a)
    values = routines.eigh(columns, uplo.upper() == "L", True)
    return values.reshape(a.shape[:-1]), _from_columns(columns, a.shape)


def eigenvalues(a: np.ndarray, uplo: str = "L") -> np.ndarray:
    if a.shape[-1] > 1:
        _need_finite(a)
    if not routines.available(a.dtype) or not a.size:
        return np.linalg.eigvalsh(a, uplo)  # type: ignore[call-overload]
    return routines.eigh(_by_columns(a), uplo.upper() == "L", False).reshape(a.shape[:-1])


# -- the exponential --------------------------------------------------------------------------------------------------

# Numerator of the [13/13] Pade approximant of exp, and the norm up to which it is exact to double precision (Higham 2005).
_PADE = (64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
         670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1)  # fmt: skip
_PADE_NORM = 5.371920351148152


def exponential(a: np.ndarray) -> np.ndarray:
    """exp of each square matrix, by scaling, a Pade approximant and squaring, in double precision."""
    wide = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
    if not a.size:
        return wide
    norm = np.abs(wide).sum(-2).max(-1)[..., None, None]
    finite = np.isfinite(norm)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        squarings = np.where(finite, np.ceil(np.log2(norm / _PADE_NORM)), 0).clip(0, 2000).astype(np.int64)
        scaled = np.where(finite, np.ldexp(1.0, -squarings) * wide, 0)
        result = _pade(scaled)
        for i in range(int(squarings.max())):
            result = np.where(i < squarings, result @ result, result)
    return np.where(finite, result, np.nan)


def _pade(a: np.ndarray) -> np.ndarray:
    one = np.eye(a.shape[-1])
    c = _PADE
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a2 @ a4
    odd = a @ (a6 @ (c[13] * a6 + c[11] * a4 + c[9] * a2) + c[7] * a6 + c[5] * a4 + c[3] * a2 + c[1] * one)
    even = a6 @ (c[12] * a6 + c[10] * a4 + c[8] * a2) + c[6] * a6 + c[4] * a4 + c[2] * a2 + c[0] * one
    return np.linalg.solve(even - odd, even + odd)
