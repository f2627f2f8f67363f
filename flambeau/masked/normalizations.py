"""Softmax, cumulative sums and similar functions over the selected elements; values elsewhere are undefined."""

from __future__ import annotations

import math
from typing import Any

from ..core.tensor import Tensor
from .reductions import norm
from .selection import chosen, filled


def _prepare(name: str, input: Any, mask: Any, dtype: Any, idle: float) -> Tensor:
    mask = chosen(name, input, mask)
    return filled(input if dtype is None else input.to(dtype), mask, idle)


def softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return exp(x) / sum(exp(x)) over one dimension; 0 where not selected."""
    return _prepare("softmax", input, mask, dtype, -math.inf).softmax(dim)


def log_softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return the logarithm of `softmax`."""
    return _prepare("log_softmax", input, mask, dtype, -math.inf).log_softmax(dim)


def softmin(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return `softmax` of the negated input."""
    return (-_prepare("softmin", input, mask, dtype, math.inf)).softmax(dim)


def cumsum(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return cumulative sums of the selected elements."""
    values = _prepare("cumsum", input, mask, dtype, 0)
    return values.cumsum(dim, dtype=values.dtype)


def cumprod(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Cumulative products along `dim`, in which elements that the mask leaves out count as 1."""
    values = _prepare("cumprod", input, mask, dtype, 1)
    return values.cumprod(dim, dtype=values.dtype)


def normalize(input: Any, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return the input divided by its norm (at least eps) along one dimension."""
    length = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _prepare("normalize", input, mask, dtype, 0) / length.clamp_min(eps)


def logaddexp(input: Any, other: Any, *, dtype: Any = None, input_mask: Any = None, other_mask: Any = None) -> Tensor:
    """Return log(exp(input) + exp(other)), each with its own mask."""
    first = _prepare("logaddexp", input, input_mask, dtype, -math.inf)
    return first.logaddexp(_prepare("logaddexp", other, other_mask, dtype, -math.inf))
