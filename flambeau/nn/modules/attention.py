"""MultiheadAttention."""

from __future__ import annotations

from typing import Any

from ...core.settings import is_scripting
from ...core.tensor import Tensor
from ...nested import like_rows
from ...ops.creation.filled import empty
from ...ops.shape.joining import stack
from .. import functional as F
from ..init import constant_, xavier_normal_, xavier_uniform_
from ..parameter import Parameter
from .linear import NonDynamicallyQuantizableLinear
from .module import Module


class MultiheadAttention(Module):
    """Attention of several heads with learned projections of queries, keys and values; `batch_first` puts the batch before the sequence."""

    __constants__ = ["batch_first"]
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads, self.dropout, self.batch_first = num_heads, dropout, batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def add(name: str, wanted: bool, *shape: int) -> None:
            self.register_parameter(name, Parameter(empty(shape, device=device, dtype=dtype)) if wanted else None)

        add("in_proj_weight", self._qkv_same_embed_dim, 3 * embed_dim, embed_dim)
        for name, width in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            add(f"{name}_proj_weight", not self._qkv_same_embed_dim, embed_dim, width)
        add("in_proj_bias", bias, 3 * embed_dim)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        add("bias_k", add_bias_kv, 1, 1, embed_dim)
        add("bias_v", add_bias_kv, 1, 1, embed_dim)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        if self._qkv_same_embed_dim:
            xavier_uniform_(self.in_proj_weight)
        else:
            for weight in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
                xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            constant_(self.in_proj_bias, 0.0)
            constant_(self.out_proj.bias, 0.0)
        if self.bias_k is not None:
            xavier_normal_(self.bias_k)
        if self.bias_v is not None:
            xavier_normal_(self.bias_v)

    def __setstate__(self, state: dict) -> None:
        state.setdefault("_qkv_same_embed_dim", True)
        super().__setstate__(state)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if not is_scripting() and query.is_nested:
            mask = attn_mask if key_padding_mask is None else key_padding_mask
            return self._attend_rows((query, key, value), mask, need_weights, average_attn_weights, is_causal)
        turned = self.batch_first and query.dim() == 3
        if turned:
            query, key, value = _sequence_first(query, key, value)
        out, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v,
            self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, training=self.training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim, q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight, v_proj_weight=self.v_proj_weight, average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )  # fmt: skip
        if turned:
            out = out.transpose(1, 0)
        return out, weights

    def _attend_rows(
        self, nested: tuple[Any, Any, Any], mask: Any, need_weights: bool, averaged: bool, is_causal: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within each row of nested tensors; the weights of shorter rows are padded with zeros."""
        if mask is not None or not self.batch_first:
            why = "a mask was given: rows have no padding to mask" if self.batch_first else "batch_first was not True"
            raise AssertionError(f"MultiheadAttention does not support NestedTensor outside of its fast path: {why}")
        rows: list[Any] = [
            self(q, k, v, need_weights=need_weights, average_attn_weights=averaged, is_causal=is_causal)
            for q, k, v in zip(*(t.unbind() for t in nested))
        ]
        out = like_rows(nested[0], [row for row, _ in rows])
        if not need_weights:
            return out, None
        wide, long = (max(row.size(-2) for row in t.unbind()) for t in nested[1::-1])
        return out, stack([F.pad(w, (0, wide - w.size(-1), 0, long - w.size(-2))) for _, w in rows])

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """Merge both masks into an additive one: (mask, 0 attention only / 1 padding only / 2 both)."""
        if key_padding_mask is None and attn_mask is None:
            return None, None
        if attn_mask is None:
            return key_padding_mask, 1
        batch, length, _ = query.shape
        if attn_mask.dim() == 3:
            merged = attn_mask.view(batch, -1, length, length)
        else:
            merged = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)
        return merged, 2


def _sequence_first(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Transpose (N, L, E) to (L, N, E), keeping the identity of shared arguments: self-attention projects once."""
    q = query.transpose(1, 0)
    k = q if key is query else key.transpose(1, 0)
    v = k if value is key else (q if value is query else value.transpose(1, 0))
    return q, k, v
