"""Reductions over the selected elements. If none is selected the result is that of no elements: 0 for a sum, NaN for a mean."""

from __future__ import annotations

import math
from typing import Any

from ..core.dtype import BY_NAME
from ..core.tensor import Tensor
from ..ops.reduce.norms import vector_norm
from .selection import as_dims, chosen, filled, highest, lowest


def _prepare(name: str, input: Any, mask: Any, dtype: Any) -> tuple[Tensor, Tensor | None]:
    mask = chosen(name, input, mask)
    return (input if dtype is None else input.to(dtype)), mask


def _sum_dtype(input: Tensor, dtype: Any) -> Any:
    """Return the dtype of a sum: int64 for integers."""
    if dtype is not None or input.is_floating_point() or input.is_complex():
        return dtype
    return BY_NAME["int64"]


def sum(input: Any, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return the sum of the selected elements over `dim`."""
    kind = _sum_dtype(input, dtype) if isinstance(input, Tensor) else dtype
    values, mask = _prepare("sum", input, mask, kind)
    return filled(values, mask, 0).sum(as_dims(dim, values.dim()), keepdim=bool(keepdim))


def prod(input: Any, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return the product of the selected elements over `dim`."""
    kind = _sum_dtype(input, dtype) if isinstance(input, Tensor) else dtype
    values, mask = _prepare("prod", input, mask, kind)
    result = filled(values, mask, 1)
    for d in sorted(as_dims(dim, values.dim()), reverse=True):
        result = result.prod(d, keepdim=bool(keepdim))
    return result


def amax(input: Any, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return the largest of the selected elements over `dim`."""
    values, mask = _prepare("amax", input, mask, dtype)
    return filled(values, mask, lowest(values.dtype)).amax(as_dims(dim, values.dim()), keepdim=bool(keepdim))


def amin(input: Any, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return the smallest of the selected elements over `dim`."""
    values, mask = _prepare("amin", input, mask, dtype)
    return filled(values, mask, highest(values.dtype)).amin(as_dims(dim, values.dim()), keepdim=bool(keepdim))


def argmax(
    input: Any, dim: int | None = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Return the index of the largest of the selected elements; in the input's dtype, as in PyTorch."""
    values, mask = _prepare("argmax", input, mask, dtype)
    return filled(values, mask, lowest(values.dtype)).argmax(dim, keepdim=bool(keepdim)).to(values.dtype)


def argmin(
    input: Any, dim: int | None = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Return the index of the smallest of the selected elements; in the input's dtype, as in PyTorch."""
    values, mask = _prepare("argmin", input, mask, dtype)
    return filled(values, mask, highest(values.dtype)).argmin(dim, keepdim=bool(keepdim)).to(values.dtype)


def _count(values: Tensor, mask: Tensor | None, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    ones = values.new_ones(values.shape, dtype=BY_NAME["int64"])
    return filled(ones, mask, 0).sum(dims, keepdim=keepdim)


def mean(input: Any, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return the mean of the selected elements over `dim`."""
    values, mask = _prepare("mean", input, mask, dtype)
    if not (values.is_floating_point() or values.is_complex()):
        if mask is None:
            raise RuntimeError(
                "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got:"
                f" {values.dtype}"
            )
        raise ValueError(
            f"mean(): expected a floating point or complex input, or such a dtype=, but got {values.dtype}"
        )
    dims = as_dims(dim, values.dim())
    total = filled(values, mask, 0).sum(dims, keepdim=bool(keepdim))
    return total / _count(values, mask, dims, bool(keepdim))


def median(input: Any, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return the lower median of the selected elements over one dimension; NaN if none is selected."""
    values, mask = _prepare("median", input, mask, dtype)
    if not values.is_floating_point():
        if mask is not None and not bool(mask.all()):
            raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
        return values.median(dim, keepdim).values
    return filled(values, mask, math.nan).nanmedian(dim, keepdim).values


def logsumexp(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return log(sum(exp)) of the selected elements over `dim`."""
    values, mask = _prepare("logsumexp", input, mask, dtype)
    floating = values if values.dtype.is_floating_point or values.is_complex() else values.float()
    result = filled(floating, mask, -math.inf).logsumexp(as_dims(dim, values.dim()), keepdim=keepdim)
    return result.to(values.dtype)  # integers too, as PyTorch has it


def norm(
    input: Any,
    ord: float | None = 2.0,
    dim: Any = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """Return the vector norm of the selected elements over `dim`."""
    values, mask = _prepare("norm", input, mask, dtype)
    order = 2.0 if ord is None else float(ord)
    idle = math.inf if order == -math.inf else 0
    return vector_norm(filled(values, mask, idle), order, as_dims(dim, values.dim()), keepdim=bool(keepdim))


def var(
    input: Any,
    dim: Any = None,
    unbiased: bool | None = None,
    *,
    correction: int | float | None = None,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """Return the variance of the selected elements over `dim`, divided by their number less the correction (1 by default)."""
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    lost = int(unbiased in (None, True)) if correction is None else correction + 0  # True counts as 1
    values, mask = _prepare("var", input, mask, dtype)
    if not (values.is_floating_point() or values.is_complex()):
        values = values.to(BY_NAME["float32"])
    dims = as_dims(dim, values.dim())
    count = _count(values, mask, dims, True)
    average = filled(values, mask, 0).sum(dims, keepdim=True) / count
    squares = filled((values - average).abs() ** 2, mask, 0).sum(dims, keepdim=bool(keepdim))
    left = (count if keepdim else _count(values, mask, dims, False)) - lost
    return (squares / left.clamp_min(0)).to(values.dtype)  # complex for complex numbers, as PyTorch has it


def std(input: Any, dim: Any = None, unbiased: bool | None = None, **options: Any) -> Tensor:
    """Return the standard deviation of the selected elements over `dim`: the root of `var`, with the same options."""
    return var(input, dim, unbiased, **options).sqrt()
