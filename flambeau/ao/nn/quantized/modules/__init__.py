"""Quantized layers: their inputs and results are quantized tensors."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ..... import nn
from .....core import naming as _naming
from .....core.tensor import Tensor
from .....nn.modules.pooling import MaxPool2d as MaxPool2d
from .activation import ELU, Hardswish, LeakyReLU, PReLU, ReLU6, Sigmoid, Softmax
from .batchnorm import BatchNorm2d, BatchNorm3d
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .dropout import Dropout
from .embedding_ops import Embedding, EmbeddingBag
from .functional_modules import FloatFunctional, FXFloatFunctional, QFunctional
from .linear import Linear
from .normalization import GroupNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, LayerNorm

__all__ = [
    "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "DeQuantize", "Dropout", "ELU", "Embedding", "EmbeddingBag", "FXFloatFunctional", "FloatFunctional", "GroupNorm", "Hardswish",
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "LeakyReLU", "Linear",
    "PReLU", "QFunctional", "Quantize", "ReLU6", "Sigmoid", "Softmax",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import on first use the layers derived from `quantizable` ones, which themselves use the layers here."""
    if name in ("LSTM", "MultiheadAttention"):
        return getattr(_naming.submodule(__name__, "rnn"), name)
    return _naming.submodule(__name__, name)


class Quantize(nn.Module):
    """Floats to codes of a known scale.

    >>> Quantize(1.0, 2, torch.qint8)(torch.tensor([1.0, -1.0])).int_repr()
    tensor([3, 1], dtype=torch.int8)
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(self, scale: float, zero_point: int, dtype: Any, factory_kwargs: Any = None):
        super().__init__()
        options = nn.factory_kwargs(factory_kwargs)
        self.register_buffer("scale", torch.tensor([scale], **options))
        others = {k: v for k, v in options.items() if k != "dtype"}
        self.register_buffer("zero_point", torch.tensor([zero_point], dtype=torch.long, **others))
        self.dtype = dtype

    def forward(self, X: Tensor) -> Tensor:
        return torch.quantize_per_tensor(X, float(self.scale), int(self.zero_point), self.dtype)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Quantize:
        if not hasattr(mod, "activation_post_process"):
            raise AssertionError(f"Module {type(mod).__name__} must have activation_post_process attribute")
        observer = mod.activation_post_process
        scale, zero_point = observer.calculate_qparams()
        return Quantize(scale.float().item(), zero_point.long().item(), observer.dtype)

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(nn.Module):
    """Module that converts quantized tensors to floats."""

    def forward(self, Xq: Tensor) -> Tensor:
        return Xq.dequantize()

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> DeQuantize:
        return DeQuantize()
