"""Counting elements: of each number, and between evenly spaced edges."""

from __future__ import annotations

from ..loops import i64, like, loop_kernel, maximum, minimum


@loop_kernel
def bounds(found, x, n):
    """found[0] = the smallest of n > 0 integers, found[1] = the largest."""
    low = x[0]
    high = x[0]
    for i in range(n):
        low = minimum(low, x[i])
        high = maximum(high, x[i])
    found[0] = low
    found[1] = high


@loop_kernel
def count_numbers(counts, x, n, size):
    """counts, two rows of `size` zeros, become how often each number occurs; the second row takes every other element, so
    that runs of one number do not wait for their own sums."""
    pairs = n // 2
    for k in range(pairs):
        counts[x[2 * k]] += 1
        counts[size + x[2 * k + 1]] += 1
    for i in range(2 * pairs, n):
        counts[x[i]] += 1
    for j in range(size):
        counts[j] += counts[size + j]


@loop_kernel
def count_between(counts, x, places, n, bins, low, high):
    """counts[bin] += the elements in each of `bins` equal parts of low ... high, both included; others do not count. `counts` has one bin
    more, for them. Bins are computed in the elements' own precision, or given as `places`."""
    start = like(x, low)
    end = like(x, high)
    width = end - start
    for i in range(n):
        v = x[i]
        inside = v >= start and v <= end
        at = (v - start) * like(x, bins) / width if places is None else places[i]
        counts[minimum(i64(at if inside else like(x, 0)), bins - 1) if inside else bins] += 1
