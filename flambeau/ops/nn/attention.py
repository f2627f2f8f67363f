"""scaled_dot_product_attention and multi_head_attention_forward."""

from __future__ import annotations

import math
import threading
from typing import Any

from ...core import dtype as dt
from ...core.dtype import opmath
from ...core.graph import grad_mode
from ...core.layout import broadcast_two, contiguous_format, expand_strides
from ...core.settings import attention_kernels
from ...core.tensor import Tensor, numel_of
from ...kernels.library import attention as kernels
from ...kernels.library import flash_attention as flash
from ..machinery.arguments import need_tensors
from ..machinery.aten_form import aten_only, aten_parts
from ..machinery.declare import composite, internal
from ..machinery.memory import dense, like_first
from ..machinery.plan import NATIVE
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from .dropout import dropout

# -- weights: softmax of scaled, masked scores --------------------------------------------------------------------------


@internal(
    grads={
        "grad": lambda v, weights, scale, causal: attention_weights_backward(v, weights, scale, causal),
        "weights": lambda v, grad, weights, scale: (
            (grad * v - grad * (v * weights).sum(-1, True) - v * (grad * weights).sum(-1, True)) * scale
        ),
    },
    batching="each",
)
def attention_weights_backward(grad: Tensor, weights: Tensor, scale: float, causal: bool) -> NewTensor:
    """The gradient of attention_weights with respect to the scores."""
    return weights.shape, weights.dtype, weights.device


@attention_weights_backward.op.as_aten
def _(recorder: Any, grad: Tensor, weights: Tensor, scale: float, causal: bool) -> Tensor:
    found = recorder.aten._softmax_backward_data.default(grad, weights, -1, weights.dtype)
    return found if scale == 1.0 else recorder.aten.mul.Scalar(found, scale)


@attention_weights_backward.on("any")
def _(out: Tensor, grad: Tensor, weights: Tensor, scale: float, causal: bool) -> None:
    length, n = weights.shape[-2:]
    rows = numel_of(weights.shape[:-1])
    kernels.attention_weights_backward(out, dense(grad), dense(weights), scale, rows, length, n, causal=causal)


def _scores_grad(g: Tensor, out: Tensor, scale: float, causal: bool) -> Tensor:
    return attention_weights_backward(g, out, scale, causal)


def _mask_grad(g: Tensor, out: Tensor, mask_shape: Any, causal: bool) -> Tensor:
    return attention_weights_backward(g, out, 1.0, causal).sum_to_size(mask_shape)


@internal(
    layout=like_first,
    grads={"scores": _scores_grad, "mask": _mask_grad},
    quirks=Quirks(label="SafeSoftmaxBackward0"),
    batching="each",
    sharding="attention",
)
def attention_weights(scores: Tensor, mask: Tensor | None, scale: float, causal: bool) -> Tensor:
    """softmax(scale * scores + mask) over the last dimension; rows that see nothing are zero."""


@attention_weights.op.as_aten
def _(recorder: Any, scores: Tensor, mask: Tensor | None, scale: float, causal: bool) -> Tensor:
    return softmax_of_seen(recorder.aten, recorder.aten.mul.Tensor(scores, scale), mask, causal)


def softmax_of_seen(aten: Any, scores: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Compute weights from scores by calls of PyTorch's operators: zeros for a row in which everything is masked."""
    if causal:
        options = {"dtype": dt.bool_, "device": scores.device, "pin_memory": False}
        mask = aten.tril.default(aten.ones.default(list(scores.shape[-2:]), **options))
    if mask is not None and mask.dtype is dt.bool_:
        mask = aten.where.ScalarOther(mask, aten.zeros_like.default(scores), -math.inf)
    scores = scores if mask is None else aten.add.Tensor(scores, mask)
    found = aten._softmax.default(scores, -1, False)
    shown = aten.logical_not.default(aten.eq.Scalar(scores, -math.inf))
    empty = aten.logical_not.default(aten.any.dim(shown, -1, True))
    return aten.where.self(empty, aten.full_like.default(found, 0, pin_memory=False), found)


@attention_weights.on("any")
def _(out: Tensor, scores: Tensor, mask: Any, scale: float, causal: bool) -> None:
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
        out, None, dense(scores), mask, scale, batch, heads, length, n, *steps, 0, 0, causal=causal
    )  # fmt: skip


# -- all in one kernel ----------------------------------------------------------------------------------------------------

_WIDEST = 256  # features; blocks of more would not fit the stack comfortably


def _steps(t: Tensor) -> tuple[int, ...]:
    return t._strides[:3]


def _rows(t: Any) -> Any:
    """Return a tensor whose features are adjacent, without history."""
    return t if t._strides[-1] == 1 or t.shape[-1] == 1 else dense(t)


def _layout(like: Tensor, features: int) -> tuple[Any, ...]:
    """Return the layout of a (batch, heads, rows, features) result whose heads and rows have the memory order of like's: if queries are a
    transposed view, concatenating the heads of the result moves nothing."""
    batch, heads, rows, _ = like.shape
    shape = (batch, heads, rows, features)
    if like._strides[1] >= like._strides[2]:
        return shape, like.dtype, like.device
    return shape, like.dtype, like.device, (rows * heads * features, features, heads * features, 1)


def _flash_options(query: Tensor, value: Tensor, causal: bool) -> dict[str, Any]:
    _, _, length, dim = query.shape
    lanes = 64 if length > 32 else 32 if length > 16 else 16
    return {
        "lanes": lanes,
        "part": min(lanes, flash.GROUP),
        "dim": dim,
        "value_dim": tuple(value.shape)[3],
        "causal": causal,
    }


def _mask_steps(mask: Any, query: Tensor, key: Tensor) -> tuple[int, ...]:
    if mask is None:
        return 0, 0, 0, 0
    return expand_strides(mask.shape, mask._strides, (*query.shape[:3], key.shape[2]))


def _flash_gradients(
    g: Any, query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool, out: Any, logs: Tensor
) -> tuple[Any, ...]:
    if grad_mode.enabled:  # a graph of the gradient is wanted: make it of operators
        return _plain_gradients(g, query, key, value, mask, scale, causal)
    return flash_gradients(g, out, logs, query, key, value, mask, scale, causal)


def _gradients_layout(
    g: Tensor, out: Tensor, logs: Tensor, query: Tensor, key: Tensor, value: Tensor, *settings: Any
) -> list[Any]:
    return [_layout(t, t.shape[3]) for t in (query, key, value)]


@internal(
    layout=_gradients_layout,
    batching="each",
    strided=(0, 1, 2),
    aten="_scaled_dot_product_flash_attention_for_cpu_backward(g, query, key, value, out, logs, 0.0, causal, mask, scale)",
)
def flash_gradients(
    g: Tensor,
    out: Tensor,
    logs: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    causal: bool,
) -> tuple[Any, ...]:
    """The gradients of flash_attention with respect to query, key and value."""


@flash_gradients.on("cpu")
def _(
    grads: list[Tensor], g: Any, out: Any, logs: Tensor, query: Any, key: Any, value: Any, mask: Any, scale: float,
    causal: bool,
) -> None:  # fmt: skip
    g, q, k, v, out = (_rows(t) for t in (g, query, key, value, out))
    batch, heads, length, _ = q.shape
    shared, source = k.shape[1:3]
    steps = [s for t in (*grads, g, out, q, k, v) for s in _steps(t)]
    flash.flash_backward(
        *grads, g, out, logs, q, k, v, mask, batch, heads, heads // shared, length, source, scale, *steps,
        *_mask_steps(mask, q, k), **_flash_options(q, v, causal),
    )  # fmt: skip


def _plain_gradients(
    g: Any, query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool
) -> tuple[Any, ...]:
    group = query.shape[1] // key.shape[1]
    keys, values = _repeated_heads(key, group), _repeated_heads(value, group)
    weights = attention_weights(query.matmul(keys.transpose(-2, -1)), mask, scale, causal)
    slopes = attention_weights_backward(g.matmul(values.transpose(-2, -1)), weights, scale, causal)
    grad_key = slopes.transpose(-2, -1).matmul(query)
    grad_value = weights.transpose(-2, -1).matmul(g)
    if group > 1:
        batch, shared = key.shape[:2]
        grad_key = grad_key.reshape(batch, shared, group, *key.shape[2:]).sum(2)
        grad_value = grad_value.reshape(batch, shared, group, *value.shape[2:]).sum(2)
    return slopes.matmul(keys), grad_key, grad_value


@internal(
    saves=("logs",),
    grads={("query", "key", "value"): _flash_gradients},
    quirks=Quirks(label="ScaledDotProductFlashAttentionForCpuBackward0"),
    batching="each",
    sharding="attention",
    strided=(0,),
)
def flash_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, causal: bool
) -> NewTensor:
    """Attention of (batch, heads, rows, features) tensors; key and value may have fewer heads, each for a group."""
    batch, heads, rows, _ = query.shape
    return [_layout(query, tuple(value.shape)[3]), ((batch, heads, rows), opmath(query.dtype), query.device)]


@flash_attention.op.as_aten
def _(recorder: Any, query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool) -> Tensor:
    given = None if scale == 1 / math.sqrt(query.shape[-1]) else scale
    options = {"attn_mask": mask, "scale": given}
    attend = recorder.aten._scaled_dot_product_flash_attention_for_cpu.default
    return attend(query, key, value, 0.0, causal, **options)[0]


@flash_attention.on("cpu")
def _(out: list[Tensor], query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool) -> None:
    q, k, v = _rows(query), _rows(key), _rows(value)
    batch, heads, length, _ = q.shape
    _, shared, source, _ = k.shape
    steps = *out[0]._strides[:3], *q._strides[:3], *k._strides[:3], *v._strides[:3]
    flash.flash_forward(
        *out, q, k, v, mask, batch, heads, heads // shared, length, source, scale, *steps,
        *_mask_steps(mask, q, k), **_flash_options(q, v, causal),
    )  # fmt: skip


# The dtypes that the fused kernels of devices take, and the operands (query, key, value) with which they take a mask.
_FUSED = {
    "cpu": frozenset((dt.float32, dt.float64) if NATIVE else ()),
    "meta": frozenset((dt.float32, dt.float64)),
    "cuda": frozenset((dt.float16, dt.bfloat16, dt.float32)),
}
takes_masks: dict[str, Any] = {"cpu": lambda *_: True, "meta": lambda *_: True}


def _flash_takes(query: Tensor, key: Tensor, value: Tensor, mask: Any, grouped: bool) -> bool:
    kind = query.device.type
    if query.dtype not in _FUSED.get(kind, ()):
        return False
    if not len(query.shape) == len(key.shape) == len(value.shape) == 4:
        return False
    # Unpacked, because this is asked for every token that a text generator writes.
    batch, heads, rows, dim = query.shape
    key_batch, shared, source, key_dim = key.shape
    *of_value, value_dim = value.shape
    if 0 in query.shape or 0 in key.shape or value_dim == 0 or max(dim, value_dim) > _WIDEST:
        return False
    if of_value != [key_batch, shared, source] or (batch, dim) != (key_batch, key_dim):
        return False
    if heads != shared and not grouped:
        return False
    if mask is None:
        return True
    if kind not in takes_masks or not takes_masks[kind](query, key, value):
        return False
    full = (batch, heads, rows, source)
    return not mask.requires_grad and len(mask.shape) <= 4 and broadcast_two(mask.shape, full) == full


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


def _check_groups(query: Tensor, key: Tensor, value: Tensor) -> None:
    if min(len(query.shape), len(key.shape), len(value.shape)) < 3:
        raise RuntimeError("enable_gqa expects query, key and value with a dimension of heads before the last two")
    heads = query.shape[-3]
    for name, t in (("key", key), ("value", value)):
        if not t.shape[-3] or heads % t.shape[-3]:
            raise RuntimeError(
                f"Number of heads in {name} must divide the number of heads in query, but got {t.shape[-3]} and {heads}"
            )


class _Around(threading.local):
    """Thread-local replacement of the attention operator, set if the sequence is sharded over ranks (see distributed.tensor.experimental); it
    returns NotImplemented for the ordinary computation."""

    attend: Any = None


around = _Around()


@composite(namespaces=("nn.functional",), method=False, autocast="lower")
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
    """softmax(query @ key.T * scale + mask) @ value, the core of a transformer.

    query (..., L, E), key (..., S, E), value (..., S, Ev); attn_mask broadcasts to (..., L, S): False hides, numbers are
    added.
    """
    if around.attend is not None:
        found = around.attend(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        if found is not NotImplemented:
            return found
    _check(query, key, value, attn_mask, is_causal)
    if enable_gqa:
        _check_groups(query, key, value)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    given = query.dtype
    fused = attention_kernels["flash"] and dropout_p == 0
    takes = fused and _flash_takes(query, key, value, attn_mask, enable_gqa)
    wide = given if takes else opmath(given)
    if wide is not given:
        query, key, value = query.to(wide), key.to(wide), value.to(wide)
        attn_mask = attn_mask.to(wide) if attn_mask is not None and attn_mask.dtype is given else attn_mask
        takes = fused and _flash_takes(query, key, value, attn_mask, enable_gqa)
    if takes:
        result = flash_attention(query, key, value, attn_mask, factor, is_causal)
    elif not attention_kernels["math"]:
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found. This is likely due to turning off both the math"
            " kernel and the fused kernels."
        )
    else:
        if enable_gqa:
            key, value = (_repeated_heads(t, query.shape[-3] // t.shape[-3]) for t in (key, value))
        weights = attention_probabilities(query, key, attn_mask, factor, is_causal)
        if dropout_p > 0:
            weights = dropout(weights, dropout_p, True)
        result = weights.matmul(value)
    return result if wide is given else result.to(given)


def attention_probabilities(query: Any, key: Any, mask: Any, scale: float, causal: bool) -> Tensor:
    scores = query.matmul(key.transpose(-2, -1))
    if not scores.dtype.is_floating_point:
        raise RuntimeError(f"expected scalar type Float but found {scores.dtype.scalar_type}")
    if mask is not None:
        shape = broadcast_two(scores.shape, mask.shape)
        if shape != scores.shape:  # a mask with more batch dimensions than the scores
            scores = scores.expand(shape)
    return attention_weights(scores, mask, scale, causal)


@aten_only(
    "_scaled_dot_product_flash_attention_for_cpu",
    backward="_scaled_dot_product_flash_attention_for_cpu_backward(grad, query, key, value, result, result1, dropout_p, is_causal, attn_mask,"
    " scale) -> query, key, value",
)
def _attention_with_logarithms(
    query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None, scale: Any = None
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return attention, and the logarithm of the divisor of each row of weights."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query.detach() @ key.detach().transpose(-2, -1) * factor
    if is_causal:
        hidden = scores.new_ones(scores.shape[-2:], dtype=dt.bool_).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype is dt.bool_ else scores + attn_mask
    out = scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    return out, scores.logsumexp(-1)


@aten_parts("_scaled_dot_product_flash_attention_for_cpu")
def _(
    aten: Any, query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None, scale: Any = None
) -> tuple[Tensor, None]:  # fmt: skip
    factor = math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    queries = aten.mul.Scalar(query, factor)
    scores = aten.matmul.default(queries, aten.mul.Scalar(aten.transpose.int(key, -2, -1), factor))
    out = aten.matmul.default(softmax_of_seen(aten, scores, attn_mask, is_causal), value)
    rows = aten.clone.default(aten.permute.default(out, [2, 0, 1, 3]), memory_format=contiguous_format)
    return aten.permute.default(rows, [1, 2, 0, 3]), None  # in memory as PyTorch's kernel leaves it


def _gpu_attention(
    name: str, query: Tensor, key: Any, value: Any, mask: Any, dropout: float, causal: bool, scale: Any
) -> tuple[Any, ...]:
    """Return the results of PyTorch's operators of CUDA's libraries: attention, logarithms, lengths, random state and weights, of which the
    last four are empty."""
    if query.device.type != "cuda":
        kind = query.device.type.upper()
        raise NotImplementedError(f"Could not run 'aten::{name}' with arguments from the '{kind}' backend.")
    if dropout:
        raise NotImplementedError(f"aten::{name}: dropout_p={dropout}; scaled_dot_product_attention draws dropout")
    found = _attention_with_logarithms(query, key, value, 0.0, causal, attn_mask=mask, scale=scale)
    empty = query.new_empty(0)
    return *found, empty, empty, query.shape[-2], key.shape[-2], empty, empty, empty


@aten_only("_scaled_dot_product_flash_attention")
def _flash_of_gpu(query: Tensor, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *, scale: Any = None) -> tuple[Any, ...]:  # fmt: skip
    return _gpu_attention("_scaled_dot_product_flash_attention", query, key, value, None, dropout_p, is_causal, scale)


@aten_only("_scaled_dot_product_cudnn_attention")
def _cudnn_of_gpu(query: Tensor, key: Any, value: Any, attn_bias: Any, compute_log_sumexp: bool, dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *, scale: Any = None) -> tuple[Any, ...]:  # fmt: skip
    return _gpu_attention(
        "_scaled_dot_product_cudnn_attention", query, key, value, attn_bias, dropout_p, is_causal, scale
    )


def attention_gradients(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logs: Tensor, mask: Any, causal: bool, scale: Any
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of attention with respect to query, key and value from its result and the logarithms of its rows' sums."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.transpose(-2, -1) * factor
    scores = scores if mask is None else scores + mask
    weights = (scores - logs.unsqueeze(-1)).exp().to(query.dtype)
    weights = weights.tril() if causal else weights
    slopes = weights * (grad_out @ value.transpose(-2, -1) - (grad_out * out).sum(-1, True)) * factor
    return slopes @ key, slopes.transpose(-2, -1) @ query, weights.transpose(-2, -1) @ grad_out


@aten_only("_scaled_dot_product_flash_attention_backward")
def _(grad_out: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, cum_seq_q: Any, cum_seq_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool, philox_seed: Any, philox_offset: Any, *, scale: Any = None) -> tuple[Any, ...]:  # fmt: skip
    return attention_gradients(grad_out, query, key, value, out, logsumexp, None, is_causal, scale)


@aten_only("_scaled_dot_product_cudnn_attention_backward")
def _(grad_out: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, philox_seed: Any, philox_offset: Any, attn_bias: Any, cum_seq_q: Any, cum_seq_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool, *, scale: Any = None) -> tuple[Any, ...]:  # fmt: skip
    return attention_gradients(grad_out, query, key, value, out, logsumexp, attn_bias, is_causal, scale)
