"""Attention on NVIDIA GPUs. Half-width floats: a kernel of our own for a few queries, cuDNN's fused kernels for more, operators if the
library declines. float32: a kernel, or products for long sequences."""

from __future__ import annotations

from typing import Any

from ....core import dtype as dt
from ....core.tensor import Tensor
from ....ops.machinery.inplace import raw_copy
from ....ops.machinery.memory import dense, recording
from ....ops.nn.attention import _plain_gradients, _repeated_heads, _rows, flash_attention, flash_gradients, takes_masks
from .. import cudnn_attention
from ..cudnn_graph import Unsupported
from . import attention32, attention_blocks, attention_rows


def _takes_mask(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether our kernel for a few queries computes attention with a mask: it has no gradient."""
    is_half = query.dtype is not dt.float32 and attention_rows.takes(query, key, value)
    return is_half and not any(map(recording, (query, key, value)))


takes_masks["cuda"] = _takes_mask
_REFUSED: set[tuple[Any, ...]] = set()  # shapes for which cuDNN has no kernel


def _aligned(t: Tensor) -> Tensor:
    """Return the tensor, or a copy, with adjacent features and all other strides multiples of 16 bytes."""
    step = 16 // t.dtype.itemsize
    fits = t._strides[3] == 1 and not any(s % step for s, n in zip(t._strides[:3], t.shape) if n > 1)
    return t if fits and t.data_ptr() % 16 == 0 else dense(t._bare_alias().contiguous())


def _is_short(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether one kernel computes all; for more rows or features, matrix products are faster."""
    features = query.shape[3]
    return (
        max(query.shape[2], key.shape[2]) <= 512 and features <= 64 and not features % 16 and features == value.shape[3]
    )


def _takes(query: Tensor, value: Tensor) -> bool:
    return query.shape[3] % 8 == 0 and value.shape[3] % 8 == 0


def _by_operators(out: list[Tensor], query: Any, key: Any, value: Any, scale: float, causal: bool) -> None:
    group = query.shape[1] // key.shape[1]
    q, k, v = (t._bare_alias().float() for t in (query, key, value))
    scores = q.matmul(_repeated_heads(k, group).transpose(-2, -1)) * scale
    if causal:
        seen = scores.new_ones(scores.shape[-2:], dtype=dt.bool_).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    raw_copy(out[0], scores.softmax(-1).matmul(_repeated_heads(v, group)))
    raw_copy(out[1], scores.logsumexp(-1))


@flash_attention.on("cuda")
def _(out: list[Tensor], query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool) -> None:
    if query.dtype is dt.float32:
        if _is_short(query, key, value):
            attention32.forward(out[0], out[1], _rows(query), _rows(key), _rows(value), scale, causal)
        else:
            attention_blocks.forward(out[0], out[1], query, key, value, scale, causal)
        return
    if mask is not None:
        q, k, v = map(_aligned, (query, key, value))
        attention_rows.forward(out[0], out[1], q, k, v, scale, causal, mask)
        return
    kind = (query.shape, key.shape, value.shape, causal)
    if not _takes(query, value) or kind in _REFUSED:
        _by_operators(out, query, key, value, scale, causal)
        return
    q, k, v = map(_aligned, (query, key, value))
    if attention_rows.takes(q, k, v):
        attention_rows.forward(out[0], out[1], q, k, v, scale, causal)
        return
    try:
        cudnn_attention.forward(out[0], out[1], q, k, v, None, scale, causal)
    except Unsupported:
        _REFUSED.add(kind)
        _by_operators(out, query, key, value, scale, causal)


@flash_gradients.on("cuda")
def _(
    grads: list[Tensor], g: Any, out: Any, logs: Tensor, query: Any, key: Any, value: Any, mask: Any, scale: float,
    causal: bool,
) -> None:  # fmt: skip
    if query.dtype is dt.float32:
        if _is_short(query, key, value):
            attention32.backward(
                grads, _rows(g), _rows(out), logs, _rows(query), _rows(key), _rows(value), scale, causal
            )
        else:
            attention_blocks.backward(grads, g, out, logs, query, key, value, scale, causal)
        return
    kind = ("backward", query.shape, key.shape, value.shape, causal)
    if _takes(query, value) and kind not in _REFUSED:
        g, out, q, k, v = map(_aligned, (g, out, query, key, value))
        try:
            cudnn_attention.backward(grads, g, out, logs, q, k, v, None, scale, causal)
            return
        except Unsupported:
            _REFUSED.add(kind)
    wide: list[Any] = [t._bare_alias().float() for t in (g, query, key, value)]
    for result, found in zip(grads, _plain_gradients(wide[0], wide[1], wide[2], wide[3], None, scale, causal)):
        raw_copy(result, found)
