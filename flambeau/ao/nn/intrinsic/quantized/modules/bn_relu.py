"""Quantized batch normalisation followed by relu."""

from __future__ import annotations

from typing import Any, ClassVar

from .... import intrinsic as nni
from ....quantized.modules import batchnorm as nnq

__all__ = ["BNReLU2d", "BNReLU3d"]


class _FusedRelu:
    @classmethod
    def from_reference(cls, bn_relu: Any, output_scale: Any, output_zero_point: Any) -> Any:
        return super().from_reference(bn_relu[0], output_scale, output_zero_point)  # type: ignore[misc]


class BNReLU2d(_FusedRelu, nnq.BatchNorm2d):
    """Batch normalisation of quantized feature maps and relu."""

    _FLOAT_MODULE: ClassVar[Any] = nni.BNReLU2d
    _OPERATOR = "batch_norm2d_relu"


class BNReLU3d(_FusedRelu, nnq.BatchNorm3d):
    """Batch normalisation of quantized volumes and relu."""

    _FLOAT_MODULE: ClassVar[Any] = nni.BNReLU3d
    _OPERATOR = "batch_norm3d_relu"
