"""Attention in one pass: scores, softmax and the product with the values, block by block, without the score matrix.

Work is cut into blocks of `lanes` queries, which are side by side in vector registers: scores are kept as (keys, lanes), queries as
(features, lanes), results as (queries, features). A block processes KEYS keys at a time and keeps a running maximum and sum of exponentials
(Milakov and Gimelshein; Dao et al.'s FlashAttention). The backward pass recomputes the weights from `logs`, the logarithm of each query's sum
of exponentials.

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
GROUP = 16  # lanes whose sums are made together
TILE = 1024  # bytes of sums that stay in registers


@scalar_function
def add_tile(out, o, o_step, a, a0, a_row, a_term, b, b0, b_step, terms, *, rows, lanes, fresh):
    """Add a few rows of `add_product`: their sums stay in registers until all terms are added."""
    sums = local(out, rows * lanes)
    for i in simd(lanes):
        for r in unroll(rows):
            sums[r * lanes + i] = like(out, 0) if fresh else out[o + r * o_step + i]
    for t in range(terms):
        for i in simd(lanes):
            for r in unroll(rows):
                sums[r * lanes + i] = fma(a[a0 + r * a_row + t * a_term], b[b0 + t * b_step + i], sums[r * lanes + i])
    for i in simd(lanes):
        for r in unroll(rows):
            out[o + r * o_step + i] = sums[r * lanes + i]


@scalar_function
def add_product(out, o, o_step, a, a0, a_row, a_term, b, b0, b_step, rows, terms, *, lanes, fresh=False):
    """out[r, i] += sum over t of a[r, t] * b[t, i], for i < lanes; each operand starts at its offset. A `fresh` one begins at zero."""
    whole = rows // (TILE // 4 // lanes) * (TILE // 4 // lanes)
    for r in range(0, whole, TILE // 4 // lanes):
        add_tile(
            out, o + r * o_step, o_step, a, a0 + r * a_row, a_row, a_term, b, b0, b_step, terms,
            rows=TILE // 4 // lanes, lanes=lanes, fresh=fresh,
        )  # fmt: skip
    for r in range(whole, rows):
        add_tile(
            out, o + r * o_step, o_step, a, a0 + r * a_row, a_row, a_term, b, b0, b_step, terms,
            rows=1, lanes=lanes, fresh=fresh,
        )  # fmt: skip


@scalar_function
def load_columns(out, x, start, step, count, features, factor, *, lanes):
    """out[f, i] = x[i, f] * factor for i < count, zero for the other lanes."""
    for i in range(count):
        for f in range(features):
            out[f * lanes + i] = x[start + i * step + f] * factor
    for i in range(count, lanes):
        for f in range(features):
            out[f * lanes + i] = 0


@scalar_function
def seen_by(lane, first, start, keys, *, part, causal):
    """Return the number of a block's keys that the queries of the `part` lanes from `lane` on see."""
    return minimum(keys, maximum(0, first + lane + part - start)) if causal else keys


@scalar_function
def add_seen_rows(out, a, a0, a_row, b, first, start, keys, terms, *, lanes, part, causal):
    """out[j, i] = sum over t of a[j, t] * b[t, i] for every key j and the lanes i that see it, or lie beside such lanes."""
    for lane in range(0, lanes, part):
        seen = seen_by(lane, first, start, keys, part=part, causal=causal)
        add_product(out, lane, lanes, a, a0, a_row, 1, b, lane, lanes, seen, terms, lanes=part, fresh=True)


@scalar_function
def add_over_keys(out, a, b, b0, b_row, first, start, keys, *, lanes, part, width, causal):
    """out[i, f] += sum over the keys j that query i sees of a[j, i] * b[j, f]."""
    for lane in range(0, lanes, part):
        seen = seen_by(lane, first, start, keys, part=part, causal=causal)
        add_product(out, lane * width, width, a, lane, 1, lanes, b, b0, b_row, part, seen, lanes=width)


@scalar_function
def add_over_queries(out, o, o_row, a, b, b0, b_row, first, start, keys, count, *, lanes, part, width, causal):
    """out[j, f] += sum over queries i that see key j of a[j, i] * b[i, f]."""
    for j in range(0, keys, part):
        low = minimum(count, first_lane(j, first, start, part=part, causal=causal))
        add_product(
            out, o + j * o_row, o_row, a, j * lanes + low, lanes, 1, b, b0 + low * b_row, b_row,
            minimum(part, keys - j), count - low, lanes=width,
        )  # fmt: skip


@scalar_function
def first_lane(j, first, start, *, part, causal):
    """Return the beginning of the first `part` lanes of which one sees a key."""
    return maximum(0, start + j - first) // part * part if causal else 0


@scalar_function
def scores_of(
    scores, qt, k, k0, k_row, keys, mask, m0, m_row, m_column, first, count, start, *, lanes, part, dim, causal
):
    """scores[j, i] of a block of keys against the block of queries, with -inf where query i does not see key j."""
    add_seen_rows(scores, k, k0, k_row, qt, first, start, keys, dim, lanes=lanes, part=part, causal=causal)
    if mask is not None:
        for j in range(keys):
            for i in range(first_lane(j, first, start, part=part, causal=causal), count):
                place = m0 + (first + i) * m_row + (start + j) * m_column
                if mask.dtype is bool_:
                    scores[j * lanes + i] = scores[j * lanes + i] if mask[place] else like(qt, -inf)
                else:
                    scores[j * lanes + i] = scores[j * lanes + i] + mask[place]
    if causal and start + keys > first + 1:
        for j in range(keys):
            low = first_lane(j, first, start, part=part, causal=causal)
            if low < lanes:
                for i in simd(part):
                    at = j * lanes + low + i
                    scores[at] = scores[at] if start + j <= first + low + i else like(qt, -inf)


@loop_kernel
def flash_forward(
    out, logs, q, k, v, mask, batch, heads, group, length, source, scale,
    out_batch, out_head, out_row, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    m_batch, m_head, m_row, m_column, *, lanes, part, dim, value_dim, causal,
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
                b * m_batch + h * m_head, m_row, m_column, first, count, start, lanes=lanes, part=part, dim=dim, causal=causal,
            )  # fmt: skip
            for i in simd(lanes):
                factor[i] = top[i]
            for j in range(keys):
                for g in range(first_lane(j, first, start, part=part, causal=causal), lanes, part):
                    for i in simd(part):
                        top[g + i] = maximum(top[g + i], scores[j * lanes + g + i])
            for i in simd(lanes):
                # A query that has seen nothing yet has a maximum of -inf, which must not meet itself.
                factor[i] = exp(factor[i] - top[i]) if top[i] != -inf else like(q, 0)
                total[i] = total[i] * factor[i]
            for j in range(keys):
                for g in range(first_lane(j, first, start, part=part, causal=causal), lanes, part):
                    for i in simd(part):
                        e = exp(scores[j * lanes + g + i] - top[g + i]) if top[g + i] != -inf else like(q, 0)
                        scores[j * lanes + g + i] = e
                        total[g + i] = total[g + i] + e
            if start > 0:
                for i in range(lanes):
                    for f in simd(value_dim):
                        result[i * value_dim + f] = result[i * value_dim + f] * factor[i]
            add_over_keys(
                result, scores, v, b * v_batch + h // group * v_head + start * v_row, v_row, first, start, keys,
                lanes=lanes, part=part, width=value_dim, causal=causal,
            )  # fmt: skip
        for i in range(count):
            seen_any = total[i] != 0
            share = 1 / total[i] if seen_any else like(q, 0)
            place = b * out_batch + h * out_head + (first + i) * out_row
            for f in simd(value_dim):
                out[place + f] = result[i * value_dim + f] * share
            logs[(b * heads + h) * length + first + i] = top[i] + log(total[i]) if seen_any else like(q, 0)


@loop_kernel
def flash_backward(
    grad_q, grad_k, grad_v, grad, out, logs, q, k, v, mask, batch, heads, group, length, source, scale,
    gq_batch, gq_head, gq_row, gk_batch, gk_head, gk_row, gv_batch, gv_head, gv_row, g_batch, g_head, g_row,
    out_batch, out_head, out_row, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    m_batch, m_head, m_row, m_column, *, lanes, part, dim, value_dim, causal,
):  # fmt: skip
    """Compute the gradients of flash attention. A task is a head of keys and values with all queries that see it: gradients of keys and values are sums."""
    shared = heads // group
    for task in prange(batch * shared, group * length * source * (dim + value_dim)):
        b = task // shared
        kv = task % shared
        qt = local(q, dim * lanes)
        gt = local(q, value_dim * lanes)
        grad_rows = local(q, dim * lanes)
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
                grad_rows[x] = 0
            seen = minimum(source, first + count) if causal else source
            for start in range(0, seen, KEYS):
                keys = minimum(KEYS, seen - start)
                k0 = b * k_batch + kv * k_head + start * k_row
                v0 = b * v_batch + kv * v_head + start * v_row
                scores_of(
                    weights, qt, k, k0, k_row, keys, mask, b * m_batch + h * m_head, m_row, m_column, first, count,
                    start, lanes=lanes, part=part, dim=dim, causal=causal,
                )  # fmt: skip
                add_seen_rows(
                    slopes, v, v0, v_row, gt, first, start, keys, value_dim, lanes=lanes, part=part, causal=causal
                )
                for j in range(keys):
                    for g in range(first_lane(j, first, start, part=part, causal=causal), lanes, part):
                        for i in simd(part):
                            at = j * lanes + g + i
                            w = exp(weights[at] - offset[g + i]) if g + i < count else like(q, 0)
                            weights[at] = w
                            slopes[at] = w * (slopes[at] - inner[g + i]) * scale
                add_over_keys(
                    grad_rows,
                    slopes,
                    k,
                    k0,
                    k_row,
                    first,
                    start,
                    keys,
                    lanes=lanes,
                    part=part,
                    width=dim,
                    causal=causal,
                )
                add_over_queries(
                    grad_v, b * gv_batch + kv * gv_head + start * gv_row, gv_row, weights, grad, g0, g_row, first, start, keys,
                    count, lanes=lanes, width=value_dim, part=part, causal=causal,
                )  # fmt: skip
                add_over_queries(
                    grad_k, b * gk_batch + kv * gk_head + start * gk_row, gk_row, slopes, q, q0, q_row, first, start, keys,
                    count, lanes=lanes, width=dim, part=part, causal=causal,
                )  # fmt: skip
            for i in range(count):
                place = b * gq_batch + h * gq_head + (first + i) * gq_row
                for f in simd(dim):
                    grad_q[place + f] = grad_rows[i * dim + f]
