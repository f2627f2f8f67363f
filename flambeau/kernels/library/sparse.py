"""Sparse matrices: sorting entries by row, merging two lists of places, products with dense matrices."""

from __future__ import annotations

from ..loops import like, loop_kernel, prange, simd


@loop_kernel
def sort_by_row(order, starts, row, count, rows):
    """Sort entries by row, stably, by counting: starts[i] is where row i begins in `order`, which lists positions of entries. `starts` has
    rows + 1 elements. Every row[k] must be in [0, rows)."""
    for _ in prange(1, count):
        for i in range(rows + 1):
            starts[i] = 0
        for k in range(count):
            starts[row[k] + 1] += 1
        for i in range(rows):
            starts[i + 1] = starts[i + 1] + starts[i]
        for k in range(count):
            i = row[k]
            order[starts[i]] = k
            starts[i] = starts[i] + 1
        for i in range(rows):  # each start has moved to its row's end: the next row's start
            starts[rows - i] = starts[rows - i - 1]
        starts[0] = 0


@loop_kernel
def merge_places(place_a, place_b, total, a, b, count_a, count_b):
    """Merge two lists of keys: place_a[i] is where a[i] goes in the merged list, and equal keys that meet share a place. total[0] is its
    length. Lists need not be sorted; then equal keys may keep places of their own."""
    for _ in prange(1, count_a + count_b):
        i = 0
        j = 0
        n = 0
        for _step in range(count_a + count_b):
            if i < count_a or j < count_b:
                from_a = j >= count_b
                from_b = i >= count_a
                if i < count_a and j < count_b:
                    from_a = a[i] <= b[j]
                    from_b = a[i] >= b[j]
                if from_a:
                    place_a[i] = n
                if from_b:
                    place_b[j] = n
                i += 1 if from_a else 0
                j += 1 if from_b else 0
                n += 1
        total[0] = n


@loop_kernel
def rows_times_matrix(out, starts, order, column, values, dense, rows, width, entries):
    """out[i, :] = the sum of values[k] * dense[column[k], :] over the entries k of row i, which `order` lists from starts[i] to starts[i + 1]
    (None: entries are sorted by row). Every column must be a row of `dense`."""
    for i in prange(rows, (entries // (rows + 1) + 1) * width):
        for c in simd(width):
            out[i * width + c] = 0
        for place in range(starts[i], starts[i + 1]):
            k = order[place] if order is not None else place
            v = values[k]
            j = column[k] * width
            for c in simd(width):
                out[i * width + c] += v * dense[j + c]


@loop_kernel
def sampled_products(out, row, column, left, right, count, width):
    """out[k] = the inner product of left[row[k], :] and right[column[k], :]."""
    for k in prange(count, width):
        a = row[k] * width
        b = column[k] * width
        total = like(out, 0)
        for c in simd(width):
            total += left[a + c] * right[b + c]
        out[k] = total


@loop_kernel
def add_rows(out, place, source, count, rows, width, parts):
    """out[place[k], :] += source[k, :]. Each of `parts` iterations owns a range of rows and reads all entries, so that a row is summed in the
    same order for any number of threads. Every place must be a row of `out`."""
    size = (rows + parts - 1) // parts
    for part in prange(parts, count * width // parts + count):
        first = part * size
        last = first + size
        for k in range(count):
            row = place[k]
            if first <= row < last:
                for c in simd(width):
                    out[row * width + c] += source[k * width + c]
