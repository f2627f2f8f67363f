"""Quantized convolutions whose result is added to another tensor."""

from __future__ import annotations

from typing import Any, ClassVar

from ......core.tensor import Tensor
from ......ops.quantizing.operators import quantized as Q
from .... import intrinsic as nni
from ....quantized.modules import conv as nnq


class ConvAdd2d(nnq.Conv2d):
    """Convolution of quantized feature maps plus another tensor."""

    _FLOAT_MODULE: ClassVar[Any] = nni.ConvAdd2d
    _OPERATOR: ClassVar[Any] = "conv2d_add"

    def forward(self, input: Tensor, extra_input: Tensor) -> Tensor:  # type: ignore[override]
        operator = getattr(Q, self._OPERATOR)
        return operator(self._pad(input), extra_input, self._packed_params, self.scale, self.zero_point)

    @classmethod
    def from_reference(cls, ref_qconv: Any, output_scale: Any, output_zero_point: Any) -> Any:
        return super().from_reference(ref_qconv[0], output_scale, output_zero_point)


class ConvAddReLU2d(ConvAdd2d):
    """Convolution of quantized feature maps plus another tensor, and relu."""

    _FLOAT_MODULE: ClassVar[Any] = nni.ConvAddReLU2d
    _OPERATOR: ClassVar[Any] = "conv2d_add_relu"
