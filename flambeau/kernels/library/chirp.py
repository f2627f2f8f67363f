"""Fourier transforms of any length as convolutions (Bluestein): jk = (j^2 + k^2 - (k - j)^2) / 2, so lines are multiplied by a
chirp, convolved with one by transforms of a handier length, and multiplied again.

Complex numbers are pairs of real ones, lines as in `fourier`."""

from __future__ import annotations

from ..loops import loop_kernel, prange, simd


@loop_kernel
def chirp_lines(out, x, lines, chirp, count, n, padded, step, *, inverse):
    """out, rows of `padded` complex numbers, = lines of n times the chirp, then zeros. The inverse transform exchanges real and
    imaginary parts here and in unchirp_lines."""
    for line in prange(count, 8 * padded):
        start = lines[line]
        base = line * padded
        for j in range(n):
            here = 2 * (start + j * step)
            re, im = x[here + (1 if inverse else 0)], x[here + (0 if inverse else 1)]
            cr, ci = chirp[2 * j], chirp[2 * j + 1]
            out[2 * (base + j)] = re * cr - im * ci
            out[2 * (base + j) + 1] = re * ci + im * cr
        for j in simd(2 * (base + n), 2 * (base + padded)):
            out[j] = 0


@loop_kernel
def multiply_lines(x, factors, count, n):
    """Multiply every row of n complex numbers by `factors`."""
    for line in prange(count, 6 * n):
        base = 2 * line * n
        for j in simd(n):
            re, im, fr, fi = x[base + 2 * j], x[base + 2 * j + 1], factors[2 * j], factors[2 * j + 1]
            x[base + 2 * j] = re * fr - im * fi
            x[base + 2 * j + 1] = re * fi + im * fr


@loop_kernel
def unchirp_lines(out, x, lines, chirp, count, n, padded, step, scale, *, inverse):
    """Lines of n = the beginnings of rows of `padded`, times the chirp and the scale."""
    for line in prange(count, 8 * n):
        start = lines[line]
        base = line * padded
        for j in range(n):
            re, im = x[2 * (base + j)] * scale, x[2 * (base + j) + 1] * scale
            cr, ci = chirp[2 * j], chirp[2 * j + 1]
            here = 2 * (start + j * step)
            out[here + (1 if inverse else 0)] = re * cr - im * ci
            out[here + (0 if inverse else 1)] = re * ci + im * cr
