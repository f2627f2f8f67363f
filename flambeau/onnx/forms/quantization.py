"""Quantized values: QuantizeLinear and DequantizeLinear around operators in floating point (QDQ), which engines fuse."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau

from ..builder import Builder, Value
from ..registry import aten, form


def _parameters(g: Builder, scale: Any, zero_point: Any, codes: Any, axis: int | None) -> tuple[Value, Value]:
    """Return scale and zero point as QuantizeLinear takes them: 0-d tensors, or vectors."""
    made = []
    for given, dtype in ((scale, flambeau.float32), (zero_point, codes)):
        value = given if isinstance(given, Value) else g.constant(np.asarray(given), dtype)
        value = g.cast(value, dtype) if value.dtype is not dtype else value
        made.append(g.reshape(value, []) if axis is None and value.rank != 0 else value)
    return made[0], made[1]


def _quantize(g: Builder, x: Value, scale: Any, zero_point: Any, codes: Any, axis: int | None) -> Any:
    if axis is not None and g.opset < 13:
        raise NotImplementedError("scales for channels need version 13 of ONNX")
    scale, zero_point = _parameters(g, scale, zero_point, codes, axis)
    where = {} if axis is None else {"axis_i": axis}
    made = g.op("QuantizeLinear", x, scale, zero_point, **where).known(codes, x.shape)
    made.levels = (scale, zero_point, where)
    return made


def _dequantize(g: Builder, x: Any) -> Value:
    scale, zero_point, where = x.levels
    return g.op("DequantizeLinear", x, scale, zero_point, **where).known(flambeau.float32, x.shape)


@form(aten.quantize_per_tensor)
def quantize_per_tensor(g: Builder, self: Value, scale: Any, zero_point: Any, dtype: Any) -> Value:
    return _quantize(g, self, scale, zero_point, dtype.codes, None)


@form(aten.quantize_per_channel)
def quantize_per_channel(g: Builder, self: Value, scales: Any, zero_points: Any, axis: int, dtype: Any) -> Value:
    return _quantize(g, self, scales, zero_points, dtype.codes, axis)


@form(aten.dequantize)
def dequantize(g: Builder, self: Value) -> Value:
    if not hasattr(self, "levels"):
        if self.dtype is not None and self.dtype.is_floating_point:
            return g.cast(self, flambeau.float32)
        raise NotImplementedError("dequantize() of a value that was not quantized in the model")
    return _dequantize(g, self)


def _fake_quantize(
    g: Builder, x: Value, scale: Any, zero_point: Any, quant_min: int, quant_max: int, axis: int | None
) -> Value:
    codes = flambeau.uint8 if quant_min >= 0 else flambeau.int8
    limits = np.iinfo(codes.numpy)
    if quant_min < limits.min or quant_max > limits.max:
        raise NotImplementedError(f"rounding to levels from {quant_min} to {quant_max}: ONNX has those of 8 bits")
    made = _quantize(g, x, scale, zero_point, codes, axis)
    if (quant_min, quant_max) != (limits.min, limits.max):
        levels = made.levels
        bounds = (g.constant(np.asarray(bound), codes) for bound in (quant_min, quant_max))
        made = g.op("Clip", made, *bounds).known(codes, x.shape)
        made.levels = levels
    return _dequantize(g, made)


@form(aten.fake_quantize_per_tensor_affine)
def fake_quantize_per_tensor_affine(
    g: Builder, self: Value, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Value:
    return _fake_quantize(g, self, scale, zero_point, quant_min, quant_max, None)


@form(aten.fake_quantize_per_channel_affine)
def fake_quantize_per_channel_affine(
    g: Builder, self: Value, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int
) -> Value:
    return _fake_quantize(g, self, scale, zero_point, quant_min, quant_max, axis)
