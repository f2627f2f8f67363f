"""Compression of gradients for communication."""

from __future__ import annotations

from typing import Any

from ...core.dtype import BY_NAME
from ...core.tensor import Tensor


class Compressor:
    """Interface of compressors: `compress` returns a tensor to send and the context that `decompress` needs."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return tensor


class NoneCompressor(Compressor):
    """Compressor that leaves tensors unchanged."""


class FP16Compressor(Compressor):
    """Compressor that sends floating point numbers as float16."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        return (tensor.to(BY_NAME["float16"]) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return tensor.to(ctx) if ctx.is_floating_point else tensor


class Compression:
    """The available compressors."""

    none = NoneCompressor
    fp16 = FP16Compressor
