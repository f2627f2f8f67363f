"""Rows of matrices that are equal because they were read from one row of a table: computations use each distinct row once.

The distinct rows are numbered in the order in which they first occur, so that row `number` never comes after a row that it represents, and
all of this can be done in place."""

from __future__ import annotations

from ..loops import loop_kernel, minimum, prange, simd

COLUMNS = 256  # in one task


@loop_kernel
def number_rows(place, first, seen, index, rows1, rows2, rows3, rows4, count, n):
    """place[k] is the number of index[k] among the distinct ones; first[number] is that index, and -1 after the last. rows1 to rows4 become
    the number of distinct ones."""
    for j in simd(n):
        seen[j] = -1
    found = 0
    for k in range(count):
        j = index[k]
        number = seen[j]
        if number < 0:
            number = found
            seen[j] = number
            first[number] = j
            found += 1
        place[k] = number
    for k in range(found, count):
        first[k] = -1
    rows1[0] = found
    rows2[0] = found
    rows3[0] = found
    rows4[0] = found


@loop_kernel
def gather_first(x, place, count, dim):
    """Compact rows in place: row n becomes the first row k with place[k] == n."""
    for task in prange((dim + COLUMNS - 1) // COLUMNS, count * COLUMNS):
        start = task * COLUMNS
        width = minimum(COLUMNS, dim - start)
        found = 0
        for k in range(count):
            if place[k] == found:
                for c in simd(width):
                    x[found * dim + start + c] = x[k * dim + start + c]
                found += 1


@loop_kernel
def spread_rows(x, place, count, dim):
    """Replace row k by row place[k], from the last to the first."""
    for task in prange((dim + COLUMNS - 1) // COLUMNS, count * COLUMNS):
        start = task * COLUMNS
        width = minimum(COLUMNS, dim - start)
        for turn in range(count):
            k = count - 1 - turn
            for c in simd(width):
                x[k * dim + start + c] = x[place[k] * dim + start + c]


@loop_kernel
def add_rows(out, x, place, count, dim):
    """Row `number` of out becomes the sum of the rows of x that have this number, added in order."""
    for task in prange((dim + COLUMNS - 1) // COLUMNS, count * COLUMNS):
        start = task * COLUMNS
        width = minimum(COLUMNS, dim - start)
        found = 0
        for k in range(count):
            if place[k] == found:
                for c in simd(width):
                    out[found * dim + start + c] = x[k * dim + start + c]
                found += 1
            else:
                for c in simd(width):
                    out[place[k] * dim + start + c] += x[k * dim + start + c]
