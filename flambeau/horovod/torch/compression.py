"""Gradients in fewer bytes while they travel."""

from __future__ import annotations

from typing import Any

from ...core.dtype import BY_NAME
from ...core.tensor import Tensor


class Compressor:
    """`compress` returns a tensor to send and what `decompress` needs."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return tensor


class NoneCompressor(Compressor):
    """Compressor that leaves tensors unchanged."""


class FP16Compressor(Compressor):
    """Sends floating point numbers in float16."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        return (tensor.to(BY_NAME["float16"]) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return tensor.to(ctx) if ctx.is_floating_point else tensor


class Compression:
    """The ways to compress gradients."""

    none = NoneCompressor
    fp16 = FP16Compressor
