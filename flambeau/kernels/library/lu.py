"""Columns of an LU factorization with partial pivoting."""

from __future__ import annotations

from ..loops import abs_, i32, loop_kernel, prange, simd


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
