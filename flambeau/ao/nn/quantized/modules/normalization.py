"""Normalization of quantized tensors, with the scale and zero point of the results."""

from __future__ import annotations

from typing import Any

from ..... import nn
from .....core.tensor import Tensor
from .....nn.modules import instancenorm
from .....ops.quantizing.operators import quantized as Q
from .utils import _keep_scale, chosen_scale

__all__ = ["GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm"]


class _QuantizedNorm:
    """Base of quantized normalizations: `_sizes(mod)` are the leading constructor arguments."""

    weight: Any
    bias: Any
    eps: float
    scale: Any
    zero_point: Any

    @staticmethod
    def _sizes(mod: Any) -> tuple:
        return (mod.num_features,)

    def _set_parameters(self, weight: Any, bias: Any, scale: float, zero_point: int, device: Any, dtype: Any) -> None:
        self.weight, self.bias = weight, bias
        _keep_scale(self, scale, zero_point, device, dtype)

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        return cls.from_reference(mod, *chosen_scale(mod.activation_post_process))

    @classmethod
    def from_reference(cls, mod: Any, scale: Any, zero_point: Any) -> Any:
        given = cls._sizes(mod), mod.weight, mod.bias, float(scale), int(zero_point), mod.eps, cls._affine(mod)
        return cls(*given[0], *given[1:])  # type: ignore[call-arg]

    @staticmethod
    def _affine(mod: Any) -> bool:
        return mod.affine


class LayerNorm(_QuantizedNorm, nn.LayerNorm):
    """Layer normalisation of quantized tensors."""

    def __init__(
        self, normalized_shape: Any, weight: Any, bias: Any, scale: float, zero_point: int, eps: float = 1e-5,
        elementwise_affine: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(normalized_shape, eps=eps, elementwise_affine=elementwise_affine, device=device, dtype=dtype)
        self._set_parameters(weight, bias, scale, zero_point, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        numbers = self.weight, self.bias, self.eps, float(self.scale), int(self.zero_point)
        return Q.layer_norm(input, self.normalized_shape, *numbers)

    @staticmethod
    def _sizes(mod: Any) -> tuple:
        return (mod.normalized_shape,)

    @staticmethod
    def _affine(mod: Any) -> bool:
        return mod.elementwise_affine


class GroupNorm(_QuantizedNorm, nn.GroupNorm):
    """Group normalisation of quantized tensors."""

    def __init__(
        self, num_groups: int, num_channels: int, weight: Any, bias: Any, scale: float, zero_point: int, eps: float = 1e-5,
        affine: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(num_groups, num_channels, eps, affine, device=device, dtype=dtype)
        self._set_parameters(weight, bias, scale, zero_point, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        numbers = self.weight, self.bias, self.eps, float(self.scale), int(self.zero_point)
        return Q.group_norm(input, self.num_groups, *numbers)

    @staticmethod
    def _sizes(mod: Any) -> tuple:
        return mod.num_groups, mod.num_channels


class _InstanceNorm(_QuantizedNorm, instancenorm._InstanceNorm):
    def __init__(
        self, num_features: int, weight: Any, bias: Any, scale: float, zero_point: int, eps: float = 1e-5, momentum: float = 0.1,
        affine: bool = False, track_running_stats: bool = False, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self._set_parameters(weight, bias, scale, zero_point, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return Q.instance_norm(input, self.weight, self.bias, self.eps, float(self.scale), int(self.zero_point))


class InstanceNorm1d(_InstanceNorm, nn.InstanceNorm1d):
    """Instance normalisation of quantized sequences (N, C, L)."""


class InstanceNorm2d(_InstanceNorm, nn.InstanceNorm2d):
    """Instance normalisation of quantized feature maps (N, C, H, W)."""


class InstanceNorm3d(_InstanceNorm, nn.InstanceNorm3d):
    """Instance normalisation of quantized volumes (N, C, D, H, W)."""
