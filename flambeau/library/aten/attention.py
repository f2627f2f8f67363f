"""Attention of several heads as calls of PyTorch's operators: those that PyTorch's own `multi_head_attention_forward` makes."""

from __future__ import annotations

import math
from typing import Any

import flambeau

from ...core.tensor import Tensor
from .overloads import aten


@flambeau.nn.functional.multi_head_attention_forward.op.as_aten  # type: ignore[attr-defined]
def _attention(recorder: Any, *args: Any, **kwargs: Any) -> Any:
    names = (
        "query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k", "bias_v", "add_zero_attn",
        "dropout_p", "out_proj_weight", "out_proj_bias", "training", "key_padding_mask", "need_weights", "attn_mask",
        "use_separate_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "static_k", "static_v", "average_attn_weights",
        "is_causal",
    )  # fmt: skip
    given = dict(zip(names, args)) | kwargs
    rare = ("bias_k", "bias_v", "static_k", "static_v", "q_proj_weight")
    if any(given.get(n) is not None for n in rare) or given["add_zero_attn"] or given["query"].dim() != 3:
        return recorder.again(flambeau.nn.functional.multi_head_attention_forward, args, kwargs)
    return _Heads(given).run()


class _Heads:
    """One call; `given` are its arguments by name."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.query, self.key, self.value = given["query"], given["key"], given["value"]
        self.length, self.batch, self.width = self.query.shape
        self.heads, self.source = given["num_heads"], self.key.shape[0]

    def run(self) -> tuple[Tensor, Tensor | None]:
        causal = self.given.get("is_causal", False)
        weights_wanted = self.given.get("need_weights", True)
        hint = causal and self.given.get("key_padding_mask") is None and not weights_wanted
        mask = None if hint else self.mask()
        q, k, v = (self.split(t) for t in self.projected())
        p = self.given["dropout_p"] if self.given.get("training", True) else 0.0
        if weights_wanted:
            return self.with_weights(q, k, v, mask, p)
        if mask is not None:
            alone = mask.size(0) == 1 and mask.dim() == 3
            mask = aten.unsqueeze.default(mask, 0) if alone else aten.view.default(mask, [self.batch, self.heads, -1, self.source])  # fmt: skip
        shape = [self.batch, self.heads, -1, self.width // self.heads]
        q, k, v = (aten.view.default(t, [*shape[:2], t.size(1), shape[3]]) for t in (q, k, v))
        out = aten.scaled_dot_product_attention.default(q, k, v, mask, p, hint)
        return self.out(aten.permute.default(out, [2, 0, 1, 3])), None

    def with_weights(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, p: float) -> tuple[Tensor, Tensor]:
        scaled = aten.mul.Tensor(q, math.sqrt(1.0 / q.size(-1)))
        turned = aten.transpose.int(k, -2, -1)
        scores = aten.bmm.default(scaled, turned) if mask is None else aten.baddbmm.default(mask, scaled, turned)
        weights = aten.softmax.int(scores, -1)
        weights = aten.dropout.default(weights, p, True) if p > 0 else weights
        out = self.out(aten.transpose.int(aten.bmm.default(weights, v), 0, 1))
        weights = aten.view.default(weights, [self.batch, self.heads, self.length, self.source])
        return out, aten.mean.dim(weights, [1]) if self.given.get("average_attn_weights", True) else weights

    def out(self, heads: Tensor) -> Tensor:
        """The output projection of what the heads found."""
        flat = aten.reshape.default(heads, [self.length * self.batch, self.width])
        found = aten.linear.default(flat, self.given["out_proj_weight"], self.given["out_proj_bias"])
        return aten.view.default(found, [self.length, self.batch, found.size(1)])

    def projected(self) -> list[Tensor]:
        """Queries, keys and values: of one tensor by one product, as far as they are one."""
        weight, bias = self.given["in_proj_weight"], self.given["in_proj_bias"]
        if self.key is self.value and self.query is self.key:
            return self.taken_apart(aten.linear.default(self.query, weight, bias), 3)
        if self.key is self.value:
            parts = [self.width, 2 * self.width]
            w = aten.split_with_sizes.default(weight, parts)
            b = None if bias is None else aten.split_with_sizes.default(bias, parts)
            both = aten.linear.default(self.key, w[1], None if b is None else b[1])
            return [aten.linear.default(self.query, w[0], None if b is None else b[0]), *self.taken_apart(both, 2)]
        ws = aten.chunk.default(weight, 3)
        bs = None if bias is None else aten.chunk.default(bias, 3)
        given = (self.query, self.key, self.value)
        return [aten.linear.default(t, ws[i], None if bs is None else bs[i]) for i, t in enumerate(given)]

    def taken_apart(self, together: Tensor, count: int) -> list[Tensor]:
        rows = aten.unsqueeze.default(aten.unflatten.int(together, -1, [count, self.width]), 0)
        turned = aten.contiguous.default(aten.squeeze.dim(aten.transpose.int(rows, 0, -2), -2))
        return [aten.select.int(turned, 0, i) for i in range(count)]

    def split(self, t: Tensor) -> Tensor:
        """(rows, batch, width) as (batch * heads, rows, features of one head)."""
        return aten.transpose.int(
            aten.view.default(t, [t.size(0), self.batch * self.heads, self.width // self.heads]), 0, 1
        )

    def mask(self) -> Any:
        """The masks of attention and of padding as one, in numbers to add."""
        found, padding = (self.as_numbers(self.given.get(n)) for n in ("attn_mask", "key_padding_mask"))
        if found is not None and found.dim() == 2:
            found = aten.unsqueeze.default(found, 0)
        if padding is None:
            return found
        hidden = aten.expand.default(
            aten.view.default(padding, [self.batch, 1, 1, self.source]), [-1, self.heads, -1, -1]
        )
        hidden = aten.reshape.default(hidden, [self.batch * self.heads, 1, self.source])
        return hidden if found is None else aten.add.Tensor(found, hidden)

    def as_numbers(self, mask: Any) -> Any:
        if mask is None or mask.dtype != flambeau.bool:
            return mask
        zeros = aten.zeros_like.default(mask, dtype=self.query.dtype, pin_memory=False)
        return aten.masked_fill_.Scalar(zeros, mask, -math.inf)
