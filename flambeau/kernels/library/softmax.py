"""softmax and log_softmax, forward and backward."""

from __future__ import annotations

from ...core.dtype import bfloat16, float16
from ..loops import exp, inf, like, local, log, loop_kernel, maximum, minimum, prange, simd

BLOCK = 64  # columns handled together when the reduced dimension is not the last


@loop_kernel
def softmax_rows(out, x, rows, n, *, log_result=False, on_host=True):
    """out = softmax(x) of every row, or its logarithm. A row of -inf gives nan, as in PyTorch."""
    for i in prange(rows, 4 * n):
        base = i * n
        top = like(x, -inf)
        for j in range(n):
            top = maximum(top, x[base + j])
        total = like(x, 0)
        if log_result:
            for j in range(n):
                total += exp(x[base + j] - top)
            shift = log(total)
            for j in simd(n):
                out[base + j] = x[base + j] - top - shift
        elif not on_host or out.dtype is bfloat16 or out.dtype is float16:  # stored twice, it would be rounded twice
            for j in range(n):
                total += exp(x[base + j] - top)
            scale = 1 / total
            for j in simd(n):
                out[base + j] = exp(x[base + j] - top) * scale
        else:
            for j in range(n):
                e = exp(x[base + j] - top)
                total += e
                out[base + j] = e
            scale = 1 / total
            for j in simd(n):
                out[base + j] = out[base + j] * scale


@loop_kernel
def softmax_backward_rows(grad_in, grad, y, rows, n, *, log_result=False):
    """The gradient of softmax_rows, from the gradient of its result `y`."""
    for i in prange(rows, 3 * n):
        base = i * n
        total = like(grad, 0)
        if log_result:
            for j in range(n):
                total += grad[base + j]
            for j in simd(n):
                grad_in[base + j] = grad[base + j] - exp(y[base + j]) * total
        else:
            for j in range(n):
                total += grad[base + j] * y[base + j]
            for j in simd(n):
                grad_in[base + j] = (grad[base + j] - total) * y[base + j]


@loop_kernel
def softmax_columns(out, x, outer, n, inner, *, log_result=False, on_host=True):
    """softmax along a dimension that is not the last: BLOCK neighbouring columns at a time, so that memory is read in order."""
    blocks = (inner + BLOCK - 1) // BLOCK
    narrow = not on_host or out.dtype is bfloat16 or out.dtype is float16
    for task in prange(outer * blocks, 4 * n * BLOCK):
        first = task % blocks * BLOCK
        width = minimum(BLOCK, inner - first)
        base = task // blocks * n * inner + first
        top = local(x, BLOCK)
        total = local(x, BLOCK)
        for c in range(width):
            top[c] = -inf
            total[c] = 0
        for k in range(n):
            for c in simd(width):
                top[c] = maximum(top[c], x[base + k * inner + c])
        for k in range(n):
            row = base + k * inner
            for c in simd(width):
                e = exp(x[row + c] - top[c])
                total[c] = total[c] + e
                if not log_result and not narrow:
                    out[row + c] = e
        for c in range(width):
            total[c] = log(total[c]) if log_result else 1 / total[c]
        for k in range(n):
            row = base + k * inner
            for c in simd(width):
                if log_result:
                    out[row + c] = x[row + c] - top[c] - total[c]
                elif narrow:
                    out[row + c] = exp(x[row + c] - top[c]) * total[c]
                else:
                    out[row + c] = out[row + c] * total[c]


@loop_kernel
def softmax_backward_columns(grad_in, grad, y, outer, n, inner, *, log_result=False):
    blocks = (inner + BLOCK - 1) // BLOCK
    for task in prange(outer * blocks, 3 * n * BLOCK):
        first = task % blocks * BLOCK
        width = minimum(BLOCK, inner - first)
        base = task // blocks * n * inner + first
        total = local(grad, BLOCK)
        for c in range(width):
            total[c] = 0
        for k in range(n):
            row = base + k * inner
            for c in simd(width):
                total[c] = total[c] + (grad[row + c] if log_result else grad[row + c] * y[row + c])
        for k in range(n):
            row = base + k * inner
            for c in simd(width):
                if log_result:
                    grad_in[row + c] = grad[row + c] - exp(y[row + c]) * total[c]
                else:
                    grad_in[row + c] = (grad[row + c] - total[c]) * y[row + c]
