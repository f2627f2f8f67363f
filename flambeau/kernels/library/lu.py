"""Small matrices in batches: LU with partial pivoting, triangular systems, Cholesky."""

from __future__ import annotations

from ..loops import abs_, i32, loop_kernel, prange, simd, sqrt


@loop_kernel
def lu_columns(work, pivots, count, m, n, k, low, high):
    """Factor the columns from low to high of `count` matrices of m x n in place; whole rows are swapped, and pivots
    (k a matrix) say with which, counted from 1. A zero pivot leaves its column as it is."""
    for matrix in prange(count, m * (high - low)):
        base = matrix * m * n
        for j in range(low, high):
            top = base + j * n
            best = j
            size = abs_(work[top + j])
            for i in range(j + 1, m):
                here = abs_(work[base + i * n + j])
                if here > size:
                    size = here
                    best = i
            pivots[matrix * k + j] = i32(best + 1)
            if best != j:
                other = base + best * n
                for c in range(n):
                    kept = work[top + c]
                    work[top + c] = work[other + c]
                    work[other + c] = kept
            pivot = work[top + j]
            if pivot != 0:
                for i in range(j + 1, m):
                    row = base + i * n
                    factor = work[row + j] / pivot
                    work[row + j] = factor
                    for c in simd(j + 1, high):
                        work[row + c] = work[row + c] - factor * work[top + c]


@loop_kernel
def substitute(x, a, count, n, columns, *, upper, unit):
    """Solve a y = x in place of x for `count` triangular matrices of n x n; x is n x columns. Only one triangle of a is read."""
    for matrix in prange(count, n * n * columns):
        base = matrix * n * n
        first = matrix * n * columns
        for step in range(n):
            i = n - 1 - step if upper else step
            row = first + i * columns
            for k in range(step):
                j = n - 1 - k if upper else k
                factor = a[base + i * n + j]
                for c in simd(columns):
                    x[row + c] = x[row + c] - factor * x[first + j * columns + c]
            if not unit:
                pivot = a[base + i * n + i]
                for c in simd(columns):
                    x[row + c] = x[row + c] / pivot


@loop_kernel
def swap_rows(x, pivots, count, n, columns):
    """Apply the row exchanges of `lu_columns` to matrices of n x columns."""
    for matrix in prange(count, n * columns):
        for i in range(n):
            other = pivots[matrix * n + i] - 1
            if other != i:
                for c in range(columns):
                    kept = x[(matrix * n + i) * columns + c]
                    x[(matrix * n + i) * columns + c] = x[(matrix * n + other) * columns + c]
                    x[(matrix * n + other) * columns + c] = kept


@loop_kernel
def cholesky_rows(factor, a, info, count, n):
    """The lower factors of `count` matrices, of which the lower triangle is read; info is the first leading minor that is not
    positive (0: none), where the factor ends."""
    for matrix in prange(count, n * n * n // 3):
        base = matrix * n * n
        failed = 0
        for i in range(n):
            for j in range(n):
                factor[base + i * n + j] = a[base + i * n + j] if j <= i else 0
        for j in range(n):
            if failed == 0:
                pivot = factor[base + j * n + j]
                for k in range(j):
                    pivot = pivot - factor[base + j * n + k] * factor[base + j * n + k]
                if pivot > 0:
                    root = sqrt(pivot)
                    factor[base + j * n + j] = root
                    for i in range(j + 1, n):
                        v = factor[base + i * n + j]
                        for k in range(j):
                            v = v - factor[base + i * n + k] * factor[base + j * n + k]
                        factor[base + i * n + j] = v / root
                else:
                    failed = j + 1
        info[matrix] = failed
