"""Sorting and selecting: sort, argsort, topk, kthvalue, median, mode."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import cpu
from ...core.layout import dense_strides, wrap_dim
from ...core.return_types import named_result
from ...core.tensor import Tensor, empty, empty_strided, numel_of
from ...core.typenames import type_name
from ...kernels.library import radix as radix_kernels
from ...kernels.library import select as select_kernels
from ...kernels.library import sort as sort_kernels
from ..machinery.along import place_along, split_at, take_along
from ..machinery.arguments import is_int, need_tensor
from ..machinery.declare import composite, internal, primitive
from ..machinery.dtype_rules import unsupported
from ..machinery.inplace import raw_copy, write_out
from ..machinery.memory import bare
from ..machinery.primitive import Saved
from ..machinery.reduction import reduced_shape
from ..pointwise.comparison import where
from ..reduce.extremes import select_backward
from ..reduce.scan import one_dim

_TASKS = 8  # independent pieces of work, each with scratch memory of its own


# -- rows --------------------------------------------------------------------------------------------------------------


def to_rows(x: Tensor, d: int) -> Tensor:
    """The values of x as contiguous memory whose last dimension is `d`."""
    rank = len(x.shape)
    if d >= rank - 1:
        return bare(x)
    order = [i for i in range(rank) if i != d] + [d]
    return bare(x._view([x.shape[i] for i in order], tuple([x._strides[i] for i in order]), x._offset))


def from_rows(rows: Tensor, like: Tensor, d: int) -> Tensor:
    """Rows made by to_rows, back in the shape and the dimension order of `like`."""
    strides = dense_strides(like.shape, like._strides)
    rank = len(like.shape)
    if d >= rank - 1 and rows._strides == strides:
        return rows
    out = empty_strided(like.shape, strides, rows.dtype)
    steps = list(rows._strides)
    if rank:
        steps.insert(d, steps.pop())
    raw_copy(out, rows._view(like.shape, tuple(steps), 0))
    return out


def sort_rows(rows: Tensor, descending: bool) -> tuple[Tensor, Tensor]:
    """Every line of the last dimension of a contiguous tensor sorted, stably, and the order that sorts it."""
    n = rows.shape[-1] if rows.shape else 1
    count = numel_of(rows.shape) // max(n, 1)
    index = empty(rows.shape, dt.int64)
    values = empty(rows.shape, rows.dtype)
    if not numel_of(rows.shape):
        return values, index
    if radix_kernels.SHORT <= n < 1 << 31:
        tasks = min(count, _TASKS)
        wide = rows.dtype in (dt.float64, dt.int64, dt.uint64)
        keys = empty((tasks, 2, n), dt.int64 if wide else dt.uint32)
        order = empty((tasks, 2, n), dt.int32)
        radix_kernels.radix_sort_rows(values, index, rows, keys, order, count, n, tasks, descending=descending)
        return values, index
    raw_copy(values, rows)
    spare = spare_index = None
    if n > sort_kernels.RUN:
        spare, spare_index = empty(rows.shape, rows.dtype), empty(rows.shape, dt.int64)
    sort_kernels.sort_rows(values, index, spare, spare_index, count, n, descending=descending)
    return values, index


# -- sort --------------------------------------------------------------------------------------------------------------

_sort_result = named_result("sort", "values", "indices")


def _sorted(input: Tensor, dim: int, descending: bool) -> Saved:
    if input.dtype.is_complex:
        raise RuntimeError("Sort does not support complex dtypes on CPU")
    if input.device is not cpu:
        values, index = empty(input.shape, input.dtype, input.device), empty(input.shape, dt.int64, input.device)
    else:
        rows = sort_rows(to_rows(input, dim), descending)
        values, index = from_rows(rows[0], input, dim), from_rows(rows[1], input, dim)
    return Saved(_sort_result((values, index)), index=index, shape=input.shape)


def _place_values(g: tuple, index: Tensor, dim: int, shape: Any) -> Tensor:
    return place_along(g[0], index, dim, shape)


@internal(grads={"input": _place_values}, label="SortBackward0")
def sorted_along(input: Tensor, dim: int, descending: bool) -> Any:
    return _sorted(input, dim, descending)


@internal(grads={"input": _place_values}, label="SortBackward1")
def stably_sorted_along(input: Tensor, dim: int, descending: bool) -> Any:
    return _sorted(input, dim, descending)


@composite(out="exact")
def sort(input: Tensor, *args: Any, stable: bool | None = None, **kwargs: Any) -> Any:
    """sort(input, dim=-1, descending=False, *, stable=None, out=None): elements in order along a dimension, nan last,
    and where they were. Equal elements always keep their order."""
    need_tensor("sort", input)
    dim, descending = _sort_arguments("sort", args, kwargs, stable)
    d = one_dim("sort", dim, len(input.shape))
    return (sorted_along if stable is None else stably_sorted_along)(input, d, descending)


def _sort_arguments(name: str, args: tuple, kwargs: dict[str, Any], stable: Any) -> tuple[Any, bool]:
    if len(args) > 2 or (args and stable is not None):
        raise TypeError(
            f"{name}() received an invalid combination of arguments: with 'stable', all others are keywords"
        )
    values: dict[str, Any] = dict(zip(("dim", "descending"), args))
    for key, value in kwargs.items():
        plain = "dim" if key == "axis" else key
        if plain in values or plain not in ("dim", "descending"):
            raise TypeError(f"{name}() got an unexpected or repeated keyword argument '{key}'")
        values[plain] = value
    for key, value in (("descending", values.get("descending", False)), ("stable", stable)):
        if not isinstance(value, bool) and value is not None:
            raise TypeError(f"{name}(): argument '{key}' must be bool, not {type_name(value)}")
    return values.get("dim", -1), values.get("descending", False)


@composite(out=True)
def argsort(input: Tensor, *args: Any, stable: bool | None = None, **kwargs: Any) -> Tensor:
    """argsort(input, dim=-1, descending=False, *, stable=False): the order that sorts along a dimension."""
    need_tensor("argsort", input)
    dim, descending = _sort_arguments("argsort", args, kwargs, stable)
    return sorted_along(input._bare_alias(), one_dim("argsort", dim, len(input.shape)), descending)[1]


@composite(out="exact")
def msort(input: Tensor) -> Tensor:
    """Sorted along the first dimension."""
    return sort(input, 0)[0]


# -- topk --------------------------------------------------------------------------------------------------------------

_topk_result = named_result("topk", "values", "indices")


def _top(input: Tensor, k: int, d: int, largest: bool) -> tuple[Tensor, Tensor]:
    """The k best of each line, best first, and where they are."""
    shape = (*input.shape[:d], k, *input.shape[d + 1 :]) if input.shape else ()
    values, index = empty(shape, input.dtype, input.device), empty(shape, dt.int64, input.device)
    outer, n, inner = split_at(input.shape, d)
    if input.device is not cpu or not numel_of(shape) or not k:
        return values, index
    x = bare(input)
    if k <= select_kernels.FEW and (k * 8 <= n or n <= select_kernels.FEW):
        select_kernels.top_few(values, index, x, outer, n, inner, k, largest=largest)
        return values, index
    tasks = min(outer * inner, _TASKS)
    if k * 64 <= n:
        keys, places = empty((tasks, k), dt.int64), empty((tasks, k), dt.int64)
        select_kernels.top_heap(values, index, x, keys, places, outer, n, inner, k, tasks, largest=largest)
        return values, index
    select_kernels.top_many(index, x, outer, n, inner, k, tasks, largest=largest, long=n > select_kernels.SMALL)
    values, order = _sorted(take_along(x, index, d, input.shape), d, largest).result
    return values, take_along(index, order, d, index.shape)


@internal(grads={"input": _place_values}, label="TopkBackward0")
def topk_along(input: Tensor, k: int, dim: int, largest: bool) -> Any:
    values, index = _top(input, k, dim, largest)
    return Saved(_topk_result((values, index)), index=index, shape=input.shape)


@composite(out="exact")
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k largest (or smallest) elements along a dimension, best first, and where they are."""
    need_tensor("topk", input)
    if not is_int(k):
        raise TypeError(f"topk(): argument 'k' (position 2) must be int, not {type_name(k)}")
    k, d = int(k), one_dim("topk", dim, len(input.shape))
    if not 0 <= k <= (input.shape[d] if input.shape else 1):
        raise RuntimeError("selected index k out of range")
    if input.dtype.is_complex or input.dtype is dt.bool_:
        raise RuntimeError(f"topk does not support {'complex' if input.dtype.is_complex else 'bool'} dtypes on CPU")
    return topk_along(input, k if input.shape else 1, d, largest)  # a lone element is always chosen


# -- one element of each line ------------------------------------------------------------------------------------------


def _select(name: str, input: Tensor, dim: int, keepdim: bool, k: int, mode: str) -> Saved:
    """The k-th smallest element along a dimension (or a median) and its index."""
    d = wrap_dim(dim, len(input.shape))
    shape = reduced_shape(input.shape, (d,), keepdim)
    values, index = empty(shape, input.dtype, input.device), empty(shape, dt.int64, input.device)
    outer, n, inner = split_at(input.shape, d)
    if input.device is cpu and numel_of(shape):
        long = n > select_kernels.SMALL
        tasks = min(outer * inner, _TASKS)
        select_kernels.select_lines(values, index, bare(input), outer, n, inner, k, tasks, mode=mode, long=long)
    return Saved(_SELECT_RESULTS[name]((values, index)), index=index, shape=input.shape)


_SELECT_RESULTS = {
    name: named_result(name, "values", "indices") for name in ("kthvalue", "median", "nanmedian", "mode")
}


def _need_elements(name: str, input: Tensor, d: int, dtypes: bool = True) -> None:
    if input.shape and input.shape[d] == 0:
        raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")
    if dtypes and (input.dtype.is_complex or input.dtype is dt.bool_):
        word = "median" if name == "nanmedian" else name
        raise unsupported(f"{word}_cpu", input.dtype)


@composite
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False, *, out: Any = None) -> Any:
    """The k-th smallest element (counted from 1) along a dimension, and where it is."""
    if out is None:
        return kth_along(input, k, dim, keepdim)
    return _write_apart("kthvalue", input, out, kth_along(input._bare_alias(), k, dim, keepdim))


def _write_apart(name: str, input: Tensor, out: Any, result: tuple) -> Any:
    """Deliver values and indices into tensors that must not share memory with the input."""
    for t in out if isinstance(out, (tuple, list)) else ():
        if isinstance(t, Tensor) and t._storage is input._storage and numel_of(t.shape):
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single"
                " memory location. Please clone() the tensor before performing the operation."
            )
    return write_out(name, out, result, exact=True)


@internal(grads={"input": select_backward}, label="KthvalueBackward0")
def kth_along(input: Tensor, k: int, dim: int, keepdim: bool) -> Any:
    need_tensor("kthvalue", input)
    if not is_int(k):
        raise TypeError(f"kthvalue(): argument 'k' (position 2) must be int, not {type_name(k)}")
    d = one_dim("kthvalue", dim, len(input.shape))
    _need_elements("kthvalue", input, d)
    if not 1 <= int(k) <= (input.shape[d] if input.shape else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {d}")
    return _select("kthvalue", input, d, keepdim, int(k) - 1, "kth")


def _shared_evenly(g: Tensor, input: Tensor, out: Tensor) -> Tensor:
    """Every element that equals the median gets the same share of the gradient."""
    found = (input == out).logical_or(input.isnan().logical_and(out.isnan()))
    return where(found, g / found.sum(), 0)


def _whole_median(name: str, input: Tensor) -> Tensor:
    need_tensor(name, input)
    if not numel_of(input.shape):
        out = empty((), input.dtype, input.device)
        lowest = np.nan if input.dtype.is_floating_point else np.iinfo(input.dtype.numpy).min
        raw_copy(out, lowest)
        return out
    _need_elements(name, input, 0)
    return _select(name, bare(input).reshape(-1), 0, False, 0, name).result[0]


@internal(grads={"input": _shared_evenly}, label="MedianBackward0")
def median_of_all(input: Tensor) -> Any:
    return _whole_median("median", input)


@internal(grads={"input": _shared_evenly}, label="NanmedianBackward0")
def nanmedian_of_all(input: Tensor) -> Any:
    return _whole_median("nanmedian", input)


@internal(grads={"input": select_backward}, label="MedianBackward1")
def median_along(input: Tensor, dim: int, keepdim: bool) -> Any:
    return _select("median", input, dim, keepdim, 0, "median")


@internal(grads={"input": select_backward}, label="NanmedianBackward1")
def nanmedian_along(input: Tensor, dim: int, keepdim: bool) -> Any:
    return _select("nanmedian", input, dim, keepdim, 0, "nanmedian")


def _median(name: str, input: Tensor, dim: Any, keepdim: bool, out: Any, whole: Any, along: Any) -> Any:
    need_tensor(name, input)
    if dim is None:
        result = whole(input)
        return result if out is None else write_out(name, out, result)
    d = one_dim(name, dim, len(input.shape))
    _need_elements(name, input, d)
    result = along(input, d, keepdim)
    return result if out is None else _write_apart(name, input, out, result)


@composite
def median(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The middle element (the lower of two), overall or along a dimension with its index. nan if there is one."""
    return _median("median", input, dim, keepdim, out, median_of_all, median_along)


@composite
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The middle of the elements that are not nan, overall or along a dimension with its index."""
    return _median("nanmedian", input, dim, keepdim, out, nanmedian_of_all, nanmedian_along)


@primitive(grads={"input": select_backward}, out="exact")
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent element along a dimension (the smallest of several), and where it last occurs."""
    need_tensor("mode", input)
    d = one_dim("mode", dim, len(input.shape))
    _need_elements("mode", input, d, dtypes=False)
    if input.dtype.is_complex:
        raise unsupported("mode_cpu", input.dtype)
    shape = reduced_shape(input.shape, (d,), keepdim)
    values, index = empty(shape, input.dtype, input.device), empty(shape, dt.int64, input.device)
    if input.device is cpu and numel_of(shape):
        ordered, order = sort_rows(to_rows(input, d), False)
        n = input.shape[d] if input.shape else 1
        radix_kernels.longest_runs(values, index, ordered, order, numel_of(shape), n)
    return Saved(_SELECT_RESULTS["mode"]((values, index)), index=index, shape=input.shape)
