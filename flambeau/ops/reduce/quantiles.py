"""Quantiles, with or without nan."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.backend import BACKENDS
from ...core.layout import wrap_dim
from ...core.tensor import Tensor, numel_of
from ...core.typenames import type_name
from ...expr import functions as f
from ..index.sort import sorted_along
from ..machinery.along import take_along
from ..machinery.arguments import need_tensor
from ..machinery.declare import composite
from ..machinery.formula import Pointwise
from .sums import count_not_nan

_MODES = ("linear", "lower", "higher", "midpoint", "nearest")
_rank = Pointwise("rank", lambda q, last: q * last)
_whole_rank = {
    "lower": Pointwise("lower_rank", lambda r: f.floor(r)),
    "higher": Pointwise("higher_rank", lambda r: f.ceil(r)),
    "nearest": Pointwise("nearest_rank", lambda r: f.round_(r)),
}
_mix = Pointwise("mix", lambda a, b, w: f.where(w < 0.5, a + w * (b - a), b - (b - a) * (1 - w)))


def _check(name: str, x: Tensor, q: Any, interpolation: str) -> Tensor:
    """Return q as a tensor of one or no dimensions, after PyTorch's checks."""
    need_tensor(name, x)
    if not numel_of(x.shape):
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if x.dtype is not dt.float32 and x.dtype is not dt.float64:
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if interpolation not in _MODES:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    if not isinstance(q, Tensor):
        if not isinstance(q, (int, float)):
            raise TypeError(f"{name}(): argument 'q' (position 2) must be float, not {type_name(q)}")
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q:g}")
        return x.new_full((), float(q), requires_grad=False)
    if len(q.shape) > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if q.dtype is not x.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    plain = q._bare_alias()
    # Elsewhere PyTorch does not wait for the values either.
    looked_at = BACKENDS[q.device.type].on_host and numel_of(q.shape)
    if looked_at and not (plain.amin().item() >= 0 and plain.amax().item() <= 1):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    return q


def _quantile(name: str, x: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str, skip_nan: bool) -> Tensor:
    levels = _check(name, x, q, interpolation)
    rank = len(x.shape)
    d = None if dim is None else wrap_dim(dim, rank)
    if d is None:
        rows, kept = x.reshape(-1), [1] * rank
    else:
        rows = x if d >= rank - 1 else x.movedim(d, -1)
        kept = [1 if i == d else n for i, n in enumerate(x.shape)]
    if not rows.shape:
        rows = rows.reshape(1)
    values = sorted_along(rows, len(rows.shape) - 1, False)[0]  # (*lines, n)
    picked = _at_levels(values, levels.reshape(-1), interpolation, skip_nan)  # (*lines, q)
    picked = picked.movedim(-1, 0)
    result = picked.reshape([levels.numel(), *kept]) if keepdim else picked
    return result if levels.shape else result.squeeze(0)


def _at_levels(values: Tensor, levels: Tensor, interpolation: str, skip_nan: bool) -> Tensor:
    n = values.shape[-1]
    plain = values._bare_alias()
    numbers = count_not_nan.call(plain, len(values.shape) - 1, True)  # (*lines, 1)
    if skip_nan:
        last = (numbers - 1).clamp(min=0).to(values.dtype)
        ranks = _rank.call((levels, last))
    else:
        ranks = _rank.call((levels, float(n - 1))).expand([*values.shape[:-1], levels.shape[0]])
        if values.dtype.is_floating_point:
            ranks = ranks.masked_fill(numbers < n, float(n - 1))  # a line with nan gives nan
    dim, shape = len(values.shape) - 1, values.shape
    if interpolation in _whole_rank:
        index = _whole_rank[interpolation].call((ranks,)).detach().to(dt.int64)
        return take_along(values, index, dim, shape)
    below = ranks.floor().detach()
    low = take_along(values, below.to(dt.int64), dim, shape)
    high = take_along(values, ranks.ceil().detach().to(dt.int64), dim, shape)
    if interpolation == "midpoint":
        return _mix.call((low, high, 0.5))
    return _mix.call((low, high, ranks - below))


@composite(out="exact", autocast="float32")
def quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The q-th quantiles of all elements or along a dimension; nan if an element is nan."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


@composite(out="exact", autocast="float32")
def nanquantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The q-th quantiles of the elements that are not nan."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)
