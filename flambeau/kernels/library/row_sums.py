"""Sums over a long row: float32 is summed in blocks, and the blocks are added in float64, so that millions of elements lose no digits."""

from __future__ import annotations

from ..loops import f64, like, minimum, scalar_function

BLOCK = 8192


@scalar_function
def row_sum(x, base, n):
    """The sum of n elements from `base` on, in float64."""
    total = f64(0)
    for block in range((n + BLOCK - 1) // BLOCK):
        part = like(x, 0)
        start = base + block * BLOCK
        for j in range(minimum(BLOCK, n - block * BLOCK)):
            part += x[start + j]
        total = total + part
    return total


@scalar_function
def row_squares(x, base, n, mean):
    """Compute the sum of (x - mean) ** 2 for each row."""
    total = f64(0)
    for block in range((n + BLOCK - 1) // BLOCK):
        part = like(x, 0)
        start = base + block * BLOCK
        for j in range(minimum(BLOCK, n - block * BLOCK)):
            d = x[start + j] - mean
            part += d * d
        total = total + part
    return total


@scalar_function
def row_moments(grad, x, base, n, mean):
    """The sums of grad and of grad * (x - mean)."""
    plain = f64(0)
    moment = f64(0)
    for block in range((n + BLOCK - 1) // BLOCK):
        p = like(x, 0)
        q = like(x, 0)
        start = base + block * BLOCK
        for j in range(minimum(BLOCK, n - block * BLOCK)):
            g = grad[start + j]
            p += g
            q += g * (x[start + j] - mean)
        plain = plain + p
        moment = moment + q
    return plain, moment


@scalar_function
def weighted_moments(grad, x, weight, base, n, mean):
    """row_moments of grad * weight, where the weights (or None) go along the row."""
    plain = f64(0)
    moment = f64(0)
    for block in range((n + BLOCK - 1) // BLOCK):
        p = like(x, 0)
        q = like(x, 0)
        first = block * BLOCK
        start = base + first
        for j in range(minimum(BLOCK, n - first)):
            g = grad[start + j] if weight is None else grad[start + j] * weight[first + j]
            p += g
            q += g * (x[start + j] - mean)
        plain = plain + p
        moment = moment + q
    return plain, moment
