"""Linear layer with quantized weights, followed by relu."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from .......core.tensor import Tensor
from .......ops.quantizing.operators import quantized as Q
from ..... import intrinsic as nni
from .....quantized.dynamic.modules.linear import Linear

__all__ = ["LinearReLU"]


class LinearReLU(Linear):
    """Linear layer and relu with 8-bit weights; inputs and results are floats."""

    _FLOAT_MODULE = nni.LinearReLU

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = torch.qint8):
        super().__init__(in_features, out_features, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        packed = self._packed_params._packed_params
        if self._packed_params.dtype == torch.float16:
            return Q.linear_relu_dynamic_fp16(x, packed).to(x.dtype)
        return Q.linear_relu_dynamic(x, packed, reduce_range=True).to(x.dtype)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinearReLU"

    @classmethod
    def from_reference(cls, ref_qlinear_relu: Any) -> Any:  # type: ignore[override]
        return super().from_reference(ref_qlinear_relu[0])
