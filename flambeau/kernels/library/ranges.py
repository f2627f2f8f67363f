"""Arithmetic sequences with PyTorch's rounding."""

from __future__ import annotations

from ..loops import f64, fma, like, loop_kernel, maximum, minimum, prange, simd

BLOCK = 1024


@loop_kernel
def counted(out, start, step, n, lanes):
    """start + i * step in float64; whole pairs of vectors are counted from a base rounded to the output's dtype."""
    paired = n // (2 * lanes) * 2 * lanes
    for vector in prange((n + lanes - 1) // lanes, lanes):
        first = vector * lanes
        if first < paired:
            base = f64(like(out, fma(step, f64(first), start)))
            for j in simd(lanes):
                out[first + j] = fma(step, f64(j), base)
        else:
            for i in range(first, minimum(first + lanes, n)):
                out[i] = fma(step, f64(i), start)


@loop_kernel
def whole_steps(out, start, step, n):
    """start + i * step in integers."""
    for block in prange((n + BLOCK - 1) // BLOCK, BLOCK):
        for i in simd(block * BLOCK, minimum(block * BLOCK + BLOCK, n)):
            out[i] = start + i * step


@loop_kernel
def between(out, start, end, step, n):
    """n numbers from start to end, each counted from the nearer end with one rounding."""
    half = n // 2
    for block in prange((n + BLOCK - 1) // BLOCK, BLOCK):
        first = block * BLOCK
        last = minimum(first + BLOCK, n)
        middle = minimum(maximum(first, half), last)
        for i in simd(first, middle):
            out[i] = fma(like(out, step), like(out, i), like(out, start))
        for i in simd(middle, last):
            out[i] = fma(like(out, -step), like(out, n - 1 - i), like(out, end))
