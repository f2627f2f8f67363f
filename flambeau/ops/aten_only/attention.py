"""PyTorch's fast paths of attention and of a Transformer's encoder layer, which its graphs contain where nothing is differentiated."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from ..linalg.linear import linear
from ..machinery.aten_form import aten_only
from ..nn.multi_head_attention import multi_head_attention_forward
from ..nn.normalization import layer_norm
from ..nn.softmax import softmax
from ..pointwise.activation import gelu, relu


@aten_only("_safe_softmax")
def _safe_softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Softmax that is zero, not nan, along rows in which everything is masked (-inf)."""
    masked = (self == float("-inf")).all(dim, keepdim=True)
    return softmax(self, dim, dtype=dtype).masked_fill(masked, 0)


@aten_only("_native_multi_head_attention")
def _attention(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor,
    proj_bias: Tensor, mask: Any = None, need_weights: bool = True, average_attn_weights: bool = True, mask_type: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention, batch first; the mask is one of attention (0), of padded keys (1) or both in one (2)."""
    query, key, value = (t.transpose(0, 1) for t in (query, key, value))
    masks: dict[str, Any] = {"key_padding_mask": mask} if mask_type == 1 else {"attn_mask": mask}
    if mask_type == 2 and mask is not None:
        masks["attn_mask"] = mask.reshape(-1, *mask.shape[-2:])
    out, weights = multi_head_attention_forward(
        query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, None, None, False, 0.0, proj_weight, proj_bias,
        training=False, need_weights=need_weights, average_attn_weights=average_attn_weights, **masks,
    )  # fmt: skip
    return out.transpose(0, 1), out.new_empty(0) if weights is None else weights


@aten_only("_transformer_encoder_layer_fwd")
def _encoder_layer(
    src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor,
    use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Tensor, norm_bias_1: Tensor, norm_weight_2: Tensor,
    norm_bias_2: Tensor, ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor, mask: Any = None,
    mask_type: Any = None,
) -> Tensor:  # fmt: skip
    """A Transformer's encoder layer, batch first."""
    first, second = (norm_weight_1, norm_bias_1, eps), (norm_weight_2, norm_bias_2, eps)

    def attended(x: Tensor) -> Tensor:
        weights = (embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _attention(x, x, x, *weights, mask, False, True, mask_type)[0]

    def fed(x: Tensor) -> Tensor:
        hidden = linear(x, ffn_weight_1, ffn_bias_1)
        return linear(gelu(hidden) if use_gelu else relu(hidden), ffn_weight_2, ffn_bias_2)

    if norm_first:
        src = src + attended(layer_norm(src, (embed_dim,), *first))
        return src + fed(layer_norm(src, (embed_dim,), *second))
    src = layer_norm(src + attended(src), (embed_dim,), *first)
    return layer_norm(src + fed(src), (embed_dim,), *second)
