"""Quantized layers as functions: weights come with every call, and are packed in it."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as torch

from ....core.tensor import Tensor
from ....nn import functional as F
from ....ops.quantizing.operators import quantized as Q

__all__ = [
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "celu", "clamp", "conv1d", "conv2d", "conv3d", "elu",
    "hardsigmoid", "hardswish", "hardtanh", "interpolate", "leaky_relu", "linear", "max_pool1d", "max_pool2d", "threshold",
    "upsample", "upsample_bilinear", "upsample_nearest",
]  # fmt: skip


def _need_quantized(input: Tensor, name: str) -> None:
    if not input.is_quantized:
        raise ValueError(f"Input to 'quantized.{name}' must be quantized!")


def _quantized(name: str) -> Any:
    """Return a function of nn.functional that accepts quantized tensors only."""
    function = getattr(F, name)

    def run(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        _need_quantized(input, name)
        return function(input, *args, **kwargs)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = function.__doc__
    return run


avg_pool2d, avg_pool3d = _quantized("avg_pool2d"), _quantized("avg_pool3d")
adaptive_avg_pool2d, adaptive_avg_pool3d = _quantized("adaptive_avg_pool2d"), _quantized("adaptive_avg_pool3d")
hardsigmoid = _quantized("hardsigmoid")


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Clamp quantized values between two numbers."""
    _need_quantized(input, "hardtanh")
    made = input.clamp(min_val, max_val)
    return input.copy_(made) if inplace else made


def _tuple(x: Any, n: int) -> tuple:
    return (x,) * n if isinstance(x, int) else tuple(x)


def _conv(dims: int) -> Any:
    def run(
        input: Tensor, weight: Tensor, bias: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
        padding_mode: str = "zeros", scale: float = 1.0, zero_point: int = 0, dtype: Any = torch.quint8,
    ) -> Tensor:  # fmt: skip
        if padding_mode != "zeros":
            raise NotImplementedError("Only zero-padding is supported!")
        if input.dtype is not torch.quint8:
            raise NotImplementedError("Only torch.quint8 is supported for activation tensor!")
        if weight.dtype is not torch.qint8:
            raise NotImplementedError("Only torch.qint8 is supported for weight tensor!")
        if len(input.shape) != dims + 2:
            raise ValueError(f"Input shape must be `(N, C, {('L', 'H, W', 'D, H, W')[dims - 1]})`!")
        window = (_tuple(x, dims) for x in (stride, padding, dilation))
        packed = getattr(Q, f"conv{dims}d_prepack")(weight, bias, *window, groups)
        return getattr(Q, f"conv{dims}d")(input, packed, scale, zero_point)

    run.__name__ = run.__qualname__ = f"conv{dims}d"
    run.__doc__ = f"A convolution of codes over {dims} dimension{'s' * (dims > 1)}, with a result of the given scale."
    return run


conv1d, conv2d, conv3d = _conv(1), _conv(2), _conv(3)


def linear(input: Tensor, weight: Tensor, bias: Any = None, scale: Any = None, zero_point: Any = None) -> Tensor:
    """Apply a linear layer to a quantized tensor, with a result of the given scale or that of the input."""
    scale = input.q_scale() if scale is None else scale
    zero_point = input.q_zero_point() if zero_point is None else zero_point
    return Q.linear(input, Q.linear_prepack(weight, bias), scale, zero_point)


def _max_pool(dims: int) -> Any:
    function = getattr(F, f"max_pool{dims}d")

    def run(
        input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Tensor:  # fmt: skip
        if return_indices:
            raise NotImplementedError("return_indices is not yet implemented!")
        return function(input, kernel_size, stride or None, padding, dilation, ceil_mode=ceil_mode)

    run.__name__ = run.__qualname__ = f"max_pool{dims}d"
    run.__doc__ = "The largest value of every window."
    return run


max_pool1d, max_pool2d = _max_pool(1), _max_pool(2)


def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None
) -> Tensor:
    """Resize a quantized tensor to `size` or by `scale_factor`, nearest or bilinear."""
    _need_quantized(input, "interpolate")
    return F.interpolate(input, size, scale_factor, mode, align_corners)


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(
        f"nn.quantized.functional.{name} is deprecated. Use nn.quantized.functional.interpolate instead.", stacklevel=3
    )


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None
) -> Tensor:
    """Deprecated name of `interpolate`."""
    _deprecated("upsample", "interpolate")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Deprecated: resize bilinearly with aligned corners; use `interpolate`."""
    _deprecated("upsample_bilinear", "interpolate")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Deprecated: resize by the nearest neighbour; use `interpolate`."""
    _deprecated("upsample_nearest", "interpolate")
    return interpolate(input, size, scale_factor, mode="nearest")


def celu(input: Tensor, scale: float, zero_point: int, alpha: float = 1.0) -> Tensor:
    """Return x where it is positive, else alpha * (exp(x / alpha) - 1)."""
    _need_quantized(input, "celu")
    return Q.celu(input, scale, zero_point, alpha)


def elu(input: Tensor, scale: float, zero_point: int, alpha: float = 1.0) -> Tensor:
    """Return x where it is positive, else alpha * (exp(x) - 1)."""
    _need_quantized(input, "elu")
    return Q.elu(input, scale, zero_point, alpha)


def leaky_relu(
    input: Tensor, negative_slope: float = 0.01, inplace: bool = False, scale: Any = None, zero_point: Any = None
) -> Tensor:
    """Multiply negative values by a slope, with a result of the given scale or that of the input."""
    if scale is not None and zero_point is not None:
        if inplace:
            raise AssertionError("Cannot rescale with `inplace`")
        return Q.leaky_relu(input, negative_slope, inplace, scale, zero_point)
    return F.leaky_relu(input, negative_slope, inplace)


def hardswish(input: Tensor, scale: float, zero_point: int) -> Tensor:
    """Return x * relu6(x + 3) / 6."""
    _need_quantized(input, "hardswish")
    return Q.hardswish(input, scale, zero_point)


def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """Return x where it is larger than the threshold, else `value`."""
    _need_quantized(input, "threshold")
    if threshold is None:
        raise ValueError("Input to 'threshold' must be specified!")
    if value is None:
        raise ValueError("Input to 'value' must be specified!")
    return F.threshold(input, threshold, value)


def clamp(input: Tensor, min_: float, max_: float) -> Tensor:
    """Clamp quantized values between two numbers."""
    _need_quantized(input, "clamp")
    return torch.clamp(input, min_, max_)
