"""Causal masks for queries and keys of different lengths, aligned at the upper left or lower right corner."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from ...core.overrides import disabled_torch_function
from ...core.tensor import Tensor
from ...ops.creation.filled import ones
from ...ops.shape.rearrange import tril

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """The corner at which a causal mask is aligned."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A causal mask, for `attn_mask` of `scaled_dot_product_attention`: True where a query may attend."""

    __torch_function__ = disabled_torch_function  # operators see the plain mask
    variant: CausalVariant

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> Any:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"Expected variant to be a CausalVariant, got {type(variant).__name__}")
        offset = seq_len_kv - seq_len_q if variant is CausalVariant.LOWER_RIGHT else 0
        mask = tril(ones(seq_len_q, seq_len_kv), offset) != 0
        return mask.as_subclass(cls)

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv


def causal_upper_left(*size: int) -> CausalBias:
    """Return the mask whose triangle starts at the first query and the first key."""
    return CausalBias(CausalVariant.UPPER_LEFT, *_pair(size))


def causal_lower_right(*size: int) -> CausalBias:
    """Return the mask whose triangle ends at the last query and the last key: queries that continue a longer text."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *_pair(size))


def _pair(size: tuple[int, ...]) -> tuple[int, int]:
    if len(size) != 2:
        raise AssertionError("causal masks have 2 sizes, the number of queries and of keys")
    return size
