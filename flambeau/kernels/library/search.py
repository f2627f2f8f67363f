"""Binary search in sorted rows, and groups of equal neighbours."""

from __future__ import annotations

from ..loops import i64, local, loop_kernel, minimum, prange, simd

LANES = 16  # values searched for at a time: branches on what each finds could not be predicted


@loop_kernel
def search_sorted(out, boundaries, values, order, count, n, per_row, *, right):
    """out[i] = how many boundaries of row i // per_row are below values[i] (or, if `right`, not above). `order` sorts
    the boundaries, or is None."""
    for block in prange((count + LANES - 1) // LANES, 30 * LANES):
        first = block * LANES
        base = local(i64, LANES)
        low = local(i64, LANES)
        wanted = local(values, LANES)
        for c in range(LANES):
            i = minimum(first + c, count - 1)
            base[c] = i // per_row * n
            low[c] = 0
            wanted[c] = values[i]
        left = n
        while left > 0:
            half = left // 2
            last = 1 if left == 1 else 0  # the last step looks at one boundary and may pass it
            for c in simd(LANES):
                place = low[c] + half - 1 + last
                b = boundaries[base[c] + (place if order is None else order[base[c] + place])]
                passed = b > wanted[c] if right else b >= wanted[c]
                low[c] = low[c] + (0 if passed else half + last)
            left = 0 if left == 1 else left - half
        for c in range(minimum(LANES, count - first)):
            out[first + c] = low[c]


@loop_kernel
def mark_groups(values, inverse, firsts, count, ordered, order, n):
    """Number the groups of equal neighbours of `ordered`: values[group] = its elements, firsts[group] = where it begins,
    inverse[order[i]] (or inverse[i] without `order`) = the group of element i, count[0] = how many there are. Every nan is
    a group. firsts and inverse may be None; values and firsts have room for n."""
    groups = 0
    before = ordered[0]
    for i in range(n):
        v = ordered[i]
        values[groups] = v  # of no consequence where no group begins: the next one writes there again
        if firsts is not None:
            firsts[groups] = i
        groups += 1 if i == 0 or v != before else 0
        before = v
        if inverse is not None:
            inverse[i if order is None else order[i]] = groups - 1
    count[0] = groups
