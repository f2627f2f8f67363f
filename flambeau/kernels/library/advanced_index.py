"""Reading and writing at lists of positions: the kernels behind x[i, j, mask] and x[...] = v.

Positions come as offsets into memory, already checked by the caller: element (b, p, a) of the result lies at
before[b] + picked[p] + after[a].
"""

from __future__ import annotations

from ..loops import loop_kernel, prange, simd


@loop_kernel
def take_positions(out, x, before, picked, after, blocks, count, inner, *, dense=True):
    """out[b, p, a] = x[before[b] + picked[p] + after[a]]; `dense`: after[a] == a."""
    for row in prange(blocks * count, inner):
        start = before[row // count] + picked[row % count]
        if dense:
            for a in simd(inner):
                out[row * inner + a] = x[start + a]
        else:
            for a in simd(inner):
                out[row * inner + a] = x[start + after[a]]


@loop_kernel
def put_positions(x, values, before, picked, after, blocks, count, inner, *, accumulate=False):
    """x[before[b] + picked[p] + after[a]] = or += values[b, p, a]; a position named twice is written in order."""
    for b in prange(blocks, count * inner):
        for p in range(count):
            start = before[b] + picked[p]
            row = (b * count + p) * inner
            for a in range(inner):
                if accumulate:
                    x[start + after[a]] += values[row + a]
                else:
                    x[start + after[a]] = values[row + a]
