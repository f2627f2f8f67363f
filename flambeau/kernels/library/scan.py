"""Running sums, products and extremes along one dimension of (outer, n, inner)."""

from __future__ import annotations

from ...core.dtype import float32
from ..loops import (
    exp,
    f64,
    inf,
    isnan,
    like,
    local,
    log1p,
    loop_kernel,
    maximum,
    minimum,
    prange,
    scalar_function,
    simd,
)

BLOCK = 64


@scalar_function
def log_add_exp(a, b):
    """log(exp(a) + exp(b)) without overflow."""
    if isnan(a) or isnan(b):
        return a + b
    low, high = minimum(a, b), maximum(a, b)
    if low == high and (high == inf or high == -inf):
        return high
    return high + log1p(exp(low - high))


@scalar_function
def advance(running, v, *, op):
    if op == "prod":
        return running * v
    if op == "logsumexp":
        return log_add_exp(running, v)
    return running + v


@loop_kernel
def cumulate(out, x, outer, n, inner, *, op):
    """op: "sum", "prod" or "logsumexp". float32 accumulates in float64, as PyTorch does."""
    kind = f64 if x.dtype is float32 else out
    start = 1 if op == "prod" else -inf if op == "logsumexp" else 0
    if inner == 1:
        for line in prange(outer, 2 * n):
            single = like(kind, start)
            for k in range(n):
                single = advance(single, x[line * n + k], op=op)
                out[line * n + k] = like(out, single)
    else:  # BLOCK neighbouring lines at a time, so that memory is read in order
        blocks = (inner + BLOCK - 1) // BLOCK
        for task in prange(outer * blocks, 2 * n * BLOCK):
            first = task % blocks * BLOCK
            width = minimum(BLOCK, inner - first)
            base = task // blocks * n * inner + first
            running = local(kind, BLOCK)
            for c in range(width):
                running[c] = start
            for k in range(n):
                for c in simd(width):
                    v = advance(running[c], x[base + k * inner + c], op=op)
                    running[c] = v
                    out[base + k * inner + c] = like(out, v)


@loop_kernel
def cumulate_extreme(values, indices, x, outer, n, inner, *, largest):
    """cummax / cummin with the index of the latest extreme; nan wins and stays."""
    for line in prange(outer * inner, 2 * n):
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
