"""Attention in one pass: scores, softmax and the product with the values, block by block, without the score matrix.

Work is cut into blocks of `lanes` queries, which lie side by side in vector registers: scores are kept as (keys, lanes),
queries and results as (features, lanes). A block meets KEYS keys at a time and keeps a running maximum and sum of
exponentials (Milakov and Gimelshein; Dao et al.'s FlashAttention). The backward pass makes the weights again from `logs`, the
logarithm of each query's sum of exponentials.

Tensors are (batch, heads, rows, features) with steps between batches, heads and rows; features are adjacent. `group`
query heads share one head of keys and values.
"""

from __future__ import annotations

from ...core.dtype import bool_
from ..loops import (
    exp,
    fma,
    inf,
    like,
    local,
    log,
    loop_kernel,
    maximum,
    minimum,
    prange,
    scalar_function,
    simd,
    unroll,
)

KEYS = 64  # keys handled together
DEPTH = 4  # terms of a product added per pass over the accumulators, and rows handled together


@scalar_function
def add_rows_4(out, o, o_step, a, a0, a_row, a_term, b, b0, b_step, *, lanes, depth):
    """Four rows of add_product, `depth` terms each."""
    for i in simd(lanes):
        c0 = out[o + i]
        c1 = out[o + o_step + i]
        c2 = out[o + 2 * o_step + i]
        c3 = out[o + 3 * o_step + i]
        for t in unroll(depth):
            v = b[b0 + t * b_step + i]
            c0 = fma(a[a0 + t * a_term], v, c0)
            c1 = fma(a[a0 + a_row + t * a_term], v, c1)
            c2 = fma(a[a0 + 2 * a_row + t * a_term], v, c2)
            c3 = fma(a[a0 + 3 * a_row + t * a_term], v, c3)
        out[o + i] = c0
        out[o + o_step + i] = c1
        out[o + 2 * o_step + i] = c2
        out[o + 3 * o_step + i] = c3


@scalar_function
def add_product(out, o, o_step, a, a0, a_row, a_term, b, b0, b_step, rows, terms, *, lanes):
    """out[r, i] += sum over t of a[r, t] * b[t, i], for i < lanes; each operand starts at its offset."""
    whole = terms // DEPTH * DEPTH
    for r in range(0, rows // 4 * 4, 4):
        for t in range(0, whole, DEPTH):
            add_rows_4(
                out, o + r * o_step, o_step, a, a0 + r * a_row + t * a_term, a_row, a_term, b, b0 + t * b_step, b_step,
                lanes=lanes, depth=DEPTH,
            )  # fmt: skip
        for t in range(whole, terms):
            add_rows_4(
                out, o + r * o_step, o_step, a, a0 + r * a_row + t * a_term, a_row, a_term, b, b0 + t * b_step, b_step,
                lanes=lanes, depth=1,
            )  # fmt: skip
    for r in range(rows // 4 * 4, rows):
        for t in range(terms):
            factor = a[a0 + r * a_row + t * a_term]
            for i in simd(lanes):
                out[o + r * o_step + i] = fma(factor, b[b0 + t * b_step + i], out[o + r * o_step + i])


@scalar_function
def load_columns(out, x, start, step, count, features, factor, *, lanes):
    """out[f, i] = x[i, f] * factor for i < count, zero for the other lanes."""
    for f in range(features):
        for i in range(lanes):
            out[f * lanes + i] = x[start + i * step + f] * factor if i < count else like(x, 0)


@scalar_function
def scores_of(scores, qt, k, k0, k_row, keys, mask, m0, m_row, m_column, first, count, start, *, lanes, dim, causal):
    """scores[j, i] of a block of keys against the block of queries, with -inf where query i does not see key j."""
    for x in simd(keys * lanes):
        scores[x] = 0
    add_product(scores, 0, lanes, k, k0, k_row, 1, qt, 0, lanes, keys, dim, lanes=lanes)
    if mask is not None:
        for j in range(keys):
            for i in range(count):
                place = m0 + (first + i) * m_row + (start + j) * m_column
                if mask.dtype is bool_:
                    scores[j * lanes + i] = scores[j * lanes + i] if mask[place] else like(qt, -inf)
                else:
                    scores[j * lanes + i] = scores[j * lanes + i] + mask[place]
    if causal and start + keys > first + 1:
        for j in range(keys):
            for i in simd(lanes):
                scores[j * lanes + i] = scores[j * lanes + i] if start + j <= first + i else like(qt, -inf)


@loop_kernel
def flash_forward(
    out, logs, q, k, v, mask, batch, heads, group, length, source, scale,
    out_batch, out_head, out_row, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    m_batch, m_head, m_row, m_column, *, lanes, dim, value_dim, causal,
):  # fmt: skip
    blocks = (length + lanes - 1) // lanes
    for task in prange(batch * heads * blocks, lanes * source * (dim + value_dim) // 4):
        b = task // blocks // heads
        h = task // blocks % heads
        first = task % blocks * lanes
        count = minimum(lanes, length - first)
        qt = local(q, dim * lanes)
        result = local(q, value_dim * lanes)
        scores = local(q, KEYS * lanes)
        top = local(q, lanes)
        total = local(q, lanes)
        factor = local(q, lanes)
        load_columns(qt, q, b * q_batch + h * q_head + first * q_row, q_row, count, dim, scale, lanes=lanes)
        for x in simd(value_dim * lanes):
            result[x] = 0
        for i in simd(lanes):
            top[i] = -inf
            total[i] = 0
        seen = minimum(source, first + count) if causal else source
        for start in range(0, seen, KEYS):
            keys = minimum(KEYS, seen - start)
            scores_of(
                scores, qt, k, b * k_batch + h // group * k_head + start * k_row, k_row, keys, mask,
                b * m_batch + h * m_head, m_row, m_column, first, count, start, lanes=lanes, dim=dim, causal=causal,
            )  # fmt: skip
            for i in simd(lanes):
                factor[i] = top[i]
            for j in range(keys):
                for i in simd(lanes):
                    top[i] = maximum(top[i], scores[j * lanes + i])
            for i in simd(lanes):
                # A query that has seen nothing yet has a maximum of -inf, which must not meet itself.
                factor[i] = exp(factor[i] - top[i]) if top[i] != -inf else like(q, 0)
                total[i] = total[i] * factor[i]
            for j in range(keys):
                for i in simd(lanes):
                    e = exp(scores[j * lanes + i] - top[i]) if top[i] != -inf else like(q, 0)
                    scores[j * lanes + i] = e
                    total[i] = total[i] + e
            if start > 0:
                for f in range(value_dim):
                    for i in simd(lanes):
                        result[f * lanes + i] = result[f * lanes + i] * factor[i]
            add_product(
                result, 0, lanes, v, b * v_batch + h // group * v_head + start * v_row, 1, v_row, scores, 0, lanes,
                value_dim, keys, lanes=lanes,
            )  # fmt: skip
        for i in range(count):
            seen_any = total[i] != 0
            share = 1 / total[i] if seen_any else like(q, 0)
            place = b * out_batch + h * out_head + (first + i) * out_row
            for f in range(value_dim):
                out[place + f] = result[f * lanes + i] * share
            logs[(b * heads + h) * length + first + i] = top[i] + log(total[i]) if seen_any else like(q, 0)


@loop_kernel
def flash_backward(
    grad_q, grad_k, grad_v, grad, out, logs, q, k, v, mask, batch, heads, group, length, source, scale,
    gq_batch, gq_head, gq_row, gk_batch, gk_head, gk_row, gv_batch, gv_head, gv_row, g_batch, g_head, g_row,
    out_batch, out_head, out_row, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    m_batch, m_head, m_row, m_column, *, lanes, dim, value_dim, causal,
):  # fmt: skip
    """One head of keys and values, with all queries that see it, is one task: gradients of keys and values are sums."""
    shared = heads // group
    for task in prange(batch * shared, group * length * source * (dim + value_dim)):
        b = task // shared
        kv = task % shared
        qt = local(q, dim * lanes)
        gt = local(q, value_dim * lanes)
        grad_qt = local(q, dim * lanes)
        weights = local(q, KEYS * lanes)
        slopes = local(q, KEYS * lanes)
        offset = local(q, lanes)
        inner = local(q, lanes)
        for j in range(source):
            for f in simd(dim):
                grad_k[b * gk_batch + kv * gk_head + j * gk_row + f] = 0
            for f in simd(value_dim):
                grad_v[b * gv_batch + kv * gv_head + j * gv_row + f] = 0
        blocks = (length + lanes - 1) // lanes
        for turn in range(group * blocks):
            h = kv * group + turn // blocks
            first = turn % blocks * lanes
            count = minimum(lanes, length - first)
            q0 = b * q_batch + h * q_head + first * q_row
            g0 = b * g_batch + h * g_head + first * g_row
            load_columns(qt, q, q0, q_row, count, dim, scale, lanes=lanes)
            load_columns(gt, grad, g0, g_row, count, value_dim, 1.0, lanes=lanes)
            for i in range(lanes):
                offset[i] = 0
                inner[i] = 0
            for i in range(count):
                dot = like(q, 0)
                place = b * out_batch + h * out_head + (first + i) * out_row
                for f in range(value_dim):
                    dot += grad[g0 + i * g_row + f] * out[place + f]
                inner[i] = dot
                offset[i] = logs[(b * heads + h) * length + first + i]
            for x in simd(dim * lanes):
                grad_qt[x] = 0
            seen = minimum(source, first + count) if causal else source
            for start in range(0, seen, KEYS):
                keys = minimum(KEYS, seen - start)
                k0 = b * k_batch + kv * k_head + start * k_row
                v0 = b * v_batch + kv * v_head + start * v_row
                scores_of(
                    weights, qt, k, k0, k_row, keys, mask, b * m_batch + h * m_head, m_row, m_column, first, count,
                    start, lanes=lanes, dim=dim, causal=causal,
                )  # fmt: skip
                for x in simd(keys * lanes):
                    slopes[x] = 0
                add_product(slopes, 0, lanes, v, v0, v_row, 1, gt, 0, lanes, keys, value_dim, lanes=lanes)
                for j in range(keys):
                    for i in simd(lanes):
                        w = exp(weights[j * lanes + i] - offset[i]) if i < count else like(q, 0)
                        weights[j * lanes + i] = w
                        slopes[j * lanes + i] = w * (slopes[j * lanes + i] - inner[i]) * scale
                add_product(grad_qt, 0, lanes, k, k0, 1, k_row, slopes, 0, lanes, dim, keys, lanes=lanes)
                add_product(
                    grad_v, b * gv_batch + kv * gv_head + start * gv_row, gv_row, weights, 0, lanes, 1, grad, g0, g_row,
                    keys, count, lanes=value_dim,
                )  # fmt: skip
                add_product(
                    grad_k, b * gk_batch + kv * gk_head + start * gk_row, gk_row, slopes, 0, lanes, 1, q, q0, q_row, keys,
                    count, lanes=dim,
                )  # fmt: skip
            for i in range(count):
                place = b * gq_batch + h * gq_head + (first + i) * gq_row
                for f in range(dim):
                    grad_q[place + f] = grad_qt[f * lanes + i]
