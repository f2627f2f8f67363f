"""Layers and losses that are exported as calls of others: functions of tensors, with the parameters of PyTorch's schemas (see `parts`)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import flambeau

from ...core.tensor import Tensor
from ...nn import functional as F  # noqa: N812
from ...ops.nn.windows import pooled_size
from ..functions import current_opset
from ..registry import aten, made_of


@made_of(aten.layer_norm, before=17)
def layer_norm(
    x: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True
) -> Tensor:
    return native_layer_norm(x, normalized_shape, weight, bias, eps)[0]


@made_of(aten.native_layer_norm, before=17)
def native_layer_norm(x: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Tensor, ...]:
    dims = list(range(-len(normalized_shape), 0))
    centre = x.mean(dims, keepdim=True)
    off = x - centre
    spread = (off.pow(2.0).mean(dims, keepdim=True) + eps).sqrt()
    made = off / spread
    made = made if weight is None else made * weight
    return made if bias is None else made + bias, centre, spread.reciprocal()


@made_of(aten.native_group_norm)
def native_group_norm(
    x: Tensor, weight: Any, bias: Any, n: int, channels: int, size: int, group: int, eps: float
) -> tuple[Tensor, ...]:
    grouped = x.reshape(x.shape[0], group, math.prod(x.shape[1:]) // group)
    spread, centre = flambeau.var_mean(grouped, 2, correction=0)
    return F.group_norm(x, group, weight, bias, eps), centre, (spread + eps).rsqrt()


def _repeat_setting(value: Any, count: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


@made_of(aten.avg_pool2d, aten.avg_pool3d)
def avg_pool(
    x: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    count = 2 if isinstance(kernel_size, int) or len(kernel_size) < 3 else 3
    kernel, pads = _repeat_setting(kernel_size, count), _repeat_setting(padding, count)
    steps = _repeat_setting(stride, count) if stride else kernel
    whole: Any = aten.avg_pool2d.default if count == 2 else aten.avg_pool3d.default
    around = [n for p in reversed(pads) for n in (p, p)]
    if divisor_override:
        for i, (size, k, s, p) in enumerate(zip(reversed(x.shape), reversed(kernel), reversed(steps), reversed(pads))):
            last = (pooled_size(size, k, s, p, 1, True) - 1) * s + k  # the end of the last window: zeros up to there
            around[2 * i + 1] = max(last - size - p, p) if ceil_mode else p
        return whole(F.pad(x, around), kernel, steps) * (math.prod(kernel) / divisor_override)
    if ceil_mode and count_include_pad and any(pads) and current_opset() < 19:
        # Older versions also count elements beyond the padding: with explicit padding before, none are.
        return whole(F.pad(x, around), kernel, steps, 0, True, False)
    return whole(x, kernel, steps, pads, ceil_mode, count_include_pad)


def _windows(size: int, count: int) -> list[tuple[int, int]]:
    """Return the windows of adaptive pooling along one dimension, as (start, end)."""
    return [(k * size // count, -(-(k + 1) * size // count)) for k in range(count)]


def _pool_uneven(x: Tensor, output_size: Any, reduce: Any) -> Tensor:
    """Pool over windows of different sizes, one dimension after the other."""
    for dim, count in zip(range(x.dim() - len(output_size), x.dim()), output_size):
        parts = [x.narrow(dim, a, b - a) for a, b in _windows(x.shape[dim], count)]
        x = flambeau.cat([reduce(part, dim, keepdim=True) for part in parts], dim)
    return x


def _even_windows(x: Tensor, output_size: Any) -> list[int] | None:
    """Return the window sizes of adaptive pooling if all windows are equal; else None."""
    sizes = x.shape[x.dim() - len(output_size) :]
    fits = all(size % n == 0 for size, n in zip(sizes, output_size))
    return [size // n for size, n in zip(sizes, output_size)] if fits else None


@made_of(aten.adaptive_avg_pool1d, aten.adaptive_avg_pool2d, aten.adaptive_avg_pool3d, aten._adaptive_avg_pool2d)
def adaptive_avg_pool(x: Tensor, output_size: Any) -> Tensor:
    count = len(output_size)
    if x.dim() == count + 1:
        return adaptive_avg_pool(x.unsqueeze(0), output_size).squeeze(0)
    if all(n == 1 for n in output_size):
        return getattr(aten, f"adaptive_avg_pool{count}d").default(x, output_size)
    kernel = _even_windows(x, output_size)
    return getattr(F, f"avg_pool{count}d")(x, kernel, kernel) if kernel else _pool_uneven(x, output_size, flambeau.mean)


@made_of(aten.adaptive_max_pool1d, aten.adaptive_max_pool2d, aten.adaptive_max_pool3d)
def adaptive_max_pool(x: Tensor, output_size: Any) -> Any:
    kernel = _even_windows(x, output_size)
    if kernel:
        return getattr(F, f"max_pool{len(output_size)}d")(x, kernel, kernel, return_indices=True)
    sizes = x.shape[x.dim() - len(output_size) :]
    lead = x.shape[: x.dim() - len(output_size)]
    places = flambeau.arange(math.prod(sizes)).reshape(sizes)
    found = []
    for window in itertools.product(*map(_windows, sizes, output_size)):
        inside = (..., *(slice(a, b) for a, b in window))
        best = x[inside].reshape(*lead, -1).argmax(-1)
        found.append(aten.index.Tensor(places[inside].reshape(-1), [best]))
    return _pool_uneven(x, output_size, flambeau.amax), flambeau.stack(found, -1).reshape(*lead, *output_size)


@made_of(aten.convolution, aten._convolution)
def convolution(
    x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int,
    *how: Any,
) -> Tensor:  # fmt: skip
    if x.dim() < weight.dim():
        rest = (weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        return convolution(x.unsqueeze(0), *rest).squeeze(0)
    whole = aten.convolution.default
    if not transposed or all(o < s for o, s in zip(output_padding, stride)):
        return whole(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    # Engines refuse so much: it is added, or less cut off.
    made = whole(x, weight, None, stride, [0], dilation, True, [0], groups)
    made = F.pad(made, [n for p, o in zip(reversed(padding), reversed(output_padding)) for n in (-p, o - p)])
    return made if bias is None else made + bias.reshape(-1, *[1] * (x.dim() - 2))


@made_of(aten.conv1d, aten.conv2d, aten.conv3d)
def conv(
    x: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    if padding == "same":
        whole = [d * (k - 1) for d, k in zip(_repeat_setting(dilation, weight.dim() - 2), weight.shape[2:])]
        if any(n % 2 for n in whole):  # Conv pads equally on both sides
            x, padding = F.pad(x, [p for n in reversed(whole) for p in (n // 2, n - n // 2)]), "valid"
    packet = getattr(aten, f"conv{weight.dim() - 2}d")
    overload = packet.padding if isinstance(padding, str) else packet.default
    return overload.decompose(x, weight, bias, stride, padding, dilation, groups)


@made_of(aten.scaled_dot_product_attention)
def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = _scores(query, key, attn_mask, is_causal, scale)
    weights = F.softmax(scores, -1)
    if attn_mask is not None and attn_mask.dtype == flambeau.bool:  # rows that see nothing give zeros, not nan
        weights = flambeau.where(weights.isnan(), 0, weights)
    return (F.dropout(weights, dropout_p) if dropout_p else weights) @ value


def _scores(query: Tensor, key: Tensor, attn_mask: Any, is_causal: bool, scale: float | None) -> Tensor:
    """Return the attention scores of queries and keys, masked, before the softmax."""
    factor = (1 / math.sqrt(int(query.shape[-1])) if scale is None else scale) ** 0.5
    scores = (query * factor) @ (key.transpose(-2, -1) * factor)
    if is_causal:
        keep = flambeau.ones(query.shape[-2], key.shape[-2], dtype=query.dtype).tril().to(flambeau.bool)
        scores = flambeau.where(keep, scores, -math.inf)
    if attn_mask is None:
        return scores
    return flambeau.where(attn_mask, scores, -math.inf) if attn_mask.dtype == flambeau.bool else scores + attn_mask


@made_of(aten._scaled_dot_product_flash_attention_for_cpu)
def flash_attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    made = attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    return made, _scores(query, key, attn_mask, is_causal, scale).logsumexp(-1)


# -- losses -------------------------------------------------------------------------------------------------------------------------


def _reduce_loss(x: Tensor, reduction: int) -> Tensor:
    return x if reduction == 0 else x.mean() if reduction == 1 else x.sum()


@made_of(aten.binary_cross_entropy)
def binary_cross_entropy(x: Tensor, target: Tensor, weight: Any = None, reduction: int = 1) -> Tensor:
    yes, no = (flambeau.log(share).clamp_min(-100) for share in (x, 1 - x))
    made = -(target * yes + (1 - target) * no)
    return _reduce_loss(made if weight is None else made * weight, reduction)


@made_of(aten.cross_entropy_loss)
def cross_entropy_loss(
    x: Tensor, target: Tensor, weight: Any = None, reduction: int = 1, ignore_index: int = -100, label_smoothing: float = 0.0
) -> Tensor:  # fmt: skip
    if x.dim() > 1 and not label_smoothing and not target.is_floating_point():
        return aten.cross_entropy_loss.default(x, target, weight, reduction, ignore_index)
    dim = 1 if x.dim() > 1 else 0
    logs, each = F.log_softmax(x, dim), label_smoothing / x.shape[dim]  # what every class gets
    scaled = logs if weight is None else logs * weight.reshape(-1, *[1] * (x.dim() - 2))
    if target.is_floating_point():  # how probable each class is
        share = target * (1 - label_smoothing) + each if label_smoothing else target
        return _reduce_loss(-(scaled * share).sum(dim), reduction)
    hard = aten.nll_loss_nd.default(logs, target, weight, reduction, ignore_index)
    if not label_smoothing:
        return hard
    used = target != ignore_index
    smooth = flambeau.where(used, -scaled.sum(dim), 0)
    if reduction:
        smooth = smooth.sum()
    if reduction == 1:
        smooth = smooth / _total_weight(x, target, weight, ignore_index)
    return hard * (1 - label_smoothing) + smooth * each


def _total_weight(x: Tensor, target: Tensor, weight: Any, ignore_index: int) -> Tensor:
    """Return the divisor of a mean over targets: the sum of their class weights, without ignored targets."""
    used = target != ignore_index
    own = used.to(x.dtype)
    own = own if weight is None else own * weight.index_select(0, (target * used).reshape(-1)).reshape(target.shape)
    return own.sum()


@made_of(aten.nll_loss_forward, aten.nll_loss2d_forward)
def nll_loss_forward(x: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int) -> tuple[Tensor, ...]:
    loss = aten.nll_loss_nd.default(x, target, weight, reduction, ignore_index)
    counted = reduction or not target.dim()
    return loss, _total_weight(x, target, weight, ignore_index) if counted else flambeau.zeros((), dtype=x.dtype)
