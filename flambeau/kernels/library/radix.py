"""Sorting long rows by the digits of their keys, and what is read off sorted rows."""

from __future__ import annotations

from ...core.dtype import uint32
from ..loops import i64, local, loop_kernel, prange, scalar_function, unroll
from .sort_keys import order_key

SHORT = 48  # rows at least this long are worth counting digits
DIGIT = 8  # bits: larger digits are fewer, but their counts leave the first-level cache
BINS = 1 << DIGIT


@scalar_function
def count_digits(counts, keys, order, x, base, n, scratch, *, digits, descending):
    """Keys and positions of a row, and how often each value of each digit occurs."""
    for b in range(digits * BINS):
        counts[b] = 0
    for i in range(n):
        key = order_key(x[base + i], kind=x.dtype, descending=descending)
        keys[scratch + i] = key
        order[scratch + i] = i
        for d in unroll(digits):
            counts[d * BINS + ((key >> (d * DIGIT)) & (BINS - 1))] += 1


@loop_kernel
def radix_sort_rows(values, indices, x, keys, order, rows, n, tasks, *, descending=False):
    """values, indices = each row of x sorted, stably, and the positions its elements had; from the lowest digit of the
    keys to the highest. `keys` (uint32, or int64 for 64-bit elements) and `order` (int32) are scratch memory for 2 * n
    elements per task. A digit that all elements share costs nothing."""
    digits = 4 if keys.dtype is uint32 else 8
    for task in prange(tasks, 40 * n * rows // tasks):
        counts = local(i64, digits * BINS)
        home = task * 2 * n
        for row in range(task * rows // tasks, (task + 1) * rows // tasks):
            base = row * n
            count_digits(counts, keys, order, x, base, n, home, digits=digits, descending=descending)
            source = home
            target = home + n
            for d in range(digits):
                shift = d * DIGIT
                first = d * BINS
                if counts[first + ((keys[source] >> shift) & (BINS - 1))] < n:
                    total = i64(0)
                    for b in range(BINS):
                        count = counts[first + b]
                        counts[first + b] = total
                        total = total + count
                    for i in range(n):
                        key = keys[source + i]
                        bin = first + ((key >> shift) & (BINS - 1))
                        place = counts[bin]
                        counts[bin] = place + 1
                        keys[target + place] = key
                        order[target + place] = order[source + i]
                    held = source
                    source = target
                    target = held
            for i in range(n):
                j = order[source + i]
                indices[base + i] = j
                values[base + i] = x[base + j]


@loop_kernel
def longest_runs(values, indices, ordered, order, rows, n):
    """The most frequent element of each sorted row (the first of several), and the last position it had."""
    for row in prange(rows, 2 * n):
        base = row * n
        best = 0
        longest = 0
        length = 0
        for i in range(n):
            length = length + 1 if i > 0 and ordered[base + i] == ordered[base + i - 1] else 1
            if length > longest:
                longest = length
                best = i
        values[row] = ordered[base + best]
        indices[row] = order[base + best]
