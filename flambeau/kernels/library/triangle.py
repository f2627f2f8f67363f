"""Upper and lower triangles of contiguous matrices."""

from __future__ import annotations

from ..loops import like, loop_kernel, maximum, minimum, prange, simd


@loop_kernel
def triangle(out, x, total, rows, columns, diagonal, *, upper):
    """out is x on one side of the diagonal and zero on the other; `total` counts the rows of all matrices."""
    for row in prange(total, columns):
        base = row * columns
        cut = row % rows + diagonal
        if upper:
            cut = minimum(maximum(cut, 0), columns)
            for j in simd(0, cut):
                out[base + j] = like(out, 0)
            for j in simd(cut, columns):
                out[base + j] = x[base + j]
        else:
            cut = minimum(maximum(cut + 1, 0), columns)
            for j in simd(0, cut):
                out[base + j] = x[base + j]
            for j in simd(cut, columns):
                out[base + j] = like(out, 0)
