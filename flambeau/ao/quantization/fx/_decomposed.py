"""`torch.ops.quantized_decomposed`: quantization of floats to plain integer tensors and back. Scales and zero points are arguments of every
call, so that a graph shows them."""

from __future__ import annotations

import functools
import math
from typing import Any

import flambeau as torch

from ....core.tensor import Tensor
from ....ops.machinery.declare import composite
from ....ops.quantizing.operators import make_namespace
from ..utils import determine_qparams, validate_qmin_qmax

_WHOLE = (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.int32)
_FLOATS = (torch.float8_e5m2, torch.float8_e4m3fn)
_LIMITS = {k: (torch.iinfo(k).min, torch.iinfo(k).max) for k in _WHOLE} | {
    k: (int(torch.finfo(k).min), int(torch.finfo(k).max)) for k in _FLOATS
}
_operator = functools.partial(composite, namespaces=("quantized_decomposed",), method=False)


def _check_limits(quant_min: int, quant_max: int, dtype: Any) -> None:
    if dtype not in _LIMITS:
        raise ValueError(f"Unsupported dtype: {dtype}")
    low, high = _LIMITS[dtype]
    if quant_min < low:
        raise AssertionError(f"quant_min out of bounds for dtype, quant_min_lower_bound: {low} quant_min: {quant_min}")
    if quant_max > high:
        raise AssertionError(f"quant_max out of bounds for dtype, quant_max_upper_bound: {high} quant_max: {quant_max}")


def _check_float(input: Tensor) -> Tensor:
    if input.dtype in (torch.float16, torch.bfloat16):
        input = input.to(torch.float32)
    if input.dtype != torch.float32:
        raise AssertionError(f"Expecting input to have dtype torch.float32, but got dtype: {input.dtype}")
    return input


def _as_number(given: Any, name: str = "") -> Any:
    """Return a number, which may be given as a tensor of one element."""
    if not isinstance(given, Tensor):
        return given
    if name and given.numel() != 1:
        raise AssertionError(f"Expecting {name} tensor to be one element, but received : {given.numel()}")
    return given.item()


@_operator()
def quantize_per_tensor(
    input: Tensor, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any
) -> Tensor:
    """Quantize: round(input / scale) + zero_point, clamped to quant_min and quant_max."""
    zero_point, scale = _as_number(zero_point, "zero_point"), _as_number(scale, "scale")
    quant_min, quant_max = _as_number(quant_min), _as_number(quant_max)
    input = _check_float(input)
    _check_limits(quant_min, quant_max, dtype)
    return torch.clamp(torch.round(input * (1.0 / scale)) + zero_point, quant_min, quant_max).to(dtype)


@_operator()
def dequantize_per_tensor(
    input: Tensor, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any, *, out_dtype: Any = None
) -> Tensor:
    """Return (input - zero_point) * scale, in float32 or `out_dtype`."""
    zero_point, scale = _as_number(zero_point, "zero_point"), _as_number(scale, "scale")
    if input.dtype != dtype:
        raise AssertionError(f"Expecting input to have dtype: {dtype}, but got {input.dtype}")
    if dtype not in _LIMITS:
        raise ValueError(f"Unsupported dtype in dequantize_per_tensor: {dtype}")
    return (input.to(torch.float32 if out_dtype is None else out_dtype) - zero_point) * scale


def _choose_qparams(input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: Any, qscheme: Any) -> Any:
    if input.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise AssertionError(f"Expecting input to have dtype torch.float32/16/b16, but got dtype: {input.dtype}")
    if dtype not in _LIMITS:
        raise AssertionError(f"Expecting target dtype to be one of {_LIMITS.keys()}, but got: {dtype}")
    validate_qmin_qmax(quant_min, quant_max)
    low, high = torch.aminmax(input)
    return determine_qparams(low, high, quant_min, quant_max, dtype, torch.tensor([eps]), False, qscheme)


@_operator()
def choose_qparams(input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: Any) -> Any:
    """Return the scale (float64) and zero point (int64) that cover the values of a tensor."""
    return _choose_qparams(input, quant_min, quant_max, eps, dtype, torch.per_tensor_affine)


@_operator()
def choose_qparams_symmetric(input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: Any) -> Any:
    """Return scale and zero point for a tensor's values, with a quantized range symmetric around zero."""
    return _choose_qparams(input, quant_min, quant_max, eps, dtype, torch.per_tensor_symmetric)


def _view_along(values: Tensor, axis: int, dims: int) -> Tensor:
    """Return a view of one value for each channel, to be broadcast over the others."""
    if axis >= dims:
        raise AssertionError(f"Expecting axis to be < {dims}")
    shape = [1] * dims
    shape[axis] = values.shape[0]
    return values.view(shape)


@_operator()
def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int, dtype: Any
) -> Tensor:
    """`quantize_per_tensor` with a scale and a zero point for each channel along `axis`."""
    input = _check_float(input)
    scales, zero_points = _view_along(scales, axis, input.dim()), _view_along(zero_points, axis, input.dim())
    _check_limits(quant_min, quant_max, dtype)
    return torch.clamp(torch.round(input * (1.0 / scales)) + zero_points, quant_min, quant_max).to(dtype)


@_operator()
def dequantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Any, axis: int, quant_min: int, quant_max: int, dtype: Any, *, out_dtype: Any = None
) -> Tensor:  # fmt: skip
    """`dequantize_per_tensor` with a scale and a zero point (or none) for each channel along `axis`."""
    if input.dtype != dtype:
        raise AssertionError(f"Expecting input to have dtype: {dtype}, but got dtype: {input.dtype}")
    scales = _view_along(scales, axis, input.dim())
    _check_limits(quant_min, quant_max, dtype)
    codes = input if zero_points is None else input - _view_along(zero_points, axis, input.dim())
    return (codes * scales).to(torch.float32 if out_dtype is None else out_dtype)


# -- by tokens and groups -------------------------------------------------------------------------------------------------------


@_operator()
def choose_qparams_per_token(input: Tensor, dtype: Any) -> Any:
    """Return symmetric scales, and zero points of zero, for each row (token)."""
    scales = input.abs().amax(dim=-1, keepdim=True)
    if scales.dtype == torch.float16:
        scales = scales.float()
    if dtype != torch.int8:
        raise Exception(f"unsupported dtype in choose_qparams_per_token: {dtype}")
    scales = scales.clamp(min=1e-5).div(127)
    return scales, torch.zeros_like(scales)


@_operator()
def _choose_qparams_per_token_asymmetric_impl(input: Tensor, dtype: Any) -> Any:
    """Return scales and zero points for each row (token); the zero point is rounded at the end with the smaller error."""
    low, high = -128, 127
    below = torch.amin(input, dim=-1, keepdim=True).clamp(max=0)
    above = torch.amax(input, dim=-1, keepdim=True).clamp(min=0)
    scale = ((above - below) / float(high - low)).clamp(min=torch.finfo(torch.float32).eps)
    least, most = below / scale, above / scale
    zero_point = torch.where((low + least) + (high + most) > 0, low - least, high - most)
    return scale.to(torch.float64), torch.clamp(zero_point, low, high).round().to(torch.int64)


@_operator()
def choose_qparams_per_token_asymmetric(input: Tensor, dtype: Any) -> Any:
    """Return asymmetric scales and zero points for each row (token)."""
    return _choose_qparams_per_token_asymmetric_impl(input, dtype)


@_operator()
def quantize_per_token(
    input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: Any
) -> Tensor:
    """Quantize to integers with a scale and a zero point for each row (token)."""
    _check_limits(quant_min, quant_max, dtype)
    tokens = math.prod(input.shape[:-1])
    for name, given in (("scales", scales), ("zero_points", zero_points)):
        if tokens != given.numel():
            raise AssertionError(f"num_tokens: {tokens} {name}: {given.size()}")
    return input.mul(1.0 / scales).add(zero_points).round().clamp(quant_min, quant_max).to(dtype)


@_operator()
def dequantize_per_token(
    input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: Any, output_dtype: Any = torch.float32
) -> Tensor:  # fmt: skip
    """Dequantize integers with a scale and a zero point for each row (token)."""
    return ((input - zero_points) * scales).to(output_dtype)


def _group_size(input: Tensor, scales: Tensor, group_size: int, name: str) -> int:
    if group_size <= 1:
        raise AssertionError("group_size must be > 1")
    if group_size > input.shape[-1] and scales.shape[-1] == 1:
        group_size = input.shape[-1]
    if input.shape[-1] % group_size != 0:
        raise AssertionError(f"{name}.shape[-1] must be divisible by group_size")
    if input.dim() != 2:
        raise AssertionError(f"{name} must be 2-dimensional")
    return group_size


@_operator()
def quantize_per_channel_group(
    input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: Any, group_size: int = 128
) -> Tensor:  # fmt: skip
    """Quantize to integers with a scale and a zero point for every `group_size` elements of a row."""
    parts = input.reshape(-1, _group_size(input, scales, group_size, "input"))
    if parts.isnan().any():
        raise AssertionError("to_quant must not contain NaNs")
    codes = parts.mul(1.0 / scales.reshape(-1, 1)).add(zero_points.reshape(-1, 1)).round()
    return codes.clamp(quant_min, quant_max).to(dtype).reshape(input.shape)


@_operator()
def dequantize_per_channel_group(
    input: Tensor, scales: Tensor, zero_points: Any, quant_min: int, quant_max: int, dtype: Any, group_size: int = 128,
    output_dtype: Any = torch.float32,
) -> Tensor:  # fmt: skip
    """Dequantize integers with a scale and a zero point (or none) for every `group_size` elements of a row."""
    parts = input.reshape(-1, _group_size(input, scales, group_size, "w_int8"))
    if zero_points is not None:
        parts = parts.sub(zero_points.reshape(-1, 1))
    return parts.mul(scales.reshape(-1, 1)).reshape(input.shape).to(output_dtype)


@_operator()
def fake_quant_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """Round values to the quantized levels of each channel; gradients pass where values were not clamped."""
    if input.dtype != torch.float32:
        raise AssertionError(f"Expecting input to have dtype torch.float32, but got dtype: {input.dtype}")
    if axis >= input.dim():
        raise AssertionError(f"Expecting axis to be < {input.dim()}")
    scales, zero_points = scales.to(torch.float32), zero_points.to(torch.int32)
    return torch.fake_quantize_per_channel_affine(input, scales, zero_points, axis, quant_min, quant_max)


@_operator()
def convert_element_type(input: Tensor, dtype: Any) -> Tensor:
    """Convert a tensor to another dtype, as an operator that stays in a graph."""
    return input.to(dtype, copy=True)


quantized_decomposed = make_namespace("quantized_decomposed")
for _name, _forms in {
    "quantize_per_tensor": ("tensor", "tensor2"), "dequantize_per_tensor": ("tensor", "tensor2"), "choose_qparams": ("tensor",),
    "choose_qparams_symmetric": ("tensor",), "convert_element_type": ("no_fuse",),
}.items():  # fmt: skip
    for _form in _forms:  # one operator takes numbers and tensors
        setattr(getattr(quantized_decomposed, _name), _form, getattr(quantized_decomposed, _name))
