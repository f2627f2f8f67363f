"""Codes and values: the formulas of quantized operators, each one kernel over integers.

PyTorch's x86 kernels compute in float32: a value is scale * (code - zero point); a code is the value times the reciprocal of the scale, plus
the zero point, rounded half to even and kept in range. Ties are common here, so intermediate rounding matters, and follows PyTorch's: its
vector code (64 codes at a time) differs from its code for the rest, which is why formulas have a `vector` form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.dtype import dtype
from ...core.quantized import CODE_DTYPES, CODE_RANGES, QuantizedTensor, Quantizer, per_channel_float, per_tensor
from ...core.tensor import Tensor
from ...expr.functions import cast, fma, maximum, minimum, round_
from ..machinery.formula import Pointwise


def float32(x: Any) -> float:
    """Round a number to float32."""
    return float(np.float32(x))


def inverse(scale: Any) -> float:
    """Return the reciprocal of a scale, computed in float32: values are multiplied by it."""
    with np.errstate(divide="ignore"):
        return float(np.float32(1) / np.float32(scale))


def _in_floats(op: Any, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    """Compute in float32; in float64, which holds them, if codes have 32 bits."""
    wide = any(isinstance(x, Tensor) and x.dtype is dt.int32 for x in operands)
    return (dt.float64 if wide else dt.float32), dt.float32


def formula(function: Callable[..., Any]) -> Pointwise:
    """Declare a formula over codes and values, a part of operators: `.call(operands, params, out_dtype)` computes it in one pass."""
    return Pointwise(function.__name__, function, _in_floats, differentiable=False)


def decoded(code: Any, scale: Any, zero_point: Any, vector: bool = False) -> Any:
    """Return the value of a code, in a formula."""
    scale = cast(scale, dt.float32)
    if vector:
        return fma(scale, code, -(scale * cast(zero_point, dt.float32)))
    return cast(code - zero_point, dt.float32) * scale


def encoded(value: Any, inverse_scale: Any, zero_point: Any, low: Any, high: Any, vector: bool = False) -> Any:
    """Return the code of a value, in a formula. nan gets the lowest code."""
    scaled = value * cast(inverse_scale, dt.float32)
    return clipped(round_(scaled) + zero_point if vector else round_(scaled + zero_point), low, high)


def clipped(code: Any, low: Any, high: Any) -> Any:
    return minimum(maximum(code, low), high)


@formula
def decode(code, scale=1.0, zero_point=0):
    return decoded(code, scale, zero_point)


@formula
def decode_float_channels(code, scale, zero_point):
    return decoded(code, scale, zero_point)


def _decode_channels(code: Any, scale: Any, zero_point: Any):
    """Decode with scales in float64, rounded once."""
    return (code - zero_point) * scale


decode_channels = Pointwise(
    "decode_channels", _decode_channels, lambda op, operands: (dt.float64, dt.float32), differentiable=False
)


@formula
def encode(value, inverse_scale=1.0, zero_point=0.0, low=0.0, high=255.0):
    return clipped(round_(fma(value, cast(inverse_scale, dt.float32), zero_point)), low, high)


def _wide(op: Any, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    return dt.float64, dt.float64


def _encode_wide(value: Any, inverse_scale: float = 1.0, zero_point: float = 0.0, low: float = 0.0, high: float = 0.0):
    """Encode to 32-bit codes, whose range float32 does not hold."""
    scaled = cast(value, dt.float32) * cast(inverse_scale, dt.float32) + cast(zero_point, dt.float32)
    return clipped(cast(round_(scaled), dt.float64), low, high)


encode_wide = Pointwise("encode_wide", _encode_wide, _wide, differentiable=False)


@formula
def encode_channels(value, scale, zero_point, low=0.0, high=255.0):
    return encoded(value, cast(1.0, dt.float32) / cast(scale, dt.float32), zero_point, low, high)


def _encode_wide_channels(value: Any, scale: Any, zero_point: Any, low: float = 0.0, high: float = 0.0):
    inverse_scale = cast(1.0, dt.float32) / cast(scale, dt.float32)
    scaled = cast(value, dt.float32) * inverse_scale + cast(zero_point, dt.float32)
    return clipped(cast(round_(scaled), dt.float64), low, high)


encode_wide_channels = Pointwise("encode_wide_channels", _encode_wide_channels, _wide, differentiable=False)


@formula
def encode_float_channels(value, scale, zero_point, low=0.0, high=255.0):
    """Encode with zero points that are floats, which are added before rounding."""
    return clipped(round_(value * (cast(1.0, dt.float32) / scale) + zero_point), low, high)


def along(values: Tensor, axis: int | None, ndim: int) -> Tensor:
    """Return a view of one number for each channel that broadcasts along `axis`."""
    return values.view([-1 if d == axis else 1 for d in range(ndim)])


def values_of(t: QuantizedTensor) -> Tensor:
    """Return the float32 values of a quantized tensor's codes."""
    q = t._quantizer
    if q.per_tensor:
        return decode.call((t._codes,), (float32(q.scale), q.zero_point))
    scale, zero_point = (along(x, q.axis, len(t.shape)) for x in (q.scale, q.zero_point))
    form = decode_float_channels if q.scheme is per_channel_float else decode_channels
    return form.call((t._codes, scale, zero_point))


def codes_of(values: Tensor, scale: float, zero_point: int, d: dtype) -> Tensor:
    """Quantize float32 values to codes."""
    low, high = CODE_RANGES[d]
    form = encode_wide if d is dt.qint32 else encode
    params = (inverse(scale), float(zero_point), float(low), float(high))
    return form.call((values,), params, CODE_DTYPES[d])


def quantized(values: Tensor, scale: float, zero_point: int, d: dtype) -> QuantizedTensor:
    scale, zero_point = float(scale), int(zero_point)  # which may come as tensors
    return per_tensor(codes_of(values, scale, zero_point, d), scale, zero_point, d)


def channel_codes(values: Tensor, q: Quantizer, d: dtype) -> Tensor:
    """Return the codes of float32 values, by channels."""
    low, high = CODE_RANGES[d]
    scale, zero_point = (along(x, q.axis, len(values.shape)).to(dt.float32) for x in (q.scale, q.zero_point))
    form = encode_float_channels if q.scheme is per_channel_float else encode_channels
    form = encode_wide_channels if d is dt.qint32 else form
    return form.call((values, scale, zero_point), (float(low), float(high)), CODE_DTYPES[d])


def code_of(value: float, scale: float, zero_point: int, d: dtype) -> int:
    """Quantize one value to its code."""
    low, high = CODE_RANGES[d]
    found = np.rint(np.float32(value) * np.float32(inverse(scale)) + np.float32(zero_point))
    return int(min(max(float(found), low), high))
