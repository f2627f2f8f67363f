"""Quantized linear layers followed by an activation."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ......core.tensor import Tensor
from ......ops.quantizing.operators import quantized as Q
from .... import intrinsic as nni
from ....quantized.modules.linear import Linear

__all__ = ["LinearLeakyReLU", "LinearReLU", "LinearTanh"]


class _FusedActivation(Linear):
    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    @classmethod
    def from_reference(cls, ref_mod: Any, output_scale: Any, output_zero_point: Any) -> Any:
        return super().from_reference(ref_mod[0], output_scale, output_zero_point)


class LinearReLU(_FusedActivation):
    """Quantized linear layer followed by ReLU."""

    _FLOAT_MODULE = nni.LinearReLU

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = torch.qint8):
        super().__init__(in_features, out_features, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return Q.linear_relu(x, self._packed_params._packed_params, self.scale, self.zero_point)


class LinearLeakyReLU(_FusedActivation):
    """Quantized linear layer followed by LeakyReLU."""

    _FLOAT_MODULE = nni.LinearLeakyReLU

    def __init__(
        self, in_features: int, out_features: int, negative_slope: float, bias: bool = True, dtype: Any = torch.qint8
    ):
        super().__init__(in_features, out_features, bias, dtype)
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        packed = self._packed_params._packed_params
        return Q.linear_leaky_relu(x, packed, self.scale, self.zero_point, self.negative_slope)

    @classmethod
    def _from_float_sizes(cls, mod: Any, dtype: Any) -> Any:
        return cls(mod.in_features, mod.out_features, 0.01, dtype=dtype)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        made = super().from_float(mod, use_precomputed_fake_quant)
        made.negative_slope = mod[1].negative_slope
        return made

    @classmethod
    def from_reference(cls, ref_mod: Any, output_scale: Any, output_zero_point: Any) -> Any:
        made = super().from_reference(ref_mod, output_scale, output_zero_point)
        made.negative_slope = ref_mod[1].negative_slope
        return made


class LinearTanh(_FusedActivation):
    """Quantized linear layer followed by Tanh."""

    _FLOAT_MODULE = nni.LinearTanh

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = torch.qint8):
        super().__init__(in_features, out_features, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return Q.linear_tanh(x, self._packed_params._packed_params, self.scale, self.zero_point)
