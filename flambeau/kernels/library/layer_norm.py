"""Layer normalisation over the last elements of each row, forward and backward."""

from __future__ import annotations

from ..loops import like, loop_kernel, minimum, prange, rsqrt, scalar_function, simd
from .row_sums import row_squares, row_sum, weighted_moments


@scalar_function
def row_statistics(x, base, n, eps, kind):
    """Mean and 1 / standard deviation of n elements from `base` on, in the dtype of `kind`."""
    m = like(kind, row_sum(x, base, n)) / n
    # A second pass over the row: the difference of two large sums would lose the variance's digits.
    return m, rsqrt(like(kind, row_squares(x, base, n, m)) / n + eps)


@loop_kernel
def layer_norm(out, mean, rstd, x, weight, bias, rows, n, eps):
    """out = (x - mean) * rstd * weight + bias; weight and bias may be None, and so may `mean` and `rstd`, which are kept for backward."""
    for i in prange(rows, 4 * n):
        base = i * n
        m, r = row_statistics(x, base, n, eps, x)
        if mean is not None:
            mean[i] = m
            rstd[i] = r
        for j in simd(n):
            v = (x[base + j] - m) * r
            if weight is not None:
                v = v * weight[j]
            if bias is not None:
                v = v + bias[j]
            out[base + j] = v


@loop_kernel
def layer_norm_backward(grad_x, partial, grad, x, mean, rstd, weight, rows, n, chunks):
    """The gradient with respect to x (if grad_x is given) and, per chunk of rows, the sums that make the gradients of
    weight and bias: partial[chunk, 0, :] and partial[chunk, 1, :] (if partial is given)."""
    size = (rows + chunks - 1) // chunks
    for chunk in prange(chunks, 6 * size * n):
        if partial is not None:
            sums = chunk * 2 * n
            for j in simd(n):
                partial[sums + j] = 0
                partial[sums + n + j] = 0
        for i in range(chunk * size, minimum((chunk + 1) * size, rows)):
            base = i * n
            m = like(x, mean[i])
            r = like(x, rstd[i])
            if grad_x is not None:
                total, product = weighted_moments(grad, x, weight, base, n, m)
                moment = like(x, product) * r / n
                plain = like(x, total) / n
                for j in simd(n):
                    g = grad[base + j] if weight is None else grad[base + j] * weight[j]
                    grad_x[base + j] = (g - plain - (x[base + j] - m) * r * moment) * r
            if partial is not None:
                for j in simd(n):
                    g = grad[base + j]
                    partial[sums + j] += g * (x[base + j] - m) * r
                    partial[sums + n + j] += g


@loop_kernel
def add_pairs(grad_weight, grad_bias, partial, chunks, n):
    """Add up what layer_norm_backward found in its chunks; either result may be None."""
    for j in prange(n, 2 * chunks):
        moment = like(partial, 0)
        plain = like(partial, 0)
        for chunk in range(chunks):
            moment = moment + partial[chunk * 2 * n + j]
            plain = plain + partial[(chunk * 2 + 1) * n + j]
        if grad_weight is not None:
            grad_weight[j] = moment
        if grad_bias is not None:
            grad_bias[j] = plain
