"""Convolutions with dynamic quantization."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from ......core.tensor import Tensor
from ......ops.quantizing.operators import quantized as Q
from ...modules import conv as nnq

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _DynamicConv:
    """Mixin before the class of a quantized layer: its inputs are quantized at each call."""

    _DIMS: ClassVar[Any]
    _OPERATOR: ClassVar[Any]
    _packed_params: Any
    _NNIQAT_CONV_BN_MODULE: ClassVar[Any] = None
    _NNI_CONV_RELU_MODULE: ClassVar[Any] = None

    def __init__(self, *args: Any, reduce_range: bool = True, **kwargs: Any):
        warnings.warn(
            f"The current implementation of the {self._get_name()} module has poor numerical accuracy and its use is not recommended",
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def forward(self, input: Tensor, reduce_range: bool = True) -> Tensor:
        return getattr(Q, self._OPERATOR)(self._pad(input), self._packed_params, reduce_range)  # type: ignore[attr-defined]


class Conv1d(_DynamicConv, nnq.Conv1d):
    """Convolves sequences with quantized weights."""

    _OPERATOR: ClassVar[Any] = "conv1d_dynamic"


class Conv2d(_DynamicConv, nnq.Conv2d):
    """Convolves images or feature maps with quantized weights."""

    _OPERATOR: ClassVar[Any] = "conv2d_dynamic"


class Conv3d(_DynamicConv, nnq.Conv3d):
    """Convolves volumes with quantized weights."""

    _OPERATOR: ClassVar[Any] = "conv3d_dynamic"


class ConvTranspose1d(_DynamicConv, nnq.ConvTranspose1d):
    """Transposed convolution of sequences with quantized weights."""

    _OPERATOR: ClassVar[Any] = "conv_transpose1d_dynamic"


class ConvTranspose2d(_DynamicConv, nnq.ConvTranspose2d):
    """Transposed convolution of feature maps with quantized weights."""

    _OPERATOR: ClassVar[Any] = "conv_transpose2d_dynamic"


class ConvTranspose3d(_DynamicConv, nnq.ConvTranspose3d):
    """Transposed convolution of volumes with quantized weights."""

    _OPERATOR: ClassVar[Any] = "conv_transpose3d_dynamic"
