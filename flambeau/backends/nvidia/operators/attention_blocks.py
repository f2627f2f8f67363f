"""Attention in float32 by matrix products, for sequences that are too long for one kernel: some heads and rows at a time.

Weights are not saved: the backward pass recomputes them. In causal attention a block multiplies only with the keys that its last row sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....core.tensor import Tensor, empty
from ....kernels.library import attention as kernels
from ....ops.creation.filled import fill_raw
from ....ops.machinery.inplace import raw_copy
from ....ops.machinery.memory import dense
from ....ops.nn.attention import _repeated_heads
from .matmul import product

_ROWS = 256  # of a block at least, where later rows see more
_SPACE = 1 << 25  # weights of a block: results have few columns, so that it takes many rows to keep a GPU busy


def _folded(t: Any, group: int = 1) -> Tensor:
    """Return (batch, heads, rows, features) as a batch of matrices."""
    t = _repeated_heads(t._bare_alias(), group)
    return t.reshape(-1, *t.shape[2:])


def _target(t: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Return memory for the results of `t` as a batch of matrices, and the same with its dimensions: `t` itself, if it has that layout."""
    batch, own, rows, features = t.shape
    made = t if t._contig and own == heads else empty((batch, heads, rows, features), t.dtype, t.device)
    return made._view((batch * heads, rows, features), (rows * features, features, 1), made._offset), made


def _blocks(heads: int, rows: int, source: int, causal: bool) -> Iterator[tuple[slice, slice, int]]:
    """Yield heads, rows, and how many keys these see; those that see most come first."""
    tall = min(rows, max(_ROWS, -(-rows // 8))) if causal else min(rows, max(_SPACE // source, _ROWS))
    together = max(1, _SPACE // (tall * source))
    for first in range(0, heads, together):
        for start in reversed(range(0, rows, tall)):
            end = min(start + tall, rows)
            yield slice(first, min(first + together, heads)), slice(start, end), min(end, source) if causal else source


def _part(t: Tensor, heads: slice, rows: slice) -> Tensor:
    a, b, c = t._strides
    shape = heads.stop - heads.start, rows.stop - rows.start, t.shape[2]
    return t._view(shape, (a, b, c), t._offset + heads.start * a + rows.start * b)


def _turned(t: Tensor) -> Tensor:
    (n, rows, columns), (a, b, c) = t.shape, t._strides
    return t._view((n, columns, rows), (a, c, b), t._offset)


def _space(count: int, q: Tensor, k: Tensor, causal: bool) -> list[Tensor]:
    """Allocate memory for the largest block."""
    size = max(
        (h.stop - h.start) * (r.stop - r.start) * seen
        for h, r, seen in _blocks(q.shape[0], q.shape[1], k.shape[1], causal)
    )
    return [empty((size,), q.dtype, q.device) for _ in range(count)]


def _multiply(out: Tensor, a: Tensor, b: Tensor, more: bool = False) -> None:
    product("baddbmm_cuda", out, a, b, None, 1, int(more))


def _scores(space: Tensor, q: Tensor, k: Tensor) -> Tensor:
    (heads, rows, _), seen = q.shape, k.shape[1]
    scores = space._view((heads, rows, seen), (rows * seen, seen, 1), space._offset)
    _multiply(scores, q, _turned(k))
    return scores


def _by_rows(t: Tensor) -> Tensor:
    """Return (batch, heads, rows) as a batch of columns."""
    batch, heads, rows = t.shape
    return t._view((batch * heads, rows, 1), (rows, 1, 1), t._offset)


def forward(out: Tensor, logs: Tensor, query: Any, key: Any, value: Any, scale: float, causal: bool) -> None:
    """Compute out = attention of the queries, and logs = the logarithms of the sums of its softmax."""
    group = query.shape[1] // key.shape[1]
    q, k, v = _folded(query), _folded(key, group), _folded(value, group)
    results, made = _target(out, query.shape[1])
    sums = _by_rows(logs)
    (space,) = _space(1, q, k, causal)
    for heads, rows, seen in _blocks(q.shape[0], q.shape[1], k.shape[1], causal):
        keys = slice(0, seen)
        weights = _scores(space, _part(q, heads, rows), _part(k, heads, keys))
        count, length = weights.shape[:2]
        kernels.attention_weights(
            weights, _part(sums, heads, rows), None, None, scale, count, 1, length, seen, 0, 0, 0, 0, rows.start, q.shape[1],
            causal=causal,
        )  # fmt: skip
        _multiply(_part(results, heads, rows), weights, _part(v, heads, keys))
    if made is not out:
        raw_copy(out, made)


def backward(
    grads: list[Tensor], g: Any, out: Any, logs: Tensor, query: Any, key: Any, value: Any, scale: float, causal: bool
) -> None:  # fmt: skip
    """Compute the gradients of query, key and value."""
    heads_of, group = query.shape[1], query.shape[1] // key.shape[1]
    q, k, v, dout = _folded(query), _folded(key, group), _folded(value, group), _folded(g)
    (dq, made_q), (dk, made_k), (dv, made_v) = (_target(t, heads_of) for t in grads)
    shares, sums = _by_rows(dense((g._bare_alias() * out._bare_alias()).sum(-1))), _by_rows(logs)
    source = k.shape[1]
    if causal and q.shape[1] < source:  # no row sees the last keys
        for t in (dk, dv):
            fill_raw(t, 0)
    space, other = _space(2, q, k, causal)
    for heads, rows, seen in _blocks(q.shape[0], q.shape[1], source, causal):
        keys, more = slice(0, seen), rows.stop < q.shape[1]
        qs, ks, gs = _part(q, heads, rows), _part(k, heads, keys), _part(dout, heads, rows)
        weights, slopes = _scores(space, qs, ks), _scores(other, gs, _part(v, heads, keys))
        count, length = weights.shape[:2]
        kernels.attention_slopes(
            weights, slopes, _part(sums, heads, rows), _part(shares, heads, rows), scale, count * length, length, seen,
            rows.start, q.shape[1], causal=causal,
        )  # fmt: skip
        _multiply(_part(dv, heads, keys), _turned(weights), gs, more)
        _multiply(_part(dq, heads, rows), slopes, ks)
        _multiply(_part(dk, heads, keys), _turned(slopes), qs, more)
    for result, made in zip(grads, (made_q, made_k, made_v)):
        if made is not result:
            whole: Any = made
            if made.shape[1] != result.shape[1]:
                batch, shared, *rest = result.shape
                whole = whole.reshape(batch, shared, group, *rest).sum(2)
            raw_copy(result, whole)
