"""Scales of 8-bit floating-point matrices in products. Scales of blocks, and grouped products, are not supported."""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn

from ..core import dtype as dt
from ..core.tensor import Tensor
from ..ops.linalg.scaled import scaled_mm as product


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
    """Raise NotImplementedError: grouped products of scaled matrices are not supported."""
    raise NotImplementedError("scaled_grouped_mm: products of groups of matrices with scales are not in Flambeau")


def scaled_mm(
    mat_a: Tensor, mat_b: Tensor, scale_a: Any, scale_recipe_a: Any, scale_b: Any, scale_recipe_b: Any, swizzle_a: Any = None,
    swizzle_b: Any = None, bias: Tensor | None = None, output_dtype: Any = dt.bfloat16, contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """(mat_a * scale_a) @ (mat_b * scale_b) + bias, for factors of float8 with one scale, or one for each row of `mat_a` and column of
    `mat_b`."""
    (first,), (second,), recipes = map(
        _as_list, (scale_a, scale_b, [*_as_list(scale_recipe_a), *_as_list(scale_recipe_b)])
    )
    if recipes not in ([ScalingType.TensorWise] * 2, [ScalingType.RowWise] * 2):
        raise ValueError(
            f"Invalid scaling configuration: scaled_mm takes TensorWise or RowWise scales of both factors, got {recipes}"
        )
    return product(mat_a, mat_b, first, second, bias, None, output_dtype, use_fast_accum)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
