"""Running sums, products and extremes along one dimension of (outer, n, inner)."""

from __future__ import annotations

from ...core.dtype import complex64, float32
from ..loops import (
    atan2,
    c128,
    exp,
    f64,
    imag,
    inf,
    isnan,
    like,
    local,
    log1p,
    loop_kernel,
    maximum,
    minimum,
    prange,
    real,
    scalar_function,
    simd,
    unroll,
)

BLOCK = 64
LINES = 4


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
def complex_log_add_exp(total, v):
    """Return log(exp(total) + exp(v)) of complex numbers. It keeps the phase of the larger term, so the imaginary part may leave (-pi, pi]."""
    swap = real(v) > real(total)
    high, low = v if swap else total, total if swap else v
    if real(low) == -inf:
        return high
    z = exp(low - high)
    x, y = real(z), imag(z)
    return high + (0.5 * log1p(x * (2 + x) + y * y) + 1j * atan2(y, 1 + x))


@scalar_function
def advance(running, v, *, op):
    if op == "prod":
        return running * v
    if op == "logsumexp":
        return log_add_exp(running, v)
    if op == "complex logsumexp":
        return complex_log_add_exp(running, v)
    return running + v


@loop_kernel
def cumulate(out, x, outer, n, inner, *, op, reverse=False):
    """Compute running results along a dimension; op: "sum", "prod", "logsumexp" or "complex logsumexp", from the end if `reverse`. float32
    accumulates in float64, complex64 in complex128, as in PyTorch."""
    kind = f64 if x.dtype is float32 else c128 if x.dtype is complex64 else out
    start = 1 if op == "prod" else 0 if op == "sum" else -inf
    if inner == 1:
        # LINES at a time: each step of one line has to wait for the one before.
        for group in prange((outer + LINES - 1) // LINES, 2 * LINES * n):
            base = group * LINES * n
            if (group + 1) * LINES <= outer:
                totals = local(kind, LINES)
                for c in unroll(LINES):
                    totals[c] = start
                for step in range(n):
                    k = base + (n - 1 - step if reverse else step)
                    for c in unroll(LINES):
                        v = advance(totals[c], x[k + c * n], op=op)
                        totals[c] = v
                        out[k + c * n] = like(out, v)
            else:
                for line in range(group * LINES, outer):
                    single = like(kind, start)
                    for step in range(n):
                        k = line * n + (n - 1 - step if reverse else step)
                        single = advance(single, x[k], op=op)
                        out[k] = like(out, single)
    else:  # BLOCK neighbouring lines at a time, so that memory is read in order
        blocks = (inner + BLOCK - 1) // BLOCK
        for task in prange(outer * blocks, 2 * n * BLOCK):
            first = task % blocks * BLOCK
            width = minimum(BLOCK, inner - first)
            base = task // blocks * n * inner + first
            running = local(kind, BLOCK)
            for c in range(width):
                running[c] = start
            for step in range(n):
                row = base + (n - 1 - step if reverse else step) * inner
                for c in simd(width):
                    v = advance(running[c], x[row + c], op=op)
                    running[c] = v
                    out[row + c] = like(out, v)


@loop_kernel
def cumprod_backward(grad_in, grad, y, x, outer, n, inner):
    """The gradient of a running product `y` of `x`. From the first zero on, y is zero: elements before it get
    sum(grad * y) / x over what follows them, the zero itself the products without it, and later ones nothing."""
    kind = f64 if x.dtype is float32 else x
    for line in prange(outer * inner, 4 * n):
        base = line // inner * n * inner + line % inner
        first = n
        for k in range(n):
            if x[base + k * inner] == 0 and first == n:
                first = k
        total = like(kind, 0)
        for step in range(n):
            k = n - 1 - step
            place = base + k * inner
            if k > first:
                grad_in[place] = 0
            elif k < first:
                total = total + like(kind, grad[place]) * y[place]
                grad_in[place] = total / x[place]
        if first < n:
            product = like(kind, 1)
            if first > 0:
                product = like(kind, y[base + (first - 1) * inner])
            total = like(kind, 0)
            for k in range(first, n):
                if k > first:
                    product = product * x[base + k * inner]
                total = total + product * grad[base + k * inner]
            grad_in[base + first * inner] = total


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
                # Written with "not" so that nan passes the first test; the second keeps the nan that is already there.
                worse = v < best if largest else v > best
                if not worse:  # noqa: SIM102 - one branch, rarely taken
                    if isnan(v) or not isnan(best):
                        best = v
                        where_best = k
                values[base + k * inner] = best
                indices[base + k * inner] = where_best
