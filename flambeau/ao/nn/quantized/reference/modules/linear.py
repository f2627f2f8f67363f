"""Reference linear layer: the weight is quantized and dequantized."""

from __future__ import annotations

from typing import Any

from ...... import nn
from ......core.tensor import Tensor
from .utils import ReferenceQuantizedModule, take_parameters

__all__ = ["Linear"]


class Linear(nn.Linear, ReferenceQuantizedModule):
    """nn.Linear whose weight is quantized and dequantized at each call."""

    _IS_REFERENCE = True

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias_: bool = True,
        device: Any = None,
        dtype: Any = None,
        weight_qparams: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias_, device, dtype)
        self._init_weight_qparams(weight_qparams, device)

    def _get_name(self) -> str:
        return "QuantizedLinear(Reference)"

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.get_weight(), self.bias)

    @classmethod
    def from_float(cls, float_linear: Any, weight_qparams: dict[str, Any]) -> Linear:
        """Make the reference layer from a float layer."""
        made = Linear(
            float_linear.in_features, float_linear.out_features, float_linear.bias is not None, float_linear.weight.device,
            float_linear.weight.dtype, weight_qparams,
        )  # fmt: skip
        return take_parameters(made, float_linear)
