"""Batch normalisation, forward and backward. Statistics are per channel, in `mean` and `rstd` (float32 for half-width data);
weight, bias and the running statistics may be None.

`*_planes` kernels read x as (batch, channels, space), `*_columns` as (rows, channels), channels last. The latter work on chunks of rows,
whose results are in `partial` (chunks, 2, channels), and need `factors`, a few numbers per channel.
"""

from __future__ import annotations

from ..loops import f64, like, loop_kernel, minimum, prange, rsqrt, scalar_function, simd
from .row_sums import row_moments, row_squares, row_sum


@scalar_function
def remember(running_mean, running_var, c, m, variance, count, momentum):
    """Move the running statistics towards those of this batch; the variance is the unbiased one."""
    if running_mean is not None:
        running_mean[c] = running_mean[c] * (1 - momentum) + m * momentum
    if running_var is not None:
        unbiased = variance * count / (count - 1) if count > 1 else variance
        running_var[c] = running_var[c] * (1 - momentum) + unbiased * momentum


@loop_kernel
def normalise_planes(
    out, mean, rstd, x, weight, bias, running_mean, running_var, batch, channels, space, momentum, eps
):  # fmt: skip
    """out = (x - mean) * rstd * weight + bias by the statistics of x itself."""
    count = batch * space
    for c in prange(channels, 4 * batch * space):
        total = f64(0)
        for b in range(batch):
            total = total + row_sum(x, (b * channels + c) * space, space)
        exact = total / count
        m = like(x, exact)
        squares = f64(0)
        for b in range(batch):
            squares = squares + row_squares(x, (b * channels + c) * space, space, m)
        variance = squares / count
        r = like(x, rsqrt(variance + eps))
        mean[c] = m
        rstd[c] = r
        remember(running_mean, running_var, c, exact, variance, count, momentum)
        scale = r if weight is None else r * weight[c]
        shift = -m * scale
        if bias is not None:
            shift = shift + bias[c]
        for b in range(batch):
            base = (b * channels + c) * space
            for s in simd(space):
                out[base + s] = x[base + s] * scale + shift


@loop_kernel
def apply_planes(out, rstd, x, mean, var, weight, bias, batch, channels, space, eps):
    """out = (x - mean) / sqrt(var + eps) * weight + bias by given statistics; keeps rstd."""
    for row in prange(batch * channels, space):
        c = row % channels
        r = rsqrt(like(x, var[c]) + eps)
        if row < channels:
            rstd[c] = r
        scale = r if weight is None else r * weight[c]
        shift = -like(x, mean[c]) * scale
        if bias is not None:
            shift = shift + bias[c]
        for s in simd(space):
            out[row * space + s] = x[row * space + s] * scale + shift


@loop_kernel
def backward_planes(grad_x, grad_weight, grad_bias, grad, x, mean, rstd, weight, batch, channels, space, *, training):
    """The gradients with respect to x (if grad_x is given), weight and bias; in evaluation the statistics are constants."""
    count = batch * space
    for c in prange(channels, 6 * batch * space):
        m = like(x, mean[c])
        r = like(x, rstd[c])
        plain = f64(0)
        moment = f64(0)
        for b in range(batch):
            p, q = row_moments(grad, x, (b * channels + c) * space, space, m)
            plain = plain + p
            moment = moment + q
        grad_bias[c] = plain
        grad_weight[c] = moment * r
        if grad_x is not None:
            scale = r if weight is None else r * weight[c]
            average = like(x, plain / count)
            slope = like(x, moment / count) * r * r
            for b in range(batch):
                base = (b * channels + c) * space
                for s in simd(space):
                    if training:
                        grad_x[base + s] = (grad[base + s] - average - (x[base + s] - m) * slope) * scale
                    else:
                        grad_x[base + s] = grad[base + s] * scale


@loop_kernel
def normalise_columns(
    out, mean, rstd, partial, factors, x, weight, bias, running_mean, running_var, rows, channels, chunks, momentum, eps
):  # fmt: skip
    """Compute `normalise_planes` for channels-last data."""
    size = (rows + chunks - 1) // chunks
    for chunk in prange(chunks, 3 * size * channels):
        first = chunk * size
        last = minimum(first + size, rows)
        sums = chunk * 2 * channels
        for c in simd(2 * channels):
            partial[sums + c] = 0
        even = first + (last - first) // 4 * 4  # rows go four at a time, so that sums are stored less often
        for i in range(first, even, 4):
            base = i * channels
            for c in simd(channels):
                pair = x[base + c] + x[base + channels + c]
                other = x[base + 2 * channels + c] + x[base + 3 * channels + c]
                partial[sums + c] = partial[sums + c] + (pair + other)
        for i in range(even, last):
            for c in simd(channels):
                partial[sums + c] = partial[sums + c] + x[i * channels + c]
        for c in simd(channels):
            partial[sums + c] = partial[sums + c] / (last - first)
        for i in range(first, even, 4):
            base = i * channels
            for c in simd(channels):
                m = partial[sums + c]
                d0 = x[base + c] - m
                d1 = x[base + channels + c] - m
                d2 = x[base + 2 * channels + c] - m
                d3 = x[base + 3 * channels + c] - m
                squares = (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
                partial[sums + channels + c] = partial[sums + channels + c] + squares
        for i in range(even, last):
            for c in simd(channels):
                d = x[i * channels + c] - partial[sums + c]
                partial[sums + channels + c] = partial[sums + channels + c] + d * d
    for c in prange(channels, 8 * chunks):
        m = f64(0)
        squares = f64(0)
        for chunk in range(chunks):  # two sets of numbers joined: their means, and how far these lie apart
            before = chunk * size
            more = minimum(size, rows - before)
            apart = partial[chunk * 2 * channels + c] - m
            m = m + apart * more / (before + more)
            squares = (
                squares + partial[(chunk * 2 + 1) * channels + c] + apart * apart * before * more / (before + more)
            )
        variance = squares / rows
        r = like(mean, rsqrt(variance + eps))
        mean[c] = m
        rstd[c] = r
        remember(running_mean, running_var, c, m, variance, rows, momentum)
        scale = r if weight is None else r * weight[c]
        factors[c] = scale
        shift = -like(mean, m) * scale
        factors[channels + c] = shift if bias is None else shift + bias[c]
    for i in prange(rows, channels):
        for c in simd(channels):
            out[i * channels + c] = x[i * channels + c] * factors[c] + factors[channels + c]


@loop_kernel
def apply_columns(out, rstd, factors, x, mean, var, weight, bias, rows, channels, eps):
    """Compute `apply_planes` for channels-last data."""
    for c in range(channels):
        r = rsqrt(like(rstd, var[c]) + eps)
        rstd[c] = r
        scale = r if weight is None else r * weight[c]
        factors[c] = scale
        shift = -like(rstd, mean[c]) * scale
        factors[channels + c] = shift if bias is None else shift + bias[c]
    for i in prange(rows, channels):
        for c in simd(channels):
            out[i * channels + c] = x[i * channels + c] * factors[c] + factors[channels + c]


@loop_kernel
def backward_columns(
    grad_x, grad_weight, grad_bias, partial, factors, grad, x, mean, rstd, weight, rows, channels, chunks, *, training
):  # fmt: skip
    """Compute `backward_planes` for channels-last data."""
    size = (rows + chunks - 1) // chunks
    for chunk in prange(chunks, 3 * size * channels):
        sums = chunk * 2 * channels
        for c in simd(2 * channels):
            partial[sums + c] = 0
        first = chunk * size
        last = minimum(first + size, rows)
        even = first + (last - first) // 4 * 4
        for i in range(first, even, 4):
            base = i * channels
            for c in simd(channels):
                m = mean[c]
                g0 = grad[base + c]
                g1 = grad[base + channels + c]
                g2 = grad[base + 2 * channels + c]
                g3 = grad[base + 3 * channels + c]
                partial[sums + c] = partial[sums + c] + ((g0 + g1) + (g2 + g3))
                pair = g0 * (x[base + c] - m) + g1 * (x[base + channels + c] - m)
                other = g2 * (x[base + 2 * channels + c] - m) + g3 * (x[base + 3 * channels + c] - m)
                partial[sums + channels + c] = partial[sums + channels + c] + (pair + other)
        for i in range(even, last):
            for c in simd(channels):
                g = grad[i * channels + c]
                partial[sums + c] = partial[sums + c] + g
                partial[sums + channels + c] = partial[sums + channels + c] + g * (x[i * channels + c] - mean[c])
    for c in prange(channels, 4 * chunks):
        plain = f64(0)
        moment = f64(0)
        for chunk in range(chunks):
            plain = plain + partial[chunk * 2 * channels + c]
            moment = moment + partial[(chunk * 2 + 1) * channels + c]
        m = like(mean, mean[c])
        r = like(mean, rstd[c])
        grad_bias[c] = plain
        grad_weight[c] = moment * r
        scale = r if weight is None else r * weight[c]
        slope = like(mean, moment / rows) * r * r
        factors[c] = scale
        factors[channels + c] = -slope * scale
        factors[2 * channels + c] = (m * slope - like(mean, plain / rows)) * scale
    if grad_x is not None:
        for i in prange(rows, 2 * channels):
            for c in simd(channels):
                at = i * channels + c
                if training:
                    grad_x[at] = grad[at] * factors[c] + x[at] * factors[channels + c] + factors[2 * channels + c]
                else:
                    grad_x[at] = grad[at] * factors[c]
