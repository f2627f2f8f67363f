"""Small matrices in batches: LU with partial pivoting, triangular systems, Cholesky; and conversions of LAPACK's operands and results."""

from __future__ import annotations

from ..loops import abs_, i32, loop_kernel, prange, scalar_function, simd, sqrt, unroll

TILE = 16  # rows whose elements of a column are a cache line


@scalar_function
def factor(work, pivots, base, swaps, m, n, low, high):
    """Factor the columns from low to high of one m x n matrix at `base`. A zero pivot leaves its column unchanged."""
    for j in range(low, high):
        top = base + j * n
        best = j
        size = abs_(work[top + j])
        for i in range(j + 1, m):
            here = abs_(work[base + i * n + j])
            if here > size:
                size = here
                best = i
        pivots[swaps + j] = i32(best + 1)
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
                share = work[row + j] / pivot
                work[row + j] = share
                for c in simd(j + 1, high):
                    work[row + c] = work[row + c] - share * work[top + c]


@scalar_function
def solve_one(x, a, base, first, n, columns, *, upper, unit):
    """Solve a y = x in place of x for one triangular matrix."""
    for step in range(n):
        i = n - 1 - step if upper else step
        row = first + i * columns
        for k in range(step):
            j = n - 1 - k if upper else k
            share = a[base + i * n + j]
            for c in simd(columns):
                x[row + c] = x[row + c] - share * x[first + j * columns + c]
        if not unit:
            pivot = a[base + i * n + i]
            for c in simd(columns):
                x[row + c] = x[row + c] / pivot


@loop_kernel
def lu_columns(work, pivots, count, m, n, k, low, high):
    """Factor the columns from low to high of `count` m x n matrices in place; whole rows are swapped, and `pivots` (k for each matrix) are
    the rows they were swapped with, counted from 1."""
    for matrix in prange(count, m * (high - low)):
        factor(work, pivots, matrix * m * n, matrix * k, m, n, low, high)


@loop_kernel
def substitute(x, a, count, n, columns, *, upper, unit):
    """Solve a y = x in place of x for `count` triangular matrices of n x n; x is n x columns. Only one triangle of a is read."""
    for matrix in prange(count, n * n * columns):
        solve_one(x, a, matrix * n * n, matrix * n * columns, n, columns, upper=upper, unit=unit)


@loop_kernel
def solve_systems(x, work, pivots, info, count, n, columns):
    """Solve for `count` matrices, which their factors replace, x in place; info is the first zero pivot (0: none)."""
    for matrix in prange(count, n * n * (n + columns)):
        base = matrix * n * n
        first = matrix * n * columns
        factor(work, pivots, base, matrix * n, n, n, 0, n)
        failed = 0
        for i in range(n):
            if failed == 0 and work[base + i * n + i] == 0:
                failed = i + 1
            other = pivots[matrix * n + i] - 1
            if other != i:
                for c in range(columns):
                    kept = x[first + i * columns + c]
                    x[first + i * columns + c] = x[first + other * columns + c]
                    x[first + other * columns + c] = kept
        info[matrix] = failed
        solve_one(x, work, base, first, n, columns, upper=False, unit=True)
        solve_one(x, work, base, first, n, columns, upper=True, unit=False)


@loop_kernel
def follow_swaps(order, pivots, count, k, m):
    """Compute the order of m rows after k swaps of row i with row pivots[i] (counted from 1)."""
    for matrix in prange(count, m):
        first = matrix * m
        for i in range(m):
            order[first + i] = i
        for i in range(k):
            other = pivots[matrix * k + i] - 1
            kept = order[first + i]
            order[first + i] = order[first + other]
            order[first + other] = kept


@loop_kernel
def turn(out, a, count, m, n, *, lower=False):
    """Transpose `count` m x n matrices; with `lower`, zeros above the diagonal."""
    bands = (m + TILE - 1) // TILE
    for task in prange(count * bands, 4 * TILE * n):
        base = task // bands * m * n
        top = task % bands * TILE
        whole = top + TILE <= m
        for j in range(n):
            if whole:
                for i in unroll(TILE):
                    v = a[base + (top + i) * n + j]
                    out[base + j * m + top + i] = v if not lower or top + i >= j else 0
            else:
                for i in range(top, m):
                    v = a[base + i * n + j]
                    out[base + j * m + i] = v if not lower or i >= j else 0


@loop_kernel
def clear_below(columns, count, m, n):
    """Write zeros below the diagonal of `count` matrices of m rows, given by their n columns."""
    for task in prange(count * n, m):
        j = task % n
        for i in simd(j + 1, m):
            columns[task * m + i] = 0


@loop_kernel
def cholesky_rows(factor, a, info, count, n):
    """Compute the lower factors of `count` matrices, of which the lower triangle is read; info is the first leading minor that is not
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
