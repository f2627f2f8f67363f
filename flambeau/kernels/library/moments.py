"""Mean and variance."""

from __future__ import annotations

from ...core.dtype import float32
from ..loops import f64, like, loop_kernel, nan, prange


@loop_kernel
def var_mean_rows(var, mean, x, rows, n, correction):
    """Variance with divisor max(0, n - correction) and mean of every row; `mean` may be None. Sums are in float64 for
    float32 rows, so that long rows keep their digits."""
    for i in prange(rows, 2 * n):
        base = i * n
        total = like(f64 if x.dtype is float32 else x, 0)
        for j in range(n):
            total += x[base + j]
        m = total / n
        squares = like(f64 if x.dtype is float32 else x, 0)
        for j in range(n):
            d = x[base + j] - m
            squares += d * d
        divisor = max(n - correction, 0.0)
        var[i] = squares / divisor if n > 0 else nan
        if mean is not None:
            mean[i] = m


@loop_kernel
def welford_columns(var, mean, x, rows, n, correction):
    """Variance and mean of every column of x (rows, n) in one pass over memory."""
    for block in prange((n + 63) // 64, 64 * rows):
        for j in range(block * 64, min(block * 64 + 64, n)):
            mean[j] = 0
            var[j] = 0
        for i in range(rows):
            share = 1 / (i + 1)
            for j in range(block * 64, min(block * 64 + 64, n)):
                v = x[i * n + j]
                before = mean[j]
                after = before + (v - before) * share
                var[j] = var[j] + (v - before) * (v - after)
                mean[j] = after
        for j in range(block * 64, min(block * 64 + 64, n)):
            var[j] = var[j] / max(rows - correction, 0.0)
