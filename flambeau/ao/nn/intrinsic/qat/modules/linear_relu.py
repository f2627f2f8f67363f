"""Linear and ReLU, for quantization-aware training."""

from __future__ import annotations

from typing import Any

from ...... import nn
from ......core.tensor import Tensor
from ....qat.modules.linear import Linear
from ...modules import fused as nni

__all__ = ["LinearReLU"]


class LinearReLU(Linear, nni._FusedModule):
    """intrinsic.LinearReLU with a fake-quantized weight."""

    _FLOAT_MODULE = nni.LinearReLU

    def __init__(self, in_features: int, out_features: int, bias: bool = True, qconfig: Any = None) -> None:
        super().__init__(in_features, out_features, bias, qconfig)

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.relu(super().forward(input))

    def to_float(self) -> nn.Module:
        """Return the float layers, without fake quantization."""
        return nni.LinearReLU(super().to_float(), nn.ReLU())
