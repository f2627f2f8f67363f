"""scaled_dot_product_attention and multi_head_attention_forward."""

from __future__ import annotations

import math
from typing import Any

from ..core import dtype as dt
from ..core.device import cpu
from ..core.dtype import opmath
from ..core.layout import broadcast_two, expand_strides
from ..core.tensor import Tensor, empty, numel_of
from ..kernels.library import attention as kernels
from .declare import composite, primitive
from .dropout import _dropped as dropped
from .formula import type_word
from .joining import cat
from .loss_arguments import dense, need_tensors
from .matmul import linear

# -- weights: softmax of scaled, masked scores --------------------------------------------------------------------------


@primitive(
    grads={
        "grad": lambda v, weights, scale, causal: attention_weights_backward(v, weights, scale, causal),
        "weights": lambda v, grad, weights, scale: (
            grad * v - grad * (v * weights).sum(-1, True) - v * (grad * weights).sum(-1, True)
        )
        * scale,
    },
    function=False,
    method=False,
)
def attention_weights_backward(grad: Tensor, weights: Tensor, scale: float, causal: bool) -> Tensor:
    grad_scores = empty(weights.shape, weights.dtype, weights.device)
    length, n = weights.shape[-2:]
    if weights.device is cpu and numel_of(weights.shape):
        rows = numel_of(weights.shape[:-1])
        kernels.attention_weights_backward(
            grad_scores, dense(grad), dense(weights), scale, rows, length, n, causal=causal
        )
    return grad_scores


def _scores_grad(g: Tensor, out: Tensor, scale: float, causal: bool) -> Tensor:
    return attention_weights_backward(g, out, scale, causal)


def _mask_grad(g: Tensor, out: Tensor, mask: Tensor, causal: bool) -> Tensor:
    return attention_weights_backward(g, out, 1.0, causal).sum_to_size(mask.shape)  # type: ignore[attr-defined]


@primitive(
    grads={"scores": _scores_grad, "mask": _mask_grad}, label="SafeSoftmaxBackward0", function=False, method=False
)
def attention_weights(scores: Tensor, mask: Any, scale: float, causal: bool) -> Tensor:
    """softmax(scale * scores + mask) over the last dimension; rows that see nothing are zero."""
    out = empty(scores.shape, scores.dtype, scores.device)
    if scores.device is not cpu or not numel_of(scores.shape):
        return out
    length, n = scores.shape[-2:]
    lead = scores.shape[:-2]
    # Up to two batch dimensions keep their own step in the mask; more are folded by copying it.
    batch, heads = (1, 1, *lead)[-2:] if len(lead) < 3 else (numel_of(lead), 1)
    steps: tuple[int, ...] = (0, 0, 0, 0)
    if mask is not None:
        mask = mask._bare_alias()
        if len(lead) > 2:
            mask = dense(mask.expand(scores.shape)).reshape(batch, 1, length, n)
        steps = expand_strides(mask.shape, mask._strides, (batch, heads, length, n))
    kernels.attention_weights(
        out, dense(scores), mask, scale, batch, heads, length, n, *steps, causal=causal
    )  # fmt: skip
    return out


# -- attention ----------------------------------------------------------------------------------------------------------


def _check(query: Tensor, key: Tensor, value: Tensor, mask: Any, causal: bool) -> None:
    need_tensors("scaled_dot_product_attention", query=query, key=key, value=value)
    if not query.dtype is key.dtype is value.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got"
            f" query.dtype: {query.dtype} key.dtype: {key.dtype} and value.dtype: {value.dtype} instead."
        )
    if min(len(query.shape), len(key.shape), len(value.shape)) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got"
            f" query.dim: {len(query.shape)}, key.dim: {len(key.shape)} and value.dim: {len(value.shape)} instead."
        )
    if mask is None:
        return
    if mask.dtype is not dt.bool_ and mask.dtype is not query.dtype:
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or to match query dtype, but got attn_mask.dtype:"
            f" {mask.dtype} and  query.dtype: {query.dtype} instead."
        )
    if causal and len(query.shape) != 4:  # PyTorch's fused kernel for four dimensions takes both
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")


def _repeated_heads(t: Any, times: int) -> Tensor:
    if times == 1:
        return t
    *lead, heads, length, width = t.shape
    spread = t.unsqueeze(-3).expand(*lead, heads, times, length, width)
    return spread.reshape(*lead, heads * times, length, width)


def _group(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of grouped heads, once for each query head."""
    heads = query.shape[-3]
    for name, t in (("key", key), ("value", value)):
        if not t.shape[-3] or heads % t.shape[-3]:
            raise RuntimeError(
                f"Number of heads in {name} must divide the number of heads in query, but got {t.shape[-3]} and {heads}"
            )
    return _repeated_heads(key, heads // key.shape[-3]), _repeated_heads(value, heads // value.shape[-3])


@composite(namespaces=("nn.functional",), method=False)
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.T * scale + mask) @ value, the heart of a transformer.

    query (..., L, E), key (..., S, E), value (..., S, Ev); attn_mask broadcasts to (..., L, S): False hides, numbers are
    added.
    """
    _check(query, key, value, attn_mask, is_causal)
    if enable_gqa:
        key, value = _group(query, key, value)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    given = query.dtype
    wide = opmath(given)
    if wide is not given:
        query, key, value = query.to(wide), key.to(wide), value.to(wide)
        attn_mask = attn_mask.to(wide) if attn_mask is not None and attn_mask.dtype is given else attn_mask
    weights = attention_probabilities(query, key, attn_mask, factor, is_causal)
    if dropout_p > 0:
        weights = dropped(weights, dropout_p, True, False, False)
    result = weights.matmul(value)  # type: ignore[attr-defined]
    return result if wide is given else result.to(given)


def attention_probabilities(query: Any, key: Any, mask: Any, scale: float, causal: bool) -> Tensor:
    scores = query.matmul(key.transpose(-2, -1))
    if not scores.dtype.is_floating_point:
        raise NotImplementedError(f"scaled_dot_product_attention is not implemented for '{type_word(scores.dtype)}'")
    if mask is not None:
        shape = broadcast_two(scores.shape, mask.shape)
        if shape != scores.shape:  # a mask with more batch dimensions than the scores
            scores = scores.expand(shape)
    return attention_weights(scores, mask, scale, causal)


# -- multi-head attention -----------------------------------------------------------------------------------------------


def _float_mask(mask: Any, name: str, target: dt.dtype) -> Any:
    """A mask as numbers to add: True in a bool mask means "ignore"."""
    if mask is None:
        return None
    if mask.dtype is not dt.bool_ and not mask.dtype.is_floating_point:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if mask.dtype is dt.bool_:
        return mask.new_zeros(mask.shape, dtype=target).masked_fill_(mask, -math.inf)
    return mask


def _project(
    query: Any, key: Any, value: Any, weight: Any, bias: Any, separate: tuple
) -> tuple[Any, Any, Any]:
    """Queries, keys and values of all heads, with as few products as the identities among the inputs allow."""
    width = query.shape[-1]
    if separate:
        biases = (None, None, None) if bias is None else bias.chunk(3)
        q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), separate, biases))
        return q, k, v
    if key is value and query is key:
        packed = linear(query, weight, bias)
        return packed[..., :width], packed[..., width : 2 * width], packed[..., 2 * width :]
    weights = weight.split(width)
    biases = (None, None, None) if bias is None else bias.split(width)
    if key is value:
        packed = linear(key, weight[width:], None if bias is None else bias[width:])
        return linear(query, weights[0], biases[0]), packed[..., :width], packed[..., width:]
    q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))
    return q, k, v


def _check_batches(query: Tensor, key: Tensor, value: Tensor, padding: Any, mask: Any, heads: int) -> bool:
    """Whether the inputs have a batch dimension, after PyTorch's checks of their ranks."""
    rank = len(query.shape)
    if rank not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor")
    batched = rank == 3
    kind = "batched" if batched else "unbatched"
    if len(key.shape) != rank or len(value.shape) != rank:
        raise AssertionError(
            f"For {kind} ({rank}-D) `query`, expected `key` and `value` to be {rank}-D but found {len(key.shape)}-D and"
            f" {len(value.shape)}-D tensors respectively"
        )
    if padding is not None and len(padding.shape) != rank - 1:
        raise AssertionError(
            f"For {kind} ({rank}-D) `query`, expected `key_padding_mask` to be `None` or {rank - 1}-D but found"
            f" {len(padding.shape)}-D tensor instead"
        )
    if mask is not None and len(mask.shape) not in (2, 3):
        raise AssertionError(
            f"For {kind} ({rank}-D) `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {len(mask.shape)}-D"
        )
    if not batched and mask is not None and len(mask.shape) == 3 and mask.shape != (heads, query.shape[0], key.shape[0]):
        raise AssertionError(
            f"Expected `attn_mask` shape to be {(heads, query.shape[0], key.shape[0])} but got {tuple(mask.shape)}"
        )
    return batched


def _checked_mask(mask: Any, batch: int, heads: int, length: int, source: int) -> Any:
    """The attention mask as (1 or batch * heads, length, source)."""
    if mask is None:
        return None
    if len(mask.shape) == 2:
        expected: tuple[int, ...] = (length, source)
        if mask.shape != expected:
            raise RuntimeError(f"The shape of the 2D attn_mask is {mask.shape}, but should be {expected}.")
        return mask.unsqueeze(0)
    expected = (batch * heads, length, source)
    if mask.shape != expected:
        raise RuntimeError(f"The shape of the 3D attn_mask is {mask.shape}, but should be {expected}.")
    return mask


def _pad_end(mask: Any, more: int) -> Any:
    """One more key that nothing hides."""
    if mask is None:
        return None
    return cat([mask, mask.new_zeros((*mask.shape[:-1], more))], -1)


@composite(namespaces=("nn.functional",), method=False)
def multi_head_attention_forward(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What nn.MultiheadAttention computes: projections, attention of every head, and the output projection.

    query (L, N, E), key and value (S, N, E), or without N. Returns the output and, if asked for, the attention weights.
    """
    batched = _check_batches(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        same_key, same_value = key is query, value is key
        query = query.unsqueeze(1)
        key = query if same_key else key.unsqueeze(1)
        value = key if same_value else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    source = key.shape[0]
    key_padding_mask = _float_mask(key_padding_mask, "key_padding_mask", query.dtype)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # the hint says what the mask holds
    else:
        attn_mask = _float_mask(attn_mask, "attn_mask", query.dtype)
        is_causal = False
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    head_width = width // num_heads
    if head_width * num_heads != width:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    _check_projections(key, value, use_separate_proj_weight, in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight)
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else ()
    q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias, separate)
    attn_mask = _checked_mask(attn_mask, batch, num_heads, length, source)
    if bias_k is not None and bias_v is not None:
        k = cat([k, bias_k.expand(1, batch, width)], 0)
        v = cat([v, bias_v.expand(1, batch, width)], 0)
        attn_mask, key_padding_mask = _pad_end(attn_mask, 1), _pad_end(key_padding_mask, 1)
    elif bias_k is not None or bias_v is not None:
        raise AssertionError("bias_k and bias_v must both be given or both be None")
    q = q.reshape(length, batch * num_heads, head_width).transpose(0, 1)
    k = _static(k.reshape(k.shape[0], batch * num_heads, head_width).transpose(0, 1) if static_k is None else static_k,
                "static_k", batch * num_heads, head_width)  # fmt: skip
    v = _static(v.reshape(v.shape[0], batch * num_heads, head_width).transpose(0, 1) if static_v is None else static_v,
                "static_v", batch * num_heads, head_width)  # fmt: skip
    if add_zero_attn:
        zeros = k.new_zeros((batch * num_heads, 1, head_width))
        k, v = cat([k, zeros], 1), cat([v, zeros], 1)
        attn_mask, key_padding_mask = _pad_end(attn_mask, 1), _pad_end(key_padding_mask, 1)
    source = k.shape[1]
    if key_padding_mask is not None:
        if key_padding_mask.shape != (batch, source):
            raise AssertionError(
                f"expecting key_padding_mask shape of {(batch, source)}, but got {tuple(key_padding_mask.shape)}"
            )
        hidden = key_padding_mask.reshape(batch, 1, 1, source).expand(-1, num_heads, -1, -1)
        hidden = hidden.reshape(batch * num_heads, 1, source)
        attn_mask = hidden if attn_mask is None else attn_mask + hidden
    p = dropout_p if training else 0.0
    q, k, v = (t.reshape(batch, num_heads, t.shape[1], head_width) for t in (q, k, v))
    if attn_mask is not None:
        lead = (1, 1) if attn_mask.shape[0] == 1 else (batch, num_heads)
        attn_mask = attn_mask.reshape(*lead, *attn_mask.shape[1:])
    scale = 1 / math.sqrt(head_width)
    weights = None
    if need_weights:
        weights = _plain_softmax(q, k, attn_mask, scale)
        weights = dropped(weights, p, p > 0, False, False)
        output = weights.matmul(v)  # type: ignore[attr-defined]
        if average_attn_weights:
            weights = weights.mean(1)  # type: ignore[attr-defined]
    else:
        output = scaled_dot_product_attention(q, k, v, attn_mask, p, is_causal)
    output = output.permute(2, 0, 1, 3).reshape(length * batch, width)
    output = linear(output, out_proj_weight, out_proj_bias).reshape(length, batch, -1)
    if batched:
        return output, weights
    return output.squeeze(1), None if weights is None else weights.squeeze(0)  # type: ignore[attr-defined]


def _plain_softmax(q: Any, k: Any, mask: Any, scale: float) -> Tensor:
    """Weights to hand out: unlike those inside attention, a row that sees nothing is nan, as in PyTorch."""
    scores = (q * scale).matmul(k.transpose(-2, -1))
    return (scores if mask is None else scores + mask).softmax(-1)


def _static(t: Any, name: str, heads: int, head_width: int) -> Any:
    if t.shape[0] != heads or t.shape[2] != head_width:
        raise AssertionError(
            f"expecting {name} of shape ({heads}, *, {head_width}), but got {tuple(t.shape)}"
        )
    return t


def _check_projections(
    key: Any, value: Any, separate: bool, weight: Any, q_weight: Any, k_weight: Any, v_weight: Any
) -> None:
    if separate:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(
                f"key's sequence and batch dims {tuple(key.shape[:2])} do not match value's {tuple(value.shape[:2])}"
            )
        if q_weight is None or k_weight is None or v_weight is None:
            raise AssertionError("use_separate_proj_weight is True but a projection weight is None")
    else:
        if key.shape != value.shape:
            raise AssertionError(f"key shape {tuple(key.shape)} does not match value shape {tuple(value.shape)}")
        if weight is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
