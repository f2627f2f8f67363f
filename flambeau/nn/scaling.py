"""How scales of 8-bit floating-point matrices are given to products. The products with groups of scales are not in Flambeau."""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn

__all__ = ["ScalingType", "SwizzleType", "scaled_grouped_mm"]

ScalingType = Enum(  # type: ignore[misc]
    "ScalingType",
    ["TensorWise", "RowWise", "BlockWise1x16", "BlockWise1x32", "BlockWise1x128", "BlockWise128x128"],
    start=0,
)
SwizzleType = Enum("SwizzleType", ["NO_SWIZZLE", "SWIZZLE_32_4_4"], start=0)  # type: ignore[misc]


def scaled_grouped_mm(*args: Any, **kwargs: Any) -> NoReturn:
    """Would multiply groups of matrices that have scales."""
    raise NotImplementedError("scaled_grouped_mm: products of groups of matrices with scales are not in Flambeau")
