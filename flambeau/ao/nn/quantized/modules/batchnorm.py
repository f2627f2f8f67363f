"""Batch normalisation of quantized tensors, with fixed statistics."""

from __future__ import annotations

from typing import Any, ClassVar

from .....core.tensor import Tensor
from .....nn.modules import batchnorm
from .....ops.quantizing.operators import quantized as Q
from ... import intrinsic as nni
from .utils import _keep_scale

__all__ = ["BatchNorm2d", "BatchNorm3d"]


class _BatchNorm(batchnorm._BatchNorm):
    _NNI_BN_RELU_MODULE: ClassVar[Any]
    _OPERATOR: ClassVar[str]

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, device: Any = None, dtype: Any = None
    ):
        super().__init__(num_features, eps, momentum, True, True, device=device, dtype=dtype)
        _keep_scale(self, 1.0, 0, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        numbers = self.weight, self.bias, self.running_mean, self.running_var, self.eps
        return getattr(Q, self._OPERATOR)(input, *numbers, float(self.scale), int(self.zero_point))

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    def _copy_statistics(self, mod: Any, scale: Any, zero_point: Any) -> Any:
        for name in ("weight", "bias", "running_mean", "running_var"):
            setattr(self, name, getattr(mod, name))
        self.scale, self.zero_point = scale, zero_point
        return self

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Make the quantized layer from an observed one, alone or fused with a relu."""
        observer = mod.activation_post_process
        if type(mod) is cls._NNI_BN_RELU_MODULE:
            mod = mod[0]
        return cls(mod.num_features, mod.eps)._copy_statistics(mod, *observer.calculate_qparams())

    @classmethod
    def from_reference(cls, bn: Any, output_scale: Any, output_zero_point: Any) -> Any:
        made = cls(bn.num_features, bn.eps, bn.momentum, device=bn.weight.device, dtype=bn.weight.dtype)
        return made._copy_statistics(bn, output_scale, output_zero_point)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of quantized feature maps (N, C, H, W)."""

    _NNI_BN_RELU_MODULE: ClassVar[Any] = nni.BNReLU2d
    _OPERATOR: ClassVar[Any] = "batch_norm2d"


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of quantized volumes (N, C, D, H, W)."""

    _NNI_BN_RELU_MODULE: ClassVar[Any] = nni.BNReLU3d
    _OPERATOR: ClassVar[Any] = "batch_norm3d"
