"""Layers: convolutions, pooling, normalisations, attention, resizing, losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau

from ...ops.nn.windows import pooled_size
from ..builder import Absent, Builder, Value
from ..registry import aten, form
from .indexing import padded
from .pointwise import add, clamp, div, mul, sub
from .reductions import log_softmax, mean, softmax, sum_, variance
from .shapes import permute, transpose


def _many(value: Any, count: int) -> list[Any]:
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


# -- convolution -------------------------------------------------------------------------------------------------------------------


def _convolved(
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
    stride, dilation = _many(stride, spatial), _many(dilation, spatial)
    kernel = list(weight.shape[2:])
    extra: dict[str, Any] = {"dilations_i": dilation, "group_i": groups, "kernel_shape_i": kernel, "strides_i": stride}
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, kernel)]
        before, after = [t // 2 for t in totals], [t - t // 2 for t in totals]
    else:
        before = after = [0] * spatial if padding == "valid" else _many(padding, spatial)
    extra["pads_i"] = list(before) + list(after)
    out = _many(output_padding, spatial)
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
    return _convolved(g, input, weight, bias, stride, padding, dilation, False, 0, groups)


@form(aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d)
def conv_transpose(
    g: Builder, input: Value, weight: Value, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Value:  # fmt: skip
    return _convolved(g, input, weight, bias, stride, padding, dilation, True, output_padding, groups)


@form(aten.convolution, aten._convolution)
def convolution(
    g: Builder, input: Value, weight: Value, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int, benchmark: Any = None, deterministic: Any = None, cudnn_enabled: Any = None, allow_tf32: Any = None,
) -> Value:  # fmt: skip
    return _convolved(g, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


# -- pooling -------------------------------------------------------------------------------------------------------------------------


def _pooled(
    g: Builder, kind: str, x: Value, spatial: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, outputs: int = 1,
    **extra: Any,
) -> Any:  # fmt: skip
    unbatched = x.rank == spatial + 1
    if unbatched:
        x = g.unsqueeze(x, [0])
    kernel = _many(kernel, spatial)
    stride = _many(stride, spatial) if stride not in (None, []) else kernel
    padding, dilation = _many(padding, spatial), _many(dilation, spatial)
    if g.opset >= 10:
        extra["ceil_mode_i"] = int(ceil_mode)
        if kind == "MaxPool":
            extra["dilations_i"] = dilation
    elif ceil_mode or dilation != [1] * spatial:
        raise NotImplementedError("pooling with ceil_mode or dilation needs opset 10 or later")
    made = g.op(kind, x, kernel_shape_i=kernel, pads_i=padding * 2, strides_i=stride, outputs=outputs, **extra)
    shape = (*x.shape[:2], *[None] * spatial)  # the program tells the sizes
    outs = list(made) if outputs > 1 else [made]
    outs[0].known(x.dtype, shape)
    for o in outs[1:]:
        o.known(flambeau.int64, shape)
    outs = [g.squeeze(o, [0]) for o in outs] if unbatched else outs
    return tuple(outs) if outputs > 1 else outs[0]


@form(aten.max_pool1d, aten.max_pool2d, aten.max_pool3d)
def max_pool(
    g: Builder,
    self: Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    name: str = "",
) -> Value:
    return _pooled(g, "MaxPool", self, int(name[-2]), kernel_size, stride, padding, dilation, ceil_mode)


@form(aten.max_pool1d_with_indices, aten.max_pool2d_with_indices, aten.max_pool3d_with_indices)
def max_pool_with_indices(
    g: Builder,
    self: Value,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    name: str = "",
) -> Any:
    spatial = int(name.removesuffix("_with_indices")[-2])
    values, places = _pooled(g, "MaxPool", self, spatial, kernel_size, stride, padding, dilation, ceil_mode, outputs=2)
    sizes = [g.size(self, d - spatial) for d in range(spatial)]
    total: Any = 1
    for s in sizes:
        total = g.arithmetic("Mul", total, s)
    # ONNX counts through batch and channels, PyTorch within each.
    return values, g.op("Mod", places, g.number(total, flambeau.int64)).known(flambeau.int64, places.shape)


@form(aten.avg_pool1d, aten.avg_pool2d, aten.avg_pool3d)
def avg_pool(
    g: Builder, self: Value, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None, name: str = "",
) -> Value:  # fmt: skip
    spatial = int(name[-2])
    if divisor_override:
        kernel = _many(kernel_size, spatial)
        pads = [p for p in _many(padding, spatial)[::-1] for _ in (0, 1)]
        if ceil_mode:  # zeros up to the end of the last window
            steps = _many(stride or kernel, spatial)
            for i, (size, k, s, p) in enumerate(zip(self.shape[-spatial:], kernel, steps, _many(padding, spatial))):
                if not isinstance(size, int):
                    raise NotImplementedError("avg_pool with a divisor_override and ceil_mode, of sizes that change")
                count = pooled_size(size, k, s, p, 1, True)
                pads[2 * (spatial - 1 - i) + 1] += max((count - 1) * s + k - size - 2 * p, 0)
        made = _pooled(
            g,
            "AveragePool",
            padded(g, self, pads),
            spatial,
            kernel,
            stride or kernel,
            0,
            1,
            False,
            count_include_pad_i=1,
        )
        return mul(g, made, math.prod(kernel) / divisor_override)
    if ceil_mode and g.opset < 19 and count_include_pad and any(_many(padding, spatial)):
        # Older versions count what lies beyond the padding, too: padded first, there is nothing to count wrongly.
        self = padded(g, self, [p for p in _many(padding, spatial)[::-1] for _ in (0, 1)])
        padding, count_include_pad = 0, False
    return _pooled(
        g,
        "AveragePool",
        self,
        spatial,
        kernel_size,
        stride,
        padding,
        1,
        ceil_mode,
        count_include_pad_i=int(count_include_pad),
    )


@form(aten.adaptive_avg_pool1d, aten.adaptive_avg_pool2d, aten.adaptive_avg_pool3d, aten._adaptive_avg_pool2d)
def adaptive_avg_pool(g: Builder, self: Value, output_size: Any, name: str = "") -> Value:
    return _adaptive(g, self, output_size, int(name[-2]), False)


@form(aten.adaptive_max_pool1d, aten.adaptive_max_pool2d, aten.adaptive_max_pool3d)
def adaptive_max_pool(g: Builder, self: Value, output_size: Any, name: str = "") -> Any:
    spatial = int(name[-2])
    sizes = self.shape[-spatial:]
    wanted = _many(output_size, spatial)
    if all(isinstance(s, int) and s % n == 0 for s, n in zip(sizes, wanted)):
        kernel = [s // n for s, n in zip(sizes, wanted)]
        return max_pool_with_indices(g, self, kernel, kernel, name=f"aten::max_pool{spatial}d_with_indices")
    return _adaptive(g, self, output_size, spatial, True), Absent(
        "the places of the largest, where windows differ in size"
    )


def _adaptive(g: Builder, x: Value, wanted: Any, spatial: int, largest: bool) -> Value:
    unbatched = x.rank == spatial + 1
    if unbatched:
        x = g.unsqueeze(x, [0])
    wanted = [x.shape[2 + i] if n is None else n for i, n in enumerate(_many(wanted, spatial))]
    sizes = x.shape[2:]
    if wanted == [1] * spatial:
        made = g.op("GlobalMaxPool" if largest else "GlobalAveragePool", x).known(x.dtype, (*x.shape[:2], *wanted))
    elif all(isinstance(s, int) for s in sizes) and all(s % n == 0 for s, n in zip(sizes, wanted)):
        kernel = [s // n for s, n in zip(sizes, wanted)]
        extra = {} if largest else {"count_include_pad_i": 1}
        made = _pooled(g, "MaxPool" if largest else "AveragePool", x, spatial, kernel, kernel, 0, 1, False, **extra)
    elif all(isinstance(s, int) for s in sizes):
        made = _uneven(g, x, [int(s) for s in sizes], wanted, largest)
    else:
        raise NotImplementedError("adaptive pooling of sizes that change, to sizes other than 1")
    return g.squeeze(made, [0]) if unbatched else made


def _uneven(g: Builder, x: Value, sizes: list[int], wanted: list[int], largest: bool) -> Value:
    """Windows of different sizes, one dimension after the other."""
    for i, (size, n) in enumerate(zip(sizes, wanted)):
        dim = 2 + i
        parts = [
            g.reduce(
                "ReduceMax" if largest else "ReduceMean",
                g.slice(x, [dim], [k * size // n], [-(-(k + 1) * size // n)]),
                [dim],
                True,
            )
            for k in range(n)
        ]
        x = g.op("Concat", *parts, axis_i=dim).known(x.dtype, [n if d == dim else s for d, s in enumerate(x.shape)])
    return x


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


@form(aten.rms_norm)
def rms_norm(g: Builder, input: Value, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Value:
    dims = [input.rank - len(normalized_shape) + i for i in range(len(normalized_shape))]
    eps = flambeau.finfo(input.dtype).eps if eps is None else eps
    spread = g.op("Sqrt", add(g, mean(g, mul(g, input, input), dims, True), eps)).known(input.dtype, None)
    made = g.op("Div", input, spread).known(input.dtype, input.shape)
    return made if weight is None else mul(g, made, weight)


def _in_groups(g: Builder, x: Value, groups: int) -> Value:
    fixed = all(isinstance(n, int) for n in x.shape[1:])
    rest = math.prod(x.shape[1:]) // groups if fixed else -1
    return g.reshape(x, [0, groups, rest]).known(x.dtype, (x.shape[0], groups, rest if fixed else None))


@form(aten.group_norm)
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


@form(aten.instance_norm)
def instance_norm(
    g: Builder, input: Value, weight: Any = None, bias: Any = None, running_mean: Any = None, running_var: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5, cudnn_enabled: Any = None,
) -> Value:  # fmt: skip
    if not use_input_stats:
        return batch_norm(g, input, weight, bias, running_mean, running_var, False, momentum, eps)
    channels = input.shape[1]
    one, zero = (g.constant(np.full(channels, v).tolist(), input.dtype) for v in (1.0, 0.0))
    scale, shift = weight if weight is not None else one, bias if bias is not None else zero
    return g.op("InstanceNormalization", input, scale, shift, epsilon_f=eps).known(input.dtype, input.shape)


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


# -- resizing -------------------------------------------------------------------------------------------------------------------------------


def _resized(
    g: Builder,
    x: Value,
    mode: str,
    output_size: Any,
    scale_factors: Any,
    align_corners: Any,
    antialias: bool = False,
    exact: bool = False,
) -> Value:
    spatial = x.rank - 2
    where = "asymmetric" if mode == "nearest" else "align_corners" if align_corners else "half_pixel"
    extra: dict[str, Any] = {
        "coordinate_transformation_mode_s": where,
        "cubic_coeff_a_f": -0.75,
        "mode_s": mode,
        "nearest_mode_s": "floor",
    }
    if exact:
        extra.update(coordinate_transformation_mode_s="half_pixel", nearest_mode_s="round_prefer_ceil")
    if mode == "cubic" and antialias:
        extra["cubic_coeff_a_f"] = -0.5
    if antialias:
        if g.opset < 18:
            raise NotImplementedError("antialias needs opset 18 or later")
        extra["antialias_i"] = 1
    empty = g.constant(np.array([], np.float32)) if g.opset < 13 else None
    if output_size is not None:
        sizes = [*(g.size(x, d) for d in (0, 1)), *output_size]
        shape = (*x.shape[:2], *(n if isinstance(n, int) else None for n in output_size))
        return g.op("Resize", x, empty, empty, g.ints(sizes), **extra).known(x.dtype, shape)
    factors = [float(f) for f in _many(scale_factors, spatial)]
    shape = (*x.shape[:2], *(math.floor(s * f) if isinstance(s, int) else None for s, f in zip(x.shape[2:], factors)))
    scales = g.constant(np.array([1.0, 1.0, *factors], np.float32))
    return g.op("Resize", x, empty, scales, **extra).known(x.dtype, shape)


def _factors(spatial: int, *given: Any) -> Any:
    for value in given:
        if value is not None and not (isinstance(value, (list, tuple)) and not value):
            return value
    return None


@form(
    aten.upsample_nearest1d,
    aten.upsample_nearest2d,
    aten.upsample_nearest3d,
    aten._upsample_nearest_exact1d,
    aten._upsample_nearest_exact2d,
    aten._upsample_nearest_exact3d,
    since=11,
)
def upsample_nearest(
    g: Builder, self: Any = None, output_size: Any = None, scales: Any = None, scales_h: Any = None, scales_w: Any = None, scales_d: Any = None,
    input: Any = None, scale_factors: Any = None, name: str = "",
) -> Value:  # fmt: skip
    x = self if self is not None else input
    return _resized(g, x, "nearest", output_size, scale_factors, None, exact="exact" in name)


@form(
    aten.upsample_linear1d,
    aten.upsample_bilinear2d,
    aten.upsample_trilinear3d,
    aten.upsample_bicubic2d,
    aten._upsample_bilinear2d_aa,
    aten._upsample_bicubic2d_aa,
    since=11,
)
def upsample_linear(
    g: Builder, self: Any = None, output_size: Any = None, align_corners: bool = False, scales: Any = None, scales_h: Any = None,
    scales_w: Any = None, scales_d: Any = None, input: Any = None, scale_factors: Any = None, name: str = "",
) -> Value:  # fmt: skip
    x = self if self is not None else input
    mode = "cubic" if "cubic" in name else "linear"
    return _resized(g, x, mode, output_size, scale_factors, align_corners, antialias=name.endswith("_aa"))


@form(aten.grid_sampler, aten.grid_sampler_2d, aten.grid_sampler_3d, since=16)
def grid_sampler(
    g: Builder, input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    words = ("linear", "nearest", "cubic") if g.opset >= 20 else ("bilinear", "nearest", "bicubic")
    made = g.op(
        "GridSample", input, grid, mode_s=words[interpolation_mode], padding_mode_s=("zeros", "border", "reflection")[padding_mode],
        align_corners_i=int(bool(align_corners)),
    )  # fmt: skip
    return made.known(input.dtype, (*input.shape[:2], *grid.shape[1:-1]))


@form(aten.affine_grid_generator)
def affine_grid(g: Builder, theta: Value, size: Any, align_corners: bool) -> Value:
    if g.opset < 20:
        raise NotImplementedError("affine_grid needs opset 20 or later")
    made = g.op("AffineGrid", theta, g.ints(size), align_corners_i=int(align_corners))
    fixed = [n if isinstance(n, int) else None for n in size]
    return made.known(theta.dtype, (fixed[0], *fixed[2:], len(fixed) - 2))


@form(aten.im2col)
def im2col(g: Builder, self: Value, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    x = padded(g, self, [padding[1], padding[1], padding[0], padding[0]])
    _, channels, high, wide = x.shape
    if not isinstance(high, int) or not isinstance(wide, int):
        raise NotImplementedError("im2col of sizes that change")
    rows = [
        range(i * dilation[0], i * dilation[0] + high - dilation[0] * (kernel_size[0] - 1), stride[0])
        for i in range(kernel_size[0])
    ]
    columns = [
        range(i * dilation[1], i * dilation[1] + wide - dilation[1] * (kernel_size[1] - 1), stride[1])
        for i in range(kernel_size[1])
    ]
    places = np.array([[r * wide + c for r in rs for c in cs] for rs in rows for cs in columns], np.int64)
    flat = g.reshape(x, [g.size(x, 0), channels, high * wide])
    picked = g.op("Gather", flat, g.constant(places), axis_i=2).known(self.dtype, None)
    total = channels * len(places)
    return g.reshape(picked, [g.size(self, 0), total, places.shape[1]]).known(
        self.dtype, (self.shape[0], total, places.shape[1])
    )


@form(aten.col2im, since=18)
def col2im(
    g: Builder, self: Value, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Value:
    made = g.op(
        "Col2Im",
        self,
        g.ints(output_size),
        g.ints(kernel_size),
        dilations_i=dilation,
        pads_i=list(padding) * 2,
        strides_i=stride,
    )
    return made.known(self.dtype, (self.shape[0], self.shape[1] // math.prod(kernel_size), *output_size))


# -- losses -------------------------------------------------------------------------------------------------------------------------------------


def _collected(g: Builder, x: Value, reduction: int) -> Value:
    return x if reduction == 0 else mean(g, x) if reduction == 1 else sum_(g, x)


@form(aten.mse_loss)
def mse_loss(g: Builder, self: Value, target: Value, reduction: int = 1) -> Value:
    off = sub(g, self, target)
    return _collected(g, mul(g, off, off), reduction)


@form(aten.l1_loss)
def l1_loss(g: Builder, self: Value, target: Value, reduction: int = 1) -> Value:
    off = sub(g, self, target)
    return _collected(g, g.op("Abs", off).known(off.dtype, off.shape), reduction)


@form(aten.smooth_l1_loss, aten.huber_loss)
def smooth_l1_loss(
    g: Builder, self: Value, target: Value, reduction: int = 1, beta: float = 1.0, delta: Any = None, name: str = ""
) -> Value:
    off = sub(g, self, target)
    size = g.op("Abs", off).known(off.dtype, off.shape)
    edge = beta if delta is None else delta
    low = mul(g, mul(g, off, off), 0.5 if delta is not None else 0.5 / edge)
    high = sub(g, size, 0.5 * edge)
    if delta is not None:
        high = mul(g, high, delta)
    made = g.op("Where", g.op("Less", size, g.number(edge, size)), low, high).known(off.dtype, off.shape)
    return _collected(g, made, reduction)


@form(aten.binary_cross_entropy)
def binary_cross_entropy(g: Builder, self: Value, target: Value, weight: Any = None, reduction: int = 1) -> Value:
    logs = [clamp(g, g.op("Log", x).known(self.dtype, self.shape), -100) for x in (self, sub(g, 1, self))]
    made = add(g, mul(g, target, logs[0]), mul(g, sub(g, 1, target), logs[1]))
    made = g.op("Neg", made).known(self.dtype, self.shape)
    return _collected(g, made if weight is None else mul(g, made, weight), reduction)


@form(aten.binary_cross_entropy_with_logits)
def binary_cross_entropy_with_logits(
    g: Builder, self: Value, target: Value, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Value:
    inside = g.op("Neg", g.op("Softplus", g.op("Neg", self))).known(self.dtype, self.shape)  # log of the sigmoid
    first = mul(g, sub(g, 1, target), self)
    if pos_weight is not None:
        scale = add(g, mul(g, sub(g, pos_weight, 1), target), 1)
        inside = mul(g, inside, scale)
    made = sub(g, first, inside)
    return _collected(g, made if weight is None else mul(g, made, weight), reduction)


def _reduction(number: int) -> str:
    return ("none", "mean", "sum")[number]


@form(aten.nll_loss, aten.nll_loss2d, aten.nll_loss_nd, since=12)
def nll_loss(
    g: Builder, self: Value, target: Value, weight: Any = None, reduction: int = 1, ignore_index: int = -100
) -> Value:
    x, t = (g.unsqueeze(v, [0]) for v in (self, target)) if self.rank == 1 else (self, target)
    made = g.op(
        "NegativeLogLikelihoodLoss", x, t, weight, reduction_s=_reduction(reduction), ignore_index_i=ignore_index
    )
    made.known(self.dtype, t.shape if reduction == 0 else ())
    return g.squeeze(made, [0]) if self.rank == 1 and reduction == 0 else made


def _by_class(g: Builder, weight: Value, rank: int) -> Value:
    return weight if rank == 1 else g.unsqueeze(weight, [0, *range(2, rank)])


def _soft_cross_entropy(g: Builder, x: Value, target: Value, weight: Any, reduction: int, smoothing: float) -> Value:
    """The target says how probable each class is."""
    dim = 1 if x.rank > 1 else 0
    if smoothing:
        target = add(g, mul(g, target, 1 - smoothing), smoothing / x.shape[dim])
    logs = mul(g, log_softmax(g, x, dim), target)
    if weight is not None:
        logs = mul(g, logs, _by_class(g, weight, x.rank))
    made = sum_(g, logs, dim)
    made = g.op("Neg", made).known(x.dtype, made.shape)
    if reduction != 1:
        return _collected(g, made, reduction)
    count = g.size(x, 0) if dim else 1
    for d in range(2, x.rank):
        count = g.arithmetic("Mul", count, g.size(x, d))
    return div(g, sum_(g, made), g.number(count, x.dtype))


def _smoothed_cross_entropy(
    g: Builder, x: Value, target: Value, weight: Any, reduction: int, ignore_index: int, smoothing: float
) -> Value:
    """Part of the loss is that of all classes alike."""
    dim = 1 if x.rank > 1 else 0
    logs = log_softmax(g, x, dim)
    hard = nll_loss(g, logs, target, weight, reduction, ignore_index)
    every = sum_(g, logs if weight is None else mul(g, logs, _by_class(g, weight, x.rank)), dim)
    used = g.op("Equal", target, g.number(ignore_index, target)).known(flambeau.bool, target.shape)
    smooth = g.op("Where", used, g.number(0, x), g.op("Neg", every)).known(x.dtype, every.shape)
    if reduction == 1:
        if weight is None:
            count = sum_(g, g.cast(g.op("Not", used).known(flambeau.bool, used.shape), x.dtype))
        else:
            own = g.op("Gather", weight, g.op("Where", used, g.number(0, target), target), axis_i=0)
            count = sum_(g, g.op("Where", used, g.number(0, x), own).known(x.dtype, target.shape))
        smooth = div(g, sum_(g, smooth), count)
    elif reduction == 2:
        smooth = sum_(g, smooth)
    return add(g, mul(g, hard, 1 - smoothing), mul(g, smooth, smoothing / x.shape[dim]))


@form(aten.soft_margin_loss)
def soft_margin_loss(g: Builder, self: Value, target: Value, reduction: int = 1) -> Value:
    inner = mul(g, g.op("Neg", self).known(self.dtype, self.shape), target)
    return _collected(g, g.op("Softplus", inner).known(inner.dtype, inner.shape), reduction)


@form(aten.cross_entropy_loss, since=12)
def cross_entropy_loss(
    g: Builder,
    self: Value,
    target: Value,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    if target.dtype.is_floating_point:
        return _soft_cross_entropy(g, self, target, weight, reduction, label_smoothing)
    if label_smoothing:
        return _smoothed_cross_entropy(g, self, target, weight, reduction, ignore_index, label_smoothing)
    if self.rank == 1:
        return nll_loss(g, log_softmax(g, self, 0), target, weight, reduction, ignore_index)
    made = g.op(
        "SoftmaxCrossEntropyLoss", self, target, weight, reduction_s=_reduction(reduction), ignore_index_i=ignore_index
    )
    return made.known(self.dtype, target.shape if reduction == 0 else ())


@form(aten.kl_div)
def kl_div(g: Builder, self: Value, target: Value, reduction: int = 1, log_target: bool = False) -> Value:
    if log_target:
        made = mul(g, g.op("Exp", target).known(target.dtype, target.shape), sub(g, target, self))
    else:
        term = mul(g, target, sub(g, g.op("Log", target).known(target.dtype, target.shape), self))
        positive = g.op("Greater", target, g.number(0, target))
        made = g.op("Where", positive, term, g.number(0, target)).known(target.dtype, term.shape)
    return _collected(g, made, reduction)


@form(aten.conv_tbc)
def conv_tbc(g: Builder, self: Value, weight: Value, bias: Value, pad: int = 0) -> Value:
    x = permute(g, self, [1, 2, 0])
    w = permute(g, weight, [2, 1, 0])
    return permute(g, _convolved(g, x, w, bias, 1, pad, 1, False, 0, 1), [2, 0, 1])
