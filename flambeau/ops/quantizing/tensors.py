"""Quantized tensors: making them, and their attributes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import cpu
from ...core.dtype import dtype as Dtype
from ...core.quantized import (
    CODE_DTYPES,
    CODE_RANGES,
    PER_BYTE,
    Engine,
    QuantizedRefusal,
    QuantizedTensor,
    Quantizer,
    in_bytes,
    per_channel_affine,
    per_channel_float,
    per_tensor,
    wrap,
)
from ...core.quantized import qscheme as Scheme
from ...core.tensor import Tensor, copy_of_array, empty
from ...kernels.library.requantize import NO_INVERSE, SMALLEST_SCALE
from ..machinery.arguments import as_device, as_shape
from ..machinery.declare import composite
from ..machinery.memory import values_on_host
from .codes import channel_codes, quantized, values_of

QUANTIZED_OF = {d.codes: d for d in (dt.qint8, dt.quint8, dt.qint32)}


def check_dtype(d: Any, maker: str = "new_qtensor") -> None:
    if d not in CODE_DTYPES:
        raise RuntimeError(f"ScalarType {d.scalar_type} is not supported in {maker}.")


def check_zero_point(name: str, zero_point: int, d: Dtype) -> None:
    low, high = CODE_RANGES[d]
    if zero_point > high:
        raise RuntimeError(f"{name} zero_point {zero_point} is above upper bound.")
    if zero_point < low:
        raise RuntimeError(f"{name} zero_point {zero_point} is below lower bound.")


def _check_float(input: Any, name: str) -> None:
    if isinstance(input, QuantizedTensor):
        raise QuantizedRefusal(
            f"Could not run 'aten::{name}' with arguments from the 'QuantizedCPU' backend: the tensor is quantized already"
        )
    if input.dtype is not dt.float32:
        raise RuntimeError(f"Quantize only works on Float Tensor, got {input.dtype.scalar_type}")


def _number(x: Any, kind: type) -> Any:
    return kind(x.item()) if isinstance(x, Tensor) else kind(x)


@composite(method=False)
def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: Any) -> Any:
    """The tensor quantized with one scale: each value becomes the nearest of (code - zero_point) * scale. For a list of tensors with tensors
    of scales and zero points, a tuple."""
    if isinstance(input, (list, tuple)):
        return tuple(quantize_per_tensor(x, scale[i], zero_point[i], dtype) for i, x in enumerate(input))
    _check_float(input, "quantize_per_tensor")
    check_dtype(dtype)
    scale, zero_point = _number(scale, float), _number(zero_point, int)
    check_zero_point("quantize_tensor_per_tensor_affine", zero_point, dtype)
    return quantized(input.detach(), scale, zero_point, dtype)


def choose_parameters(low: float, high: float, least: int, most: int, reduce_range: bool) -> tuple[float, int]:
    """Return scale and zero point for values from `low` to `high`, such that zero has a code of its own (`ChooseQuantizationParams`)."""
    if reduce_range:
        least, most = int(least / 2), int(most / 2)
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / (most - least)
    if scale < NO_INVERSE:
        scale = 0.1
    if scale < SMALLEST_SCALE:
        given, scale = float(np.float32(scale)), SMALLEST_SCALE
        if low == 0:
            high = float(np.float32(SMALLEST_SCALE * (most - least)))
        elif high == 0:
            low = float(-np.float32(SMALLEST_SCALE * (most - least)))
        else:
            factor = np.float32(SMALLEST_SCALE) / np.float32(given)
            low, high = float(np.float32(low) * factor), float(np.float32(high) * factor)
    from_low, from_high = least - low / scale, most - high / scale
    low_error, high_error = abs(least) - abs(low / scale), abs(most) - abs(high / scale)
    start = from_low if low_error < high_error else from_high
    return scale, least if start < least else most if start > most else round(start)


def check_finite(*numbers: float) -> None:
    if not all(map(math.isfinite, numbers)):
        raise RuntimeError("In ChooseQuantizationParams, the values of the tensor must be finite numbers")


def halved(reduce_range: bool) -> bool:
    """Return whether dynamic scales use half of the codes if requested: the engine qnnpack never does."""
    return reduce_range and Engine.name != "qnnpack"


def dynamic_parameters(input: Tensor, d: Dtype, reduce_range: bool) -> tuple[float, int]:
    """Return scale and zero point for the values of a tensor."""
    low, high = (float(x.item()) for x in input.aminmax()) if input.numel() else (0.0, 0.0)
    check_finite(low, high)
    least, most = CODE_RANGES[d]
    return choose_parameters(low, high, least, most, halved(reduce_range))


@composite(method=False)
def quantize_per_tensor_dynamic(input: Tensor, dtype: Any, reduce_range: bool) -> Tensor:
    """The tensor quantized with a scale that covers its values; with `reduce_range` only half of the codes are used."""
    if dtype is dt.float16:
        return input.to(dt.float16)
    if dtype not in (dt.qint8, dt.quint8):
        raise RuntimeError(f"dtype {dtype} not supported")
    _check_float(input, "quantize_per_tensor_dynamic")
    values = input.detach()
    return quantized(values, *dynamic_parameters(values, dtype, reduce_range), dtype)


@composite(method=False)
def _choose_qparams_per_tensor(self: Tensor, reduce_range: bool = False) -> tuple[float, int]:
    """Scale and zero point that cover the values of a tensor with codes of 8 bits."""
    return dynamic_parameters(self.detach(), dt.quint8, reduce_range)


def channel_quantizer(
    scales: Tensor, zero_points: Tensor, axis: int, shape: Any, exact_integers: bool = True
) -> Quantizer:
    """Return the quantizer of channels, checked; zero points that are floats make it one of floats."""
    if len(scales.shape) != 1:
        raise RuntimeError("scale tensor must have dimension 1")
    if len(zero_points.shape) != 1:
        raise RuntimeError("zero_points tensor must have dimension 1")
    if scales.numel() != zero_points.numel():
        raise RuntimeError("number of elements in scales and zero_points must match")
    if not 0 <= axis < len(shape):
        raise RuntimeError(
            f"Channel axis out of range in per channel affine quantization. Got: {axis} Expected: [0, {len(shape)})"
        )
    if shape[axis] != scales.numel():
        raise RuntimeError(f"length of scales must equal to channel, expected {shape[axis]} got, {scales.numel()}")
    if zero_points.is_floating_point():
        return Quantizer(per_channel_float, scales.detach().to(dt.float32), zero_points.detach().to(dt.float32), axis)
    return Quantizer(per_channel_affine, scales.detach().to(dt.float64), zero_points.detach().to(dt.int64), axis)


@composite(method=False)
def quantize_per_channel(input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any) -> Tensor:
    """The tensor quantized with one scale and zero point for each index of the dimension `axis`."""
    _check_float(input, "quantize_per_channel")
    check_dtype(dtype)
    quantizer = channel_quantizer(scales, zero_points, int(axis), input.shape)
    if quantizer.scheme is per_channel_affine:
        for zero_point in quantizer.zero_point.tolist():
            check_zero_point("quantize_tensor_per_channel_affine", zero_point, dtype)
    return wrap(channel_codes(input.detach(), quantizer, dtype), quantizer, dtype)


@composite
def dequantize(input: Any) -> Any:
    """The values of a quantized tensor, in float32; for a list of tensors, a tuple."""
    if isinstance(input, (list, tuple)):
        return tuple(dequantize(x) for x in input)
    if isinstance(input, QuantizedTensor):
        return values_of(input)
    input._strides  # noqa: B018  a sparse tensor is refused, as by PyTorch
    return input.to(dt.float32)


# -- without values ---------------------------------------------------------------------------------------------------


@composite(kind="creation", method=False)
def _empty_affine_quantized(
    *size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
    requires_grad: bool = False, scale: float = 1, zero_point: int = 0, memory_format: Any = None, out: Any = None,
) -> Tensor:  # fmt: skip
    """A quantized tensor whose codes are not set."""
    check_dtype(dtype)
    codes = empty(
        as_shape(size, "_empty_affine_quantized"), CODE_DTYPES[dtype], cpu if device is None else as_device(device)
    )
    if memory_format is not None:
        codes = codes.contiguous(memory_format=memory_format)
    return per_tensor(codes, float(scale), int(zero_point), dtype)


@composite(kind="creation", method=False)
def _empty_per_channel_affine_quantized(
    *size: Any, scales: Any, zero_points: Any, axis: int, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None, requires_grad: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor quantized by channels whose codes are not set."""
    check_dtype(dtype)
    shape = as_shape(size, "_empty_per_channel_affine_quantized")
    quantizer = channel_quantizer(scales, zero_points, axis, shape)
    codes = empty(shape, CODE_DTYPES[dtype], cpu if device is None else as_device(device))
    if memory_format is not None:
        codes = codes.contiguous(memory_format=memory_format)
    return wrap(codes, quantizer, dtype)


def _quantized_dtype(input: Tensor) -> Dtype:
    if input.dtype not in QUANTIZED_OF:
        raise RuntimeError(f"ScalarType {input.dtype.scalar_type} holds no codes of a quantized tensor")
    return QUANTIZED_OF[input.dtype]


@composite(method=False)
def _make_per_tensor_quantized_tensor(input: Tensor, scale: float, zero_point: int) -> Tensor:
    """The quantized tensor with these codes."""
    return per_tensor(input.clone(), float(scale), int(zero_point), _quantized_dtype(input))


@composite(method=False)
def _make_per_channel_quantized_tensor(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:
    """The quantized tensor with these codes and scales."""
    return wrap(input.clone(), channel_quantizer(scale, zero_point, axis, input.shape), _quantized_dtype(input))


@composite(method=False)
def _saturate_weight_to_fp16(weight: Tensor) -> Tensor:
    """The values limited to the range of float16."""
    return weight.clamp(-65504.0, 65504.0)


# -- what they say about themselves -----------------------------------------------------------------------------------


def _need_quantized(t: Any, name: str) -> QuantizedTensor:
    if not isinstance(t, QuantizedTensor):
        raise NotImplementedError(
            f"Could not run 'aten::{name}' with arguments from the 'CPU' backend: the tensor is not quantized."
        )
    return t


def _quantizer(t: Any, name: str, channels: bool) -> Quantizer:
    q = _need_quantized(t, name)._quantizer
    if q.per_tensor is channels:
        wanted = (
            "kPerChannelAffine || quantizer->qscheme() == kPerChannelAffineFloatQParams"
            if channels
            else "kPerTensorAffine"
        )
        raise RuntimeError(f"Expected quantizer->qscheme() == {wanted} to be true, but got false.")
    return q


@composite
def int_repr(input: Tensor) -> Tensor:
    """The codes, as plain integers; those of less than 8 bits as bytes that hold several."""
    t = _need_quantized(input, "int_repr")
    return together(t) if t.dtype in PER_BYTE else t._codes.clone()


def together(t: QuantizedTensor) -> Tensor:
    """Pack codes of less than 8 bits, several to a byte."""
    return copy_of_array(in_bytes(values_on_host(t._codes).reshape(1, -1), PER_BYTE[t.dtype]), dt.uint8)


def in_storage(t: QuantizedTensor) -> Tensor:
    """Pack a tensor into the number of bytes of PyTorch's storage of it, in which each row has room for bytes of its own."""
    packed = together(t)
    columns = t.shape[-1] if t.shape else 1
    size = (t.numel() // columns if columns else 0) * -(-columns // PER_BYTE[t.dtype])
    whole = packed.new_zeros(max(size, packed.numel()))
    whole[: packed.numel()] = packed
    return whole


@composite
def q_scale(input: Tensor) -> float:
    """The scale of a tensor quantized with one."""
    return _quantizer(input, "q_scale", False).scale


@composite
def q_zero_point(input: Tensor) -> int:
    """The code of zero, of a tensor quantized with one scale."""
    return _quantizer(input, "q_zero_point", False).zero_point


@composite
def q_per_channel_scales(input: Tensor) -> Tensor:
    """The scales, one for each channel."""
    return _quantizer(input, "q_per_channel_scales", True).scale


@composite
def q_per_channel_zero_points(input: Tensor) -> Tensor:
    """The codes of zero, one for each channel."""
    return _quantizer(input, "q_per_channel_zero_points", True).zero_point


@composite
def q_per_channel_axis(input: Tensor) -> int:
    """The dimension whose indices are the channels."""
    axis = _quantizer(input, "q_per_channel_axis", True).axis
    assert axis is not None
    return axis


@composite(function=False)
def qscheme(self: Tensor) -> Scheme:
    """The mapping of values to codes: `torch.per_tensor_affine`, ..."""
    return _need_quantized(self, "qscheme")._quantizer.scheme
