"""The middle of attention: softmax of scaled and masked scores, and its gradient."""

from __future__ import annotations

from ...core.dtype import bool_
from ..loops import exp, inf, like, log, loop_kernel, maximum, minimum, prange, scalar_function, simd


@scalar_function
def masked_score(scores, mask, scale, base, start, column_step, j):
    """Return a score after scaling and its mask: bool masks say which scores count, others are added."""
    value = scores[base + j] * scale
    if mask is not None:
        if mask.dtype is bool_:
            value = value if mask[start + j * column_step] else like(scores, -inf)
        else:
            value = value + mask[start + j * column_step]
    return value


@loop_kernel
def attention_weights(
    out, logs, scores, mask, scale, batch, heads, length, n, batch_step, head_step, row_step, column_step, first, log_step,
    *, causal,
):  # fmt: skip
    """out = softmax(scale * scores + mask) over rows of n; `causal` lets row i see columns 0 ... first + i. The mask may be broadcast: its
    steps are the distances of its elements. A row that sees nothing becomes zeros. If `scores` is None, `out` holds them. `logs`, unless
    None, receives the logarithms of the sums, `log_step` from one matrix to the next."""
    for row in prange(batch * heads * length, 4 * n):
        base = row * n
        i = row % length
        start = row // length // heads * batch_step + row // length % heads * head_step + i * row_step
        limit = minimum(first + i + 1, n) if causal else n
        top = like(out, -inf)
        for j in range(limit):
            top = maximum(
                top, masked_score(out if scores is None else scores, mask, scale, base, start, column_step, j)
            )
        if top == -inf:
            for j in simd(n):
                out[base + j] = 0
            if logs is not None:
                logs[row // length * log_step + i] = top
        else:
            total = like(out, 0)
            for j in range(limit):
                e = exp(masked_score(out if scores is None else scores, mask, scale, base, start, column_step, j) - top)
                total += e
                out[base + j] = e
            share = 1 / total
            for j in simd(limit):
                out[base + j] = out[base + j] * share
            for j in simd(limit, n):
                out[base + j] = 0
            if logs is not None:
                logs[row // length * log_step + i] = top + log(total)


@loop_kernel
def attention_slopes(scores, grad, logs, shares, scale, rows, length, n, first, step, *, causal):
    """Replace scores by weights, and the gradient of the weights by that of the scores: for rows whose sums have the logarithms `logs`, and
    whose gradients have the products `shares` with the results. Both are `step` apart from one matrix to the next."""
    for row in prange(rows, 4 * n):
        base = row * n
        at = row // length * step + row % length
        limit = minimum(first + row % length + 1, n) if causal else n
        top = logs[at]
        share = shares[at]
        for j in simd(limit):
            weight = exp(scores[base + j] * scale - top)
            scores[base + j] = weight
            grad[base + j] = (grad[base + j] - share) * weight * scale
        for j in simd(limit, n):
            scores[base + j] = 0
            grad[base + j] = 0


@loop_kernel
def attention_weights_backward(grad_scores, grad, weights, scale, rows, length, n, *, causal):
    """The gradient of the scores before scaling, from that of the weights."""
    for row in prange(rows, 3 * n):
        base = row * n
        limit = minimum(row % length + 1, n) if causal else n
        total = like(grad, 0)
        for j in range(limit):
            total += grad[base + j] * weights[base + j]
        for j in simd(limit):
            grad_scores[base + j] = (grad[base + j] - total) * weights[base + j] * scale
        for j in simd(limit, n):
            grad_scores[base + j] = 0
