"""Running sums, products and extremes along one dimension of (outer, n, inner)."""

from __future__ import annotations

from ...core.dtype import float32
from ..loops import exp, f64, inf, isnan, like, log1p, loop_kernel, maximum, minimum, prange, scalar_function


@scalar_function
def log_add_exp(a, b):
    """log(exp(a) + exp(b)) without overflow."""
    if isnan(a) or isnan(b):
        return a + b
    low, high = minimum(a, b), maximum(a, b)
    if low == high and (high == inf or high == -inf):
        return high
    return high + log1p(exp(low - high))


@loop_kernel
def cumulate(out, x, outer, n, inner, *, op):
    """op: "sum", "prod" or "logsumexp". float32 accumulates in float64, as PyTorch does."""
    for line in prange(outer * inner, n):
        base = line // inner * n * inner + line % inner
        running = like(f64 if x.dtype is float32 else out, 1 if op == "prod" else -inf if op == "logsumexp" else 0)
        for k in range(n):
            v = x[base + k * inner]
            if op == "prod":
                running = running * v
            elif op == "logsumexp":
                running = log_add_exp(running, v)
            else:
                running = running + v
            out[base + k * inner] = like(out, running)


@loop_kernel
def cumulate_extreme(values, indices, x, outer, n, inner, *, largest):
    """cummax / cummin with the index of the latest extreme; nan wins and stays."""
    for line in prange(outer * inner, n):
        base = line // inner * n * inner + line % inner
        if n > 0:
            best = x[base]
            where_best = 0
            for k in range(n):
                v = x[base + k * inner]
                better = v >= best if largest else v <= best
                if isnan(v) or (better and not isnan(best)):
                    best = v
                    where_best = k
                values[base + k * inner] = best
                indices[base + k * inner] = where_best
