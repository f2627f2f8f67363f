"""Helpers of quantized layers: quantizing weights by an observer, and printing layers with packed weights."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

from .....core import dtype as dt
from .....core.numeric_limits import iinfo
from .....core.quantized import (
    per_channel_affine,
    per_channel_float,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
)
from .....core.tensor import Tensor
from .....nn.modules.module import Module
from .....ops.creation.construct import tensor
from .....ops.quantizing import tensors

__all__ = ["WeightedQuantizedModule"]

_PER_TENSOR = (per_tensor_symmetric, per_tensor_affine)
_PER_CHANNEL = (per_channel_symmetric, per_channel_affine)


class WeightedQuantizedModule(Module, metaclass=abc.ABCMeta):
    """A quantized layer with weights, which can be made from a reference layer."""

    @classmethod
    @abc.abstractmethod
    def from_reference(cls, ref_module: Any, output_scale: Any, output_zero_point: Any) -> Any:
        raise NotImplementedError


def _clamp_weights(qweight: Any, observer: Any, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Return quantized weights clamped to the observer's bounds."""
    observer = getattr(observer, "activation_post_process", observer)  # of a module that rounds as quantizing would
    if qweight.dtype not in (dt.qint8, dt.quint8, dt.qint32):
        return qweight
    limits = iinfo(qweight.dtype)
    low, high = observer.quant_min, observer.quant_max
    if low <= limits.min and high >= limits.max:
        return qweight
    codes = qweight.int_repr().clamp(low, high)
    if observer.qscheme in _PER_TENSOR:
        return tensors._make_per_tensor_quantized_tensor(codes, scale.item(), zero_point.item())
    return tensors._make_per_channel_quantized_tensor(codes, scale, zero_point, axis=observer.ch_axis)


def _quantize_weight(float_wt: Tensor, observer: Any) -> Tensor:
    """Quantize weights with the scales of an observer that has seen them."""
    scale, zero_point = observer.calculate_qparams()
    scheme = observer.qscheme
    if scheme in _PER_TENSOR:
        made = tensors.quantize_per_tensor(float_wt, float(scale), int(zero_point), dt.qint8)
    elif scheme in _PER_CHANNEL:
        given = scale.to(dt.float64), zero_point.to(dt.int64)
        made = tensors.quantize_per_channel(float_wt, *given, observer.ch_axis, dt.qint8)
    elif scheme is per_channel_float:
        given = scale.to(dt.float32), zero_point.to(dt.float32)
        made = tensors.quantize_per_channel(float_wt, *given, observer.ch_axis, observer.dtype)
    else:
        raise ValueError(f"Unexpected qscheme {scheme}")
    return _clamp_weights(made, observer, scale, zero_point)


def observed_weight(weight: Tensor, observer: Any) -> Tensor:
    """Quantize weights with the scales that a new observer finds."""
    observer(weight)
    if observer.dtype is not dt.qint8:
        raise AssertionError(f"Weight observer must have dtype torch.qint8, got {observer.dtype}")
    return _quantize_weight(weight.float(), observer)


def chosen_scale(observer: Any) -> tuple[float, int]:
    """Return the scale and zero point of a layer's results as Python numbers."""
    scale, zero_point = observer.calculate_qparams()
    return float(scale), int(zero_point)


def _keep_scale(module: Any, scale: float, zero_point: int, device: Any, dtype: Any) -> None:
    """Register scale and zero point as buffers, so that they are saved."""
    options = {k: v for k, v in (("device", device), ("dtype", dtype)) if v is not None}
    module.register_buffer("scale", tensor(scale, **options))
    module.register_buffer("zero_point", tensor(zero_point, **options))


def _ntuple_from_first(n: int) -> Callable:
    """Return a function that repeats a number, or the first of a sequence, n times."""

    def parse(x: Any) -> tuple:
        while isinstance(x, Sequence):
            if len(x) == n:
                break
            x = x[0]
        return (x,) * n

    return parse


_pair_from_first = _ntuple_from_first(2)


def _hide_packed_params_repr(self: Any, params: Any) -> str:
    """Return a layer's repr without the children that only hold packed weights."""
    lines = self.extra_repr().split("\n") if self.extra_repr() else []
    one_line = len(lines) == 1
    for key, module in self._modules.items():
        if not isinstance(module, params):
            lines.append(f"({key}): " + repr(module).replace("\n", "\n  "))
            one_line = False
    inside = "" if not lines else lines[0] if one_line else "\n  " + "\n  ".join(lines) + "\n"
    return f"{self._get_name()}({inside})"
