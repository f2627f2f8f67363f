"""Pooling, normalisation, softmax and resizing of quantized tensors.

Pools and resizing work on codes as floats, which hold them exactly, and round once; so do PyTorch's. Normalisation fuses the scales
into its own factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.layout import channels_last, channels_last_3d
from ...core.quantized import CODE_DTYPES, CODE_RANGES, QuantizedTensor, per_tensor
from ...core.tensor import Tensor
from ...expr.functions import cast, fma, maximum, round_
from ..linalg import matmul as products
from ..machinery.memory import values_on_host
from ..machinery.quantized_dispatch import on_codes, quantized_form
from ..machinery.record import OPS
from ..nn import avg_pool, grid_sample, max_pool, resize, shuffle
from ..nn import softmax as softmax_operators
from ..shape import padding
from .codes import clipped, code_of, decoded, encoded, float32, formula, inverse, quantized, values_of
from .forms import one_scale
from .linear import quantized_operator
from .packed import row

# -- pools and resizing ----------------------------------------------------------------------------------------------------


@formula
def nearest_codes(value, zero=0.0, low=0.0, high=0.0):
    """Codes of floats that are multiples of the scale, after adding the zero point."""
    return clipped(round_(value + zero), low, high)


def _as_floats(t: Any) -> Tensor:
    """Return code - zero point as floats, which hold all codes exactly."""
    return t._codes.to(dt.float64 if t.dtype is dt.qint32 else dt.float32) - float(t._quantizer.zero_point)


def _rounded(values: Tensor, like: Any) -> Tensor:
    q = like._quantizer
    low, high = CODE_RANGES[like.dtype]
    if values.dtype is dt.float64:
        codes = (values + float(q.zero_point)).round().clamp(low, high).to(CODE_DTYPES[like.dtype])
    else:
        codes = nearest_codes.call((values,), (float(q.zero_point), float(low), float(high)), CODE_DTYPES[like.dtype])
    return per_tensor(codes, q.scale, q.zero_point, like.dtype)


def _on_codes_as_floats(operator: Any) -> None:
    def form(input: Any, *args: Any, **kwargs: Any) -> Tensor:
        one_scale(input, operator.op.name)
        return _rounded(operator(_as_floats(input), *args, **kwargs), input)

    quantized_form(operator)(form)


for _name in ("max_pool1d", "max_pool2d", "max_pool3d"):
    _on_codes_as_floats(OPS[_name].function)  # those of `torch`
for _operator in (
    avg_pool.avg_pool1d, avg_pool.avg_pool2d, avg_pool.avg_pool3d, avg_pool.adaptive_avg_pool1d, avg_pool.adaptive_avg_pool2d,
    avg_pool.adaptive_avg_pool3d, max_pool.max_pool1d, max_pool.max_pool2d, max_pool.max_pool3d, grid_sample.grid_sample,
    grid_sample.grid_sampler,
):  # fmt: skip
    _on_codes_as_floats(_operator)


@quantized_form(resize.interpolate)
def interpolate(input: Any, *args: Any, **kwargs: Any) -> Tensor:
    one_scale(input, "interpolate")
    return _rounded(resize.interpolate(_as_floats(input), *args, **kwargs), input)


@quantized_form(resize.upsample)
def upsample(input: Any, *args: Any, **kwargs: Any) -> Tensor:
    return interpolate(input, *args, **kwargs)


@quantized_form(resize.upsample_nearest)
def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Tensor:
    return interpolate(input, size, scale_factor, mode="nearest")


@quantized_form(resize.upsample_bilinear)
def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Tensor:
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


@quantized_form(padding.pad)
def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    q = one_scale(input, "pad")
    if mode == "constant":
        value = code_of(value or 0, q.scale, q.zero_point, input.dtype) - q.zero_point
    return _rounded(padding.pad(_as_floats(input), pad, mode, value), input)


for _operator in (shuffle.pixel_shuffle, shuffle.pixel_unshuffle, shuffle.channel_shuffle):
    quantized_form(_operator)(lambda *args, _run=_operator, **kwargs: on_codes(_run, args, kwargs))


@quantized_operator()
def max_pool2d(qx: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Tensor:
    """The largest value of every window."""
    return max_pool.max_pool2d(qx, kernel_size, stride or kernel_size, padding, dilation, ceil_mode)


@quantized_operator()
def max_pool1d(qx: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Tensor:
    """The largest value of every window."""
    return max_pool.max_pool1d(qx, kernel_size, stride or kernel_size, padding, dilation, ceil_mode)


# -- softmax, products -----------------------------------------------------------------------------------------------------


@quantized_operator()
def softmax(qx: Tensor, dim: int, output_scale: float, output_zero_point: int) -> Tensor:
    """softmax of the values, with a result of the given scale."""
    return quantized(softmax_operators.softmax(values_of(qx), dim), output_scale, output_zero_point, qx.dtype)  # type: ignore[arg-type]


@quantized_operator()
def matmul(qa: Tensor, qb: Tensor, scale: float, zero_point: int) -> Tensor:
    """The matrix product of the values of two tensors, with a result of the given scale."""
    for t in (qa, qb):
        if not isinstance(t, QuantizedTensor) or not t._quantizer.per_tensor:
            raise RuntimeError("Only per-tensor quantization is supported in Matmul.")
    if qa.dtype is not qb.dtype:
        raise RuntimeError("MatMul operands should have same data type.")
    if len(qa.shape) < 2 or len(qb.shape) < 2 or len(qa.shape) != len(qb.shape):
        raise RuntimeError(
            "MatMul operands should have the same dimensionality. (" + f"{len(qa.shape)} and {len(qb.shape)} provided)"
        )
    return quantized(products.matmul(values_of(qa), values_of(qb)), scale, zero_point, qa.dtype)  # type: ignore[arg-type]


@formula
def prelu_codes(x, slope, scale=1.0, zero=0.0, inv=1.0, out_zero=0.0, low=0.0, high=0.0):
    value = decoded(x, scale, zero)
    return encoded(maximum(value, 0.0) + slope * -maximum(-value, 0.0), inv, out_zero, low, high)


@quantized_operator()
def prelu(qx: Tensor, weight: Tensor, output_scale: float, output_zero_point: int) -> Tensor:
    """Negative values times a slope, one or one for each channel (dimension 1)."""
    q = one_scale(qx, "prelu")
    slope = (values_of(weight) if isinstance(weight, QuantizedTensor) else weight).detach()
    if slope.numel() > 1:
        slope = slope.view([-1 if d == 1 else 1 for d in range(len(qx.shape))])
    low, high = CODE_RANGES[qx.dtype]
    params = (
        float32(q.scale),
        float(q.zero_point),
        inverse(output_scale),
        float(output_zero_point),
        float(low),
        float(high),
    )
    codes = prelu_codes.call((qx._codes, slope), params, CODE_DTYPES[qx.dtype])  # type: ignore[attr-defined]
    return per_tensor(codes, float(output_scale), int(output_zero_point), qx.dtype)


# -- normalisation ---------------------------------------------------------------------------------------------------------


@formula
def line_codes(x, alpha, beta, zero=0.0, out_zero=0.0, low=0.0, high=0.0, relu=False):
    """Codes of alpha * (code - zero point) + beta, which are in units of the result's scale."""
    code = clipped(round_(fma(cast(x - zero, dt.float32), alpha, beta)) + out_zero, low, high)
    return maximum(code, out_zero) if relu else code


def _numbers(t: Any, count: int, default: float) -> np.ndarray:
    return np.full(count, default, np.float32) if t is None else values_on_host(t.detach()).astype(np.float32)


def _channels_last(codes: Tensor) -> Tensor:
    formats = {4: channels_last, 5: channels_last_3d}
    return codes.contiguous(memory_format=formats[len(codes.shape)]) if len(codes.shape) in formats else codes


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float, scale: float, zero_point: int, relu: bool
) -> Tensor:
    q = one_scale(x, "batch_norm")
    count = x.shape[1]
    for part, what in ((weight, "weight"), (bias, "bias"), (mean, "mean"), (var, "var")):
        if part is not None and part.numel() != count:
            raise RuntimeError(f"Expect {what} size to match C")
    w, b = _numbers(weight, count, 1), _numbers(bias, count, 0)
    m, v = _numbers(mean, count, 0), _numbers(var, count, 1)
    inverse_sigma = (1.0 / np.sqrt(v + np.float32(eps)).astype(np.float64)).astype(np.float32)
    alpha = inverse_sigma * w * (np.float32(q.scale) / np.float32(scale))
    beta = (b - m * inverse_sigma * w) / np.float32(scale)
    at = [-1 if d == 1 else 1 for d in range(len(x.shape))]
    low, high = CODE_RANGES[x.dtype]
    params = (float(q.zero_point), float(zero_point), float(low), float(high), relu)
    operands = (_channels_last(x._codes), row(alpha, dt.float32).view(at), row(beta, dt.float32).view(at))
    return per_tensor(line_codes.call(operands, params, CODE_DTYPES[x.dtype]), float(scale), int(zero_point), x.dtype)


def _declare_batch_norm() -> None:
    for dims, words in (("", ""), ("1d", " of sequences"), ("2d", " of feature maps"), ("3d", " of volumes")):
        for relu in (False, True):

            def run(
                qx: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, eps: float, output_scale: float,
                output_zero_point: int, _relu: bool = relu,
            ) -> Tensor:  # fmt: skip
                return _batch_norm(qx, weight, bias, mean, var, eps, output_scale, output_zero_point, _relu)

            name = f"batch_norm{dims}" + ("_relu" if relu else "")
            run.__name__ = name
            run.__doc__ = f"Batch normalisation{words} with known statistics" + (
                ", negative values made zero." if relu else "."
            )
            quantized_operator(name=name)(run)


_declare_batch_norm()


def _normalised(x: Any, groups: int, eps: float) -> Tensor:
    """Return (x - mean) / deviation of each of `groups` parts of equal length, as PyTorch's kernel computes it: from sums of codes."""
    q = x._quantizer
    centred = _as_floats(x).reshape(groups, -1)
    mean = centred.mean(1, keepdim=True)
    variance = ((centred * centred).mean(1, keepdim=True) - mean * mean).clamp(min=0)
    scale = float32(q.scale)
    factor = scale / (variance * scale * scale + float(np.float32(eps))).sqrt()
    return (centred - mean) * factor


@quantized_operator()
def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> Tensor:
    """Layer normalisation of a quantized tensor."""
    one_scale(input, "layer_norm")
    shape = tuple(normalized_shape)
    if tuple(input.shape[len(input.shape) - len(shape) :]) != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*, {', '.join(map(str, shape))}], but got input of size{list(input.shape)}"
        )
    size = int(np.prod(shape))
    y = _normalised(input, input.numel() // max(size, 1), eps).reshape(input.shape)
    return _affine(y, weight, bias, shape, output_scale, output_zero_point, input.dtype)


def _affine(y: Tensor, weight: Any, bias: Any, shape: Any, scale: float, zero_point: int, d: Any) -> Tensor:
    if weight is not None:
        y = y * weight.detach().reshape(shape)
    if bias is not None:
        y = y + bias.detach().reshape(shape)
    return quantized(y, scale, zero_point, d)


@quantized_operator()
def group_norm(
    input: Tensor, num_groups: int, weight: Any, bias: Any, eps: float, output_scale: float, output_zero_point: int
) -> Tensor:
    """Group normalisation of a quantized tensor."""
    one_scale(input, "group_norm")
    channels = input.shape[1]
    if channels % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape {list(input.shape)} and num_groups={num_groups}"
        )
    y = _normalised(input, input.shape[0] * num_groups, eps).reshape(input.shape)
    if not input.is_contiguous():
        y = _channels_last(y)
    shape = [channels if d == 1 else 1 for d in range(len(input.shape))]
    return _affine(y, weight, bias, shape, output_scale, output_zero_point, input.dtype)


@quantized_operator()
def instance_norm(
    input: Tensor, weight: Any, bias: Any, eps: float, output_scale: float, output_zero_point: int
) -> Tensor:
    """Instance normalisation of a quantized tensor: each channel of each sample separately."""
    return group_norm(input, input.shape[1], weight, bias, eps, output_scale, output_zero_point)
