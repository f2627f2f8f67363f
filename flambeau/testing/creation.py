"""`make_tensor`: random inputs of any shape and dtype, for tests."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ..core.device import device as Device
from ..core.dtype import FLOAT8, bool_, dtype, float32, int64
from ..core.layout import memory_format as MemoryFormat
from ..core.numeric_limits import finfo, iinfo
from ..core.tensor import Tensor
from ..ops.creation.filled import empty
from ..ops.shape.complex_views import view_as_real

_ROUNDED = frozenset(d for d in FLOAT8 if d.limits and d.limits.min < 0)  # the other one holds scales, not numbers


def make_tensor(
    *shape: Any,
    dtype: dtype,
    device: str | Device,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Return a tensor of numbers drawn evenly from [low, high); by default [-9, 9), [0, 10) for uint8 and [0, 2) for bool.

    `noncontiguous` leaves gaps between the elements, `exclude_zero` replaces zeros by a tiny number (or 1).
    """
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else tuple(shape)
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got"
            f" noncontiguous={noncontiguous} and memory_format={memory_format}"
        )
    if requires_grad and (dtype in FLOAT8 or not (dtype.is_floating_point or dtype.is_complex)):
        raise ValueError(
            f"`requires_grad=True` is not supported for boolean and integral dtypes, but got dtype={dtype}"
        )
    if dtype in _ROUNDED:  # drawn as float32, then rounded
        return _rounded_draw(sizes, dtype, device, low, high, noncontiguous, exclude_zero, memory_format)
    first, last = _interval(dtype, low, high)
    gaps = noncontiguous and math.prod(sizes) > 1
    result = empty((*sizes[:-1], 2 * sizes[-1]) if gaps else sizes, dtype=dtype, device=device)
    _fill(result, first, last)
    if gaps:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if exclude_zero:
        result[result == 0] = 1 if dtype.category <= 1 else finfo(dtype).tiny
    return result.requires_grad_() if requires_grad else result


def _rounded_draw(
    sizes: tuple, dtype: dtype, device: Any, low: Any, high: Any, gaps: bool, exclude_zero: bool, fmt: Any
) -> Tensor:
    limits = finfo(dtype)
    low, high = max(-9 if low is None else low, limits.min), min(9 if high is None else high, limits.max)
    drawn = make_tensor(sizes, dtype=float32, device=device, low=low, high=high, noncontiguous=gaps, memory_format=fmt)
    if exclude_zero:
        drawn[drawn.to(dtype).float() == 0] = limits.tiny
    return drawn.to(dtype)


def _fill(result: Tensor, low: Any, high: Any) -> None:
    if result.dtype.is_complex:
        _fill(view_as_real(result), low, high)
    elif not result.dtype.is_floating_point:
        result.random_(int(low), int(high))
    elif high - low > finfo(result.dtype).max:  # wider than the dtype can say: drawn from half of it, then doubled
        result.uniform_(low / 2, high / 2).mul_(2)
    else:
        result.uniform_(low, high)


def _interval(dtype: dtype, low: float | None, high: float | None) -> tuple[float, float]:
    """Return the requested interval, limited to what the dtype can hold; for integers with integer bounds."""
    lowest: float
    highest: float
    if dtype is bool_:
        bounds, (lowest, highest) = (0, 2), (0, 2)
    elif dtype.category == 1:
        limits = iinfo(dtype)
        bounds = (0 if limits.min == 0 else -9, 10)
        lowest, highest = limits.min, limits.max + (dtype is not int64)
    elif dtype not in FLOAT8 and (dtype.is_floating_point or dtype.is_complex):
        bounds, (lowest, highest) = (-9, 9), (finfo(dtype).min, finfo(dtype).max)
    else:
        raise TypeError(f"The requested dtype '{dtype}' is not supported by torch.testing.make_tensor().")
    whole = dtype.category <= 1
    low, high = bounds[0] if low is None else low, bounds[1] if high is None else high
    _require_interval(dtype, low, high, (lowest, highest), whole)
    low, high = max(low, lowest), min(high, highest)
    return (math.ceil(low), math.ceil(high)) if whole else (low, high)


def _require_interval(dtype: dtype, low: float, high: float, limits: tuple, whole: bool) -> None:
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"`low` and `high` cannot be NaN, but got low={low!r} and high={high!r}")
    if low == high and not whole:
        warnings.warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is deprecated since 2.1"
            " and will be removed in 2.3. Use `torch.full(...)` instead.",
            FutureWarning,
            stacklevel=4,
        )
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    elif high < limits[0] or low >= limits[1]:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} only supports"
            f" [{limits[0]}, {limits[1]})"
        )
