"""Activations of quantized tensors, with the scale and zero point of their results."""

from __future__ import annotations

from typing import Any
from warnings import warn

import flambeau as torch

from ..... import nn
from .....core.tensor import Tensor
from .....ops.quantizing.operators import quantized as Q
from .utils import _keep_scale, chosen_scale

__all__ = ["ELU", "Hardswish", "LeakyReLU", "PReLU", "ReLU6", "Sigmoid", "Softmax"]


class ReLU6(nn.ReLU):
    """Clamp quantized values to the range from 0 to 6."""

    def forward(self, input: Tensor) -> Tensor:
        return Q.relu6(input, self.inplace)

    def _get_name(self) -> str:
        return "QuantizedReLU6"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> ReLU6:
        return ReLU6(mod.inplace)


class _ScaledActivation:
    """Base of activations with an own output scale: `_arguments(mod)` are the constructor arguments after scale and zero point."""

    @staticmethod
    def _arguments(mod: Any) -> tuple:
        return ()

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        return cls.from_reference(mod, *chosen_scale(mod.activation_post_process))

    @classmethod
    def from_reference(cls, mod: Any, scale: Any, zero_point: Any) -> Any:
        return cls(float(scale), int(zero_point), *cls._arguments(mod))  # type: ignore[call-arg]


class Hardswish(_ScaledActivation, nn.Hardswish):
    """x * relu6(x + 3) / 6."""

    def __init__(self, scale: float, zero_point: int, device: Any = None, dtype: Any = None):
        super().__init__()
        _keep_scale(self, scale, zero_point, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return Q.hardswish(input, float(self.scale), int(self.zero_point))


class ELU(_ScaledActivation, nn.ELU):
    """x where positive, else alpha * (exp(x) - 1)."""

    def __init__(self, scale: float, zero_point: int, alpha: float = 1.0):
        super().__init__(alpha)
        self.scale, self.zero_point = scale, zero_point

    def forward(self, input: Tensor) -> Tensor:
        return Q.elu(input, self.scale, self.zero_point, self.alpha)

    @staticmethod
    def _arguments(mod: Any) -> tuple:
        return (mod.alpha,)


class LeakyReLU(_ScaledActivation, nn.LeakyReLU):
    """Negative values times a slope."""

    def __init__(
        self, scale: float, zero_point: int, negative_slope: float = 1e-2, inplace: bool = False, device: Any = None, dtype: Any = None
    ):  # fmt: skip
        super().__init__(negative_slope, inplace)
        _keep_scale(self, scale, zero_point, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return Q.leaky_relu(input, self.negative_slope, self.inplace, float(self.scale), int(self.zero_point))

    @staticmethod
    def _arguments(mod: Any) -> tuple:
        return mod.negative_slope, mod.inplace


class Sigmoid(_ScaledActivation, nn.Sigmoid):
    """1 / (1 + exp(-x))."""

    def __init__(self, output_scale: float, output_zero_point: int):
        super().__init__()
        self.output_scale, self.output_zero_point = output_scale, output_zero_point

    def forward(self, input: Tensor) -> Tensor:
        return Q.sigmoid(input, self.output_scale, self.output_zero_point)

    def _get_name(self) -> str:
        return "Sigmoid"


class Softmax(nn.Softmax):
    """softmax along a dimension."""

    def __init__(self, dim: int | None = None, scale: float = 1.0, zero_point: int = 0):
        super().__init__()
        self.dim, self.scale, self.zero_point = dim, scale, zero_point

    def forward(self, input: Tensor) -> Tensor:
        dim = (0 if input.dim() in (0, 1, 3) else 1) if self.dim is None else self.dim
        return Q.softmax(input, dim, self.scale, self.zero_point)

    def _get_name(self) -> str:
        return "QuantizedSoftmax"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Softmax:
        return Softmax(mod.dim, *chosen_scale(mod.activation_post_process))

    @classmethod
    def from_reference(cls, mod: Any, scale: Any, zero_point: Any) -> Softmax:
        return cls(mod.dim, float(scale), int(zero_point))


class PReLU(_ScaledActivation, nn.Module):
    """Negative values times learned slopes, which are quantized too."""

    def __init__(self, output_scale: float, output_zero_point: int, num_parameters: int = 1):
        super().__init__()
        self.num_parameters, self.scale, self.zero_point = num_parameters, output_scale, output_zero_point
        self.set_weight(torch.quantize_per_tensor(torch.randn(num_parameters), 1.0, 0, torch.quint8))

    def set_weight(self, w: Tensor) -> None:
        self.weight = w

    def forward(self, input: Tensor) -> Tensor:
        return Q.prelu(input, self.weight, self.scale, self.zero_point)

    @classmethod
    def from_reference(cls, mod: Any, scale: Any, zero_point: Any) -> PReLU:
        made = cls(float(scale), int(zero_point), mod.num_parameters)
        weight, observer = mod.weight.float(), mod.qconfig.weight()
        observer(weight)
        if observer.dtype is not torch.quint8:
            warn(f"PReLU's weight observer should have dtype quint8 but got {observer.dtype}", stacklevel=2)
        made.set_weight(torch.quantize_per_tensor(weight, *chosen_scale(observer), torch.quint8))
        return made
