"""Binary search in sorted rows, and groups of equal neighbours."""

from __future__ import annotations

from ..loops import loop_kernel, prange


@loop_kernel
def search_sorted(out, boundaries, values, order, count, n, per_row, *, right):
    """out[i] = how many boundaries of row i // per_row are below values[i] (or, if `right`, not above). `order` sorts
    the boundaries, or is None."""
    for i in prange(count, 30):
        base = i // per_row * n
        v = values[i]
        low = 0
        high = n
        while low < high:
            middle = (low + high) // 2
            place = base + (middle if order is None else order[base + middle])
            b = boundaries[place]
            passed = b > v if right else b >= v
            if passed:
                high = middle
            else:
                low = middle + 1
        out[i] = low


@loop_kernel
def mark_groups(inverse, firsts, count, ordered, order, n):
    """Number the groups of equal neighbours of `ordered`: firsts[group] = where it begins, inverse[order[i]] (or
    inverse[i] without `order`) = the group of element i, count[0] = how many there are. Every nan is a group."""
    group = -1
    for i in range(n):
        fresh = True
        if i > 0:
            fresh = ordered[i] != ordered[i - 1]
        if fresh:
            group += 1
            firsts[group] = i
        if order is not None:
            inverse[order[i]] = group
        else:
            inverse[i] = group
    count[0] = group + 1
