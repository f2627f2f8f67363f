"""`torch.ops.onednn`: operators on plain tensors of bytes, with the scales in the call, and on weights rounded to float16. Results are bytes
of a given scale, or floats."""

from __future__ import annotations

import functools
from typing import Any

from ...core import dtype as dt
from ...core.tensor import Tensor
from ..machinery.declare import composite
from ..nn.batch_norm import batch_norm
from .linear import linear, linear_prepack
from .tensors import quantize_per_tensor

_operator = functools.partial(composite, namespaces=("onednn",), method=False)


def _values(codes: Tensor, scale: float, zero_point: int) -> Tensor:
    return (codes.to(dt.float32) - zero_point) * scale


def _result(values: Tensor, scale: float, zero_point: int, d: Any, relu: bool = False) -> Tensor:
    """Return values as bytes of a scale, or in a floating-point dtype."""
    values = values.relu() if relu else values
    if d is not dt.uint8:
        return values.to(d)
    return ((values * (1.0 / scale)).round() + zero_point).clamp(0, 255).to(d)


@_operator()
def qadd(
    self: Tensor, self_scale: float, self_zero_point: int, other: Tensor, other_scale: float, other_zero_point: int,
    output_scale: float, output_zero_point: int, output_dtype: Any,
) -> Tensor:  # fmt: skip
    """The sum of two tensors of bytes."""
    total = _values(self, self_scale, self_zero_point) + _values(other, other_scale, other_zero_point)
    return _result(total, output_scale, output_zero_point, output_dtype)


@_operator()
def qadd_relu(
    self: Tensor, self_scale: float, self_zero_point: int, other: Tensor, other_scale: float, other_zero_point: int,
    output_scale: float, output_zero_point: int, output_dtype: Any,
) -> Tensor:  # fmt: skip
    """`qadd`, with negative values made zero."""
    total = _values(self, self_scale, self_zero_point) + _values(other, other_scale, other_zero_point)
    return _result(total, output_scale, output_zero_point, output_dtype, relu=True)


@_operator()
def qmul(
    self: Tensor, self_scale: float, self_zero_point: int, other: Tensor, other_scale: float, other_zero_point: int,
    output_scale: float, output_zero_point: int, output_dtype: Any,
) -> Tensor:  # fmt: skip
    """The product of two tensors of bytes."""
    product = _values(self, self_scale, self_zero_point) * _values(other, other_scale, other_zero_point)
    return _result(product, output_scale, output_zero_point, output_dtype)


@_operator()
def qbatch_norm2d(
    qx: Tensor, qx_scale: float, qx_zero_point: int, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float,
    output_scale: float, output_zero_point: int, output_dtype: Any,
) -> Tensor:  # fmt: skip
    """Normalise feature maps of bytes with known statistics."""
    values = batch_norm(_values(qx, qx_scale, qx_zero_point), mean, var, weight, bias, False, 0.0, eps)
    return _result(values, output_scale, output_zero_point, output_dtype)


@_operator()
def linear_prepack_fp16(weight: Tensor, x_shape: Any = None) -> Tensor:
    """The weights of a linear layer in float16; results stay in float32."""
    return weight.to(dt.float16)


@_operator()
def linear_dynamic_fp16(x: Tensor, w: Tensor, bias: Any = None) -> Tensor:
    """A linear layer of floats with weights in float16."""
    y = x @ w.to(dt.float32).t()
    return y if bias is None else y + bias


@_operator()
def linear_relu_dynamic_fp16(x: Tensor, w: Tensor, bias: Any = None) -> Tensor:
    """`linear_dynamic_fp16`, with negative values made zero."""
    y = x @ w.to(dt.float32).t()
    return (y if bias is None else y + bias).relu()


@composite(namespaces=("_quantized",), method=False)
def wrapped_fbgemm_pack_gemm_matrix_fp16(W: Tensor) -> Tensor:
    """The weights of a linear layer in float16. (PyTorch's have FBGEMM's layout, and mean nothing elsewhere.)"""
    return linear_prepack_fp16(W)


@composite(namespaces=("_quantized",), method=False)
def wrapped_fbgemm_linear_fp16_weight(X: Tensor, W: Tensor, B: Any, out_channel: int) -> Tensor:
    """A linear layer of floats with weights in float16."""
    return linear_dynamic_fp16(X, W, B)


@composite(namespaces=("_quantized",), method=False)
def wrapped_quantized_linear(
    X: Tensor, X_scale: Tensor, X_zero_point: Tensor, W: Tensor, W_scale: Tensor, W_zero_point: Tensor, B: Tensor,
    output_scale: Tensor, output_zero_point: Tensor, out_channel: int,
) -> Tensor:  # fmt: skip
    """A linear layer of floats, all of which are quantized in the call."""
    packed = linear_prepack(quantize_per_tensor(W, W_scale, W_zero_point, dt.qint8), B)
    x = quantize_per_tensor(X, X_scale, X_zero_point, dt.quint8)
    return linear(x, packed, float(output_scale), int(output_zero_point)).dequantize()
