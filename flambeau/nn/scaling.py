"""Scales of 8-bit floating-point matrices, as products take them. The products with groups of scales are not in Flambeau."""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn

__all__ = ["ScalingType", "SwizzleType", "scaled_grouped_mm"]


class ScalingType(Enum):
    """The elements of a matrix that share a scale."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(Enum):
    """The order of scales in memory."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def scaled_grouped_mm(*args: Any, **kwargs: Any) -> NoReturn:
    """Would multiply groups of matrices that have scales."""
    raise NotImplementedError("scaled_grouped_mm: products of groups of matrices with scales are not in Flambeau")
