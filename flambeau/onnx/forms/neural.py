"""Layers: convolutions, pooling, normalisations, attention, resizing, losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau

from ..builder import Builder, Value
from ..registry import aten, form
from .indexing import padded
from .pointwise import add, mul, sub
from .reductions import mean, softmax, variance
from .shapes import transpose


def many(value: Any, count: int) -> list[Any]:
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


# -- convolution -------------------------------------------------------------------------------------------------------------------


def convolved(
    g: Builder,
    x: Value,
    weight: Value,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Value:
    spatial = (weight.rank or 3) - 2
    unbatched = x.rank == spatial + 1
    if unbatched:
        x = g.unsqueeze(x, [0])
    stride, dilation = many(stride, spatial), many(dilation, spatial)
    kernel = list(weight.shape[2:])
    extra: dict[str, Any] = {"dilations_i": dilation, "group_i": groups, "kernel_shape_i": kernel, "strides_i": stride}
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, kernel)]
        before, after = [t // 2 for t in totals], [t - t // 2 for t in totals]
    else:
        before = after = [0] * spatial if padding == "valid" else many(padding, spatial)
    extra["pads_i"] = list(before) + list(after)
    out = many(output_padding, spatial)
    if transposed and any(o >= s for o, s in zip(out, stride)):  # engines refuse it: less is cut off at the end instead
        extra["pads_i"] = [*before, *(max(p - o, 0) for p, o in zip(after, out))]
        return _lengthened(g, x, weight, bias, extra, [max(o - p, 0) for p, o in zip(after, out)], unbatched)
    if transposed and any(out):
        extra["output_padding_i"] = out
    made = g.op("ConvTranspose" if transposed else "Conv", x, weight, bias, **extra)
    made.known(x.dtype, (x.shape[0], weight.shape[1] * groups if transposed else weight.shape[0], *[None] * spatial))
    return g.squeeze(made, [0]) if unbatched else made


def _lengthened(
    g: Builder, x: Value, weight: Value, bias: Any, extra: dict[str, Any], more: list[int], unbatched: bool
) -> Value:
    """A transposed convolution with zeros after its end, and then the bias."""
    made = g.op("ConvTranspose", x, weight, **extra)
    channels = weight.shape[1] * extra["group_i"]
    made.known(x.dtype, (x.shape[0], channels, *[None] * len(more)))
    if any(more):
        made = padded(g, made, [n for m in reversed(more) for n in (0, m)])
    if bias is not None:
        made = g.op("Add", made, g.reshape(bias, [1, channels, *[1] * len(more)])).known(made.dtype, made.shape)
    return g.squeeze(made, [0]) if unbatched else made


@form(aten.conv1d, aten.conv2d, aten.conv3d, aten._convolution_mode)
def conv(
    g: Builder,
    input: Value,
    weight: Value,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    return convolved(g, input, weight, bias, stride, padding, dilation, False, 0, groups)


@form(aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d)
def conv_transpose(
    g: Builder, input: Value, weight: Value, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Value:  # fmt: skip
    return convolved(g, input, weight, bias, stride, padding, dilation, True, output_padding, groups)


@form(aten.convolution, aten._convolution)
def convolution(
    g: Builder, input: Value, weight: Value, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int, benchmark: Any = None, deterministic: Any = None, cudnn_enabled: Any = None, allow_tf32: Any = None,
) -> Value:  # fmt: skip
    return convolved(g, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


# -- normalisations ----------------------------------------------------------------------------------------------------------------------


@form(aten.batch_norm, aten._native_batch_norm_legit_no_training)
def batch_norm(
    g: Builder, input: Value, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool = False, momentum: float = 0.1,
    eps: float = 1e-5, cudnn_enabled: Any = None, name: str = "",
) -> Any:  # fmt: skip
    if weight is None or bias is None:
        held = next((v for v in (weight, bias, running_mean) if v is not None and v.shape), None)
        channels = held.shape[0] if held is not None else input.shape[min(1, input.rank - 1)]
        if not isinstance(channels, int):
            raise NotImplementedError("batch_norm without weights of channels whose number is not known")
        ones, zeros = (g.constant(np.full(channels, v).tolist(), input.dtype) for v in (1.0, 0.0))
        weight, bias = weight if weight is not None else ones, bias if bias is not None else zeros
    if training or running_mean is None:
        if running_mean is not None and g.opset >= 14 and g.training:
            made = g.op(
                "BatchNormalization", input, weight, bias, running_mean, running_var, epsilon_f=eps, momentum_f=1 - momentum,
                training_mode_i=1, outputs=3,
            )[0]  # fmt: skip
            return made.known(input.dtype, input.shape)
        return _normalised(g, input, [d for d in range(input.rank) if d != 1], weight, bias, eps)
    extra = {"training_mode_i": 0} if g.opset >= 15 else {}
    made = g.op(
        "BatchNormalization",
        input,
        weight,
        bias,
        running_mean,
        running_var,
        epsilon_f=eps,
        momentum_f=1 - momentum,
        **extra,
    )
    made.known(input.dtype, input.shape)
    return (made, None, None) if name.endswith("no_training") else made


def _normalised(g: Builder, x: Value, dims: list[int], weight: Any, bias: Any, eps: float) -> Value:
    off = sub(g, x, mean(g, x, dims, True))
    spread = g.op("Sqrt", add(g, mean(g, mul(g, off, off), dims, True), eps)).known(x.dtype, None)
    made = g.op("Div", off, spread).known(x.dtype, x.shape)
    for value, kind in ((weight, "Mul"), (bias, "Add")):
        if value is not None:
            shaped = g.reshape(value, [1, -1, *([1] * (x.rank - 2))])
            made = g.op(kind, made, shaped).known(x.dtype, x.shape)
    return made


@form(aten.layer_norm, aten.native_layer_norm)
def layer_norm(
    g: Builder, input: Value, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: Any = None,
    name: str = "",
) -> Any:  # fmt: skip
    count = len(normalized_shape)
    axis = -count
    if g.opset >= 17 and all(isinstance(n, int) for n in normalized_shape):
        scale = weight if weight is not None else g.constant(np.ones(normalized_shape).tolist(), input.dtype)
        made = g.op("LayerNormalization", input, scale, bias, axis_i=axis, epsilon_f=eps)
    else:
        dims = [input.rank + axis + i for i in range(count)]
        off = sub(g, input, mean(g, input, dims, True))
        spread = g.op(
            "Sqrt",
            add(g, mean(g, g.op("Pow", off, g.number(2.0, input)).known(input.dtype, input.shape), dims, True), eps),
        )
        made = g.op("Div", off, spread).known(input.dtype, input.shape)
        if weight is not None:
            made = g.op("Mul", made, weight)
        if bias is not None:
            made = g.op("Add", made, bias)
    made.known(input.dtype, input.shape)
    if not name.endswith("native_layer_norm"):
        return made
    dims = list(range((input.rank or 0) - count, input.rank or 0))
    centre = mean(g, input, dims, True)
    off = sub(g, input, centre)
    spread = g.op("Sqrt", add(g, mean(g, mul(g, off, off), dims, True), eps))
    return made, centre, g.op("Reciprocal", spread).known(input.dtype, centre.shape)


def _in_groups(g: Builder, x: Value, groups: int) -> Value:
    fixed = all(isinstance(n, int) for n in x.shape[1:])
    rest = math.prod(x.shape[1:]) // groups if fixed else -1
    return g.reshape(x, [0, groups, rest]).known(x.dtype, (x.shape[0], groups, rest if fixed else None))


def group_norm(
    g: Builder,
    input: Value,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: Any = None,
) -> Value:
    x = _in_groups(g, input, num_groups)
    one, zero = (g.constant(np.full(num_groups, v).tolist(), input.dtype) for v in (1.0, 0.0))
    made = g.op("InstanceNormalization", x, one, zero, epsilon_f=eps)
    made = g.op("Reshape", made, g.shape_of(input)).known(input.dtype, input.shape)
    for value, kind in ((weight, "Mul"), (bias, "Add")):
        if value is not None:
            shaped = g.unsqueeze(value, list(range(1, input.rank - 1)))
            made = g.op(kind, made, shaped).known(input.dtype, input.shape)
    return made


@form(aten.native_group_norm)
def native_group_norm(
    g: Builder,
    input: Value,
    weight: Any,
    bias: Any,
    N: Any,
    C: Any,
    HxW: Any,
    group: int,
    eps: float,  # noqa: N803  PyTorch's names
) -> tuple[Value, ...]:
    x = _in_groups(g, input, group)
    spread, centre = variance(g, x, 2, 0, False)
    inverse = g.op("Reciprocal", g.op("Sqrt", add(g, spread, eps))).known(input.dtype, spread.shape)
    return group_norm(g, input, group, weight, bias, eps), centre, inverse


# -- attention ---------------------------------------------------------------------------------------------------------------------------


@form(aten.scaled_dot_product_attention)
def attention(
    g: Builder, query: Value, key: Value, value: Value, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: Any = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    if dropout_p and g.training:
        raise NotImplementedError("attention with dropout while training")
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = (_shared_heads(g, x, times) for x in (key, value))
    width = query.shape[-1]
    factor = (1 / math.sqrt(width) if scale is None else scale) ** 0.5
    left = mul(g, query, factor)
    right = mul(g, transpose(g, key, -2, -1), factor)
    scores = g.op("MatMul", left, right).known(query.dtype, (*query.shape[:-1], key.shape[-2]))
    if is_causal:
        rows, columns = g.size(query, -2), g.size(key, -2)
        one = g.expand(g.constant(1.0, query.dtype), [rows, columns])
        keep = g.cast(
            g.op("Trilu", one, g.constant(0, flambeau.int64), upper_i=0).known(query.dtype, one.shape), flambeau.bool
        )
        scores = g.op("Where", keep, scores, g.number(-math.inf, query)).known(query.dtype, scores.shape)
    if attn_mask is not None:
        if attn_mask.dtype == flambeau.bool:
            scores = g.op("Where", attn_mask, scores, g.number(-math.inf, query)).known(query.dtype, scores.shape)
        else:
            scores = add(g, scores, attn_mask).known(query.dtype, scores.shape)
    weights = softmax(g, scores, -1)
    if attn_mask is not None and attn_mask.dtype == flambeau.bool:  # rows that see nothing give zeros, not nan
        weights = g.op("Where", g.op("IsNaN", weights), g.number(0, query), weights).known(query.dtype, weights.shape)
    return g.op("MatMul", weights, value).known(query.dtype, (*query.shape[:-1], value.shape[-1]))


def _shared_heads(g: Builder, x: Value, times: int) -> Value:
    wide = g.unsqueeze(x, [x.rank - 2])
    sizes = [1] * (x.rank + 1)
    sizes[x.rank - 2] = times
    spread = g.op("Tile", wide, g.ints(sizes))
    heads = x.shape[-3] * times
    lead = [g.size(x, d) for d in range(x.rank - 3)]
    return g.reshape(spread.known(x.dtype, None), [*lead, heads, g.size(x, -2), x.shape[-1]]).known(
        x.dtype, (*x.shape[:-3], heads, *x.shape[-2:])
    )
