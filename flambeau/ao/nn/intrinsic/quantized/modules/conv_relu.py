"""Quantized convolutions followed by relu."""

from __future__ import annotations

from typing import Any, ClassVar

from .... import intrinsic as nni
from ....intrinsic import qat as nniqat
from ....quantized.modules import conv as nnq

__all__ = ["ConvReLU1d", "ConvReLU2d", "ConvReLU3d"]


class _FusedRelu:
    """Mixin before the class of a quantized convolution: relu is part of the operator."""

    _WITH_NORM: ClassVar[Any]  # the layer trained with normalisation, which is folded into the weights

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        if type(mod) is cls._WITH_NORM:
            nnq.fold_norm(mod)
        return super().from_float(mod, use_precomputed_fake_quant)  # type: ignore[misc]

    @classmethod
    def from_reference(cls, ref_qconv: Any, output_scale: Any, output_zero_point: Any) -> Any:
        return super().from_reference(ref_qconv[0], output_scale, output_zero_point)  # type: ignore[misc]


class ConvReLU1d(_FusedRelu, nnq.Conv1d):
    """Convolution of quantized sequences and relu."""

    _FLOAT_MODULE: ClassVar[Any] = nni.ConvReLU1d
    _OPERATOR: ClassVar[Any] = "conv1d_relu"
    _WITH_NORM: ClassVar[Any] = nniqat.ConvBnReLU1d


class ConvReLU2d(_FusedRelu, nnq.Conv2d):
    """Convolution of quantized feature maps and relu."""

    _FLOAT_MODULE: ClassVar[Any] = nni.ConvReLU2d
    _OPERATOR: ClassVar[Any] = "conv2d_relu"
    _WITH_NORM: ClassVar[Any] = nniqat.ConvBnReLU2d


class ConvReLU3d(_FusedRelu, nnq.Conv3d):
    """Convolution of quantized volumes and relu."""

    _FLOAT_MODULE: ClassVar[Any] = nni.ConvReLU3d
    _OPERATOR: ClassVar[Any] = "conv3d_relu"
    _WITH_NORM: ClassVar[Any] = nniqat.ConvBnReLU3d
