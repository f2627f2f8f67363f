"""Dropout in quantized models, which are not trained: the identity."""

from __future__ import annotations

from typing import Any

from ..... import nn

__all__ = ["Dropout"]


class Dropout(nn.Dropout):
    """Dropout of quantized tensors, which returns its input unchanged."""

    def forward(self, input: Any) -> Any:
        return input

    def _get_name(self) -> str:
        return "QuantizedDropout"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Dropout:
        return cls(mod.p, mod.inplace)

    @classmethod
    def from_reference(cls, mod: Any, scale: Any, zero_point: Any) -> Dropout:
        return cls(mod.p, mod.inplace)
