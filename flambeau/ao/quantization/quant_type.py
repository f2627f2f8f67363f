"""Kinds of quantization."""

from __future__ import annotations

import enum

__all__ = ["QuantType"]


class QuantType(enum.IntEnum):
    """Kind of quantization: when the scales of a layer's inputs are found, and whether they have any."""

    DYNAMIC = 0
    STATIC = 1
    QAT = 2
    WEIGHT_ONLY = 3


def _get_quant_type_to_str(quant_type: QuantType) -> str:
    return quant_type.name.lower()


def _quant_type_from_str(name: str) -> QuantType:
    for quant_type in QuantType:
        if name == quant_type.name.lower():
            return quant_type
    raise ValueError(f"Unknown QuantType name '{name}'")
