"""Stable sorting of rows, with the indices that sort them. nan counts as larger than everything, as in PyTorch."""

from __future__ import annotations

from ..loops import isnan, loop_kernel, minimum, prange, scalar_function, where

RUN = 16  # rows shorter than this, and the runs that merging starts from, are sorted by insertion


@scalar_function
def comes_before(a, b, *, descending):
    """Return whether a must stand before b: strictly, so that equal elements keep their order."""
    if descending:
        return a > b or (isnan(a) and not isnan(b))
    return a < b or (isnan(b) and not isnan(a))


@scalar_function
def sort_runs(values, indices, base, n, *, descending):
    for first in range(0, n, RUN):
        last = minimum(first + RUN, n)
        for i in range(first + 1, last):
            v = values[base + i]
            place = indices[base + i]
            j = i - 1
            while j >= first and comes_before(v, values[base + j], descending=descending):
                values[base + j + 1] = values[base + j]
                indices[base + j + 1] = indices[base + j]
                j -= 1
            values[base + j + 1] = v
            indices[base + j + 1] = place


@scalar_function
def merge_pass(to, to_index, source, source_index, base, n, width, *, descending):
    """Merge neighbouring sorted runs of `width` into runs of twice that."""
    for first in range(0, n, 2 * width):
        middle = minimum(first + width, n)
        last = minimum(first + 2 * width, n)
        i = first
        j = middle
        k = first
        while i < middle and j < last:  # no branch depends on the elements: it would be guessed wrong half the time
            left = source[base + i]
            right = source[base + j]
            take_right = comes_before(right, left, descending=descending)
            to[base + k] = where(take_right, right, left)
            to_index[base + k] = source_index[base + where(take_right, j, i)]
            j += take_right
            i += not take_right
            k += 1
        while i < middle:
            to[base + k] = source[base + i]
            to_index[base + k] = source_index[base + i]
            i += 1
            k += 1
        while j < last:
            to[base + k] = source[base + j]
            to_index[base + k] = source_index[base + j]
            j += 1
            k += 1


@loop_kernel
def sort_rows(values, indices, spare, spare_indices, rows, n, *, descending=False):
    """Sort each row of `values` in place, stably, and write the order into `indices`. The spare buffers have the size
    and dtype of `values` and `indices`; for n <= RUN they may be None."""
    for row in prange(rows, 20 * n):
        base = row * n
        for i in range(n):
            indices[base + i] = i
        sort_runs(values, indices, base, n, descending=descending)
        if spare is not None:
            width = RUN
            in_spare = False
            while width < n:
                if in_spare:
                    merge_pass(values, indices, spare, spare_indices, base, n, width, descending=descending)
                else:
                    merge_pass(spare, spare_indices, values, indices, base, n, width, descending=descending)
                in_spare = not in_spare
                width = 2 * width
            if in_spare:
                for i in range(n):
                    values[base + i] = spare[base + i]
                    indices[base + i] = spare_indices[base + i]
