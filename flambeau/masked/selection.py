"""Operands of masked operators: elements that the mask leaves out are replaced by a neutral number."""

from __future__ import annotations

import math
from typing import Any

from ..core.dtype import dtype as Dtype
from ..core.layout import broadcast_two
from ..core.numeric_limits import iinfo
from ..core.tensor import Tensor


def chosen(name: str, input: Any, mask: Any) -> Tensor | None:
    """Return the mask in the input's shape, or None if all elements count."""
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(input).__name__}")
    if mask is None:
        return None
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name}(): argument 'mask' must be Tensor, not {type(mask).__name__}")
    if mask.dim() > input.dim():
        raise IndexError(
            f"_input_mask expected broadcastable mask (got mask dimensionality higher than of the input): {mask.dim()} >"
            f" {input.dim()}"
        )
    if broadcast_two(tuple(input.shape), tuple(mask.shape)) != tuple(input.shape):
        raise RuntimeError(
            f"the mask's shape {list(mask.shape)} does not broadcast to the input's, {list(input.shape)}"
        )
    return mask.bool().expand(input.shape)


def filled(input: Tensor, mask: Tensor | None, value: float) -> Tensor:
    """Return the input with `value` where the mask is False."""
    return input if mask is None else input.where(mask, input.new_full((), value))


def lowest(kind: Dtype) -> float:
    """Return the smallest number of a dtype."""
    return -math.inf if kind.is_floating_point else 0 if str(kind).endswith("bool") else iinfo(kind).min


def highest(kind: Dtype) -> float:
    """Return the largest number of a dtype."""
    return math.inf if kind.is_floating_point else 1 if str(kind).endswith("bool") else iinfo(kind).max


def as_dims(dim: Any, count: int) -> tuple[int, ...]:
    """Return all dimensions for None, otherwise those named, counted from the front."""
    if dim is None or dim == ():
        return tuple(range(count))
    return tuple(d % count if count else 0 for d in ((dim,) if isinstance(dim, int) else dim))
