"""Sorting and selecting: sort, argsort, topk, kthvalue, median, mode."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.layout import dense_strides, wrap_dim
from ...core.return_types import NamedResult, named_result
from ...core.size import make_size
from ...core.tensor import Tensor, empty, numel_of
from ...core.typenames import type_name
from ...kernels.library import radix as radix_kernels
from ...kernels.library import select as select_kernels
from ...kernels.library import sort as sort_kernels
from ..machinery.along import place_along, split_at, take_into
from ..machinery.arguments import is_int, need_tensor
from ..machinery.declare import composite, internal, primitive
from ..machinery.dtype_rules import unsupported
from ..machinery.inplace import raw_copy
from ..machinery.memory import dense
from ..machinery.out import write_out
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensors
from ..machinery.reduction import reduced_shape
from ..pointwise.comparison import where
from ..reduce.extremes import select_backward
from ..reduce.scan import one_dim

_TASKS = 8  # independent pieces of work, each with scratch memory of its own


# -- rows --------------------------------------------------------------------------------------------------------------


def to_rows(x: Tensor, d: int) -> Tensor:
    """Return the values of x as contiguous memory whose last dimension is `d`."""
    return dense(_seen_as_rows(x, d))


def _seen_as_rows(x: Tensor, d: int) -> Tensor:
    """Return the memory of x with dimension `d` last."""
    rank = len(x.shape)
    if d >= rank - 1:
        return x
    order = [i for i in range(rank) if i != d] + [d]
    return x._view(make_size([x.shape[i] for i in order]), tuple([x._strides[i] for i in order]), x._offset)


def sort_rows(values: Tensor, index: Tensor, rows: Tensor, descending: bool) -> None:
    """Sort every line of the last dimension of a contiguous tensor, stably, into memory of the same shape, with the order that sorts it. For
    kernels."""
    n = rows.shape[-1] if rows.shape else 1
    count = numel_of(rows.shape) // max(n, 1)
    where = rows.device
    if radix_kernels.SHORT <= n < 1 << 31:
        tasks = min(count, _TASKS)
        wide = rows.dtype in (dt.float64, dt.int64, dt.uint64)
        keys = empty((tasks, 2, n), dt.int64 if wide else dt.uint32, where)
        order = empty((tasks, 2, n), dt.int32, where)
        radix_kernels.radix_sort_rows(values, index, rows, keys, order, count, n, tasks, descending=descending)
        return
    raw_copy(values, rows)
    spare = spare_index = None
    if n > sort_kernels.RUN:
        spare, spare_index = empty(rows.shape, rows.dtype, where), empty(rows.shape, dt.int64, where)
    sort_kernels.sort_rows(values, index, spare, spare_index, count, n, descending=descending)


def sort_along(
    values: Tensor, index: Tensor, input: Tensor, dim: int, descending: bool, rows_sorter: Any = sort_rows
) -> None:
    """Sort the lines of `dim` into dense memory of the same shape, with their order. For kernels."""
    rows = to_rows(input, dim)
    if values._contig and dim >= len(input.shape) - 1:
        rows_sorter(values, index, rows, descending)
        return
    ordered, order = empty(rows.shape, rows.dtype, rows.device), empty(rows.shape, dt.int64, rows.device)
    rows_sorter(ordered, order, rows, descending)
    raw_copy(_seen_as_rows(values, dim), ordered)
    raw_copy(_seen_as_rows(index, dim), order)


# -- sort --------------------------------------------------------------------------------------------------------------

_sort_result = named_result("sort", "values", "indices")


def _sort_layout(input: Tensor, dim: int, descending: bool) -> list[Any]:
    if input.dtype.is_complex:
        raise RuntimeError("Sort does not support complex dtypes on CPU")
    shape, where = input.shape, input.device
    if input._contig:
        return [(shape, input.dtype, where), (shape, dt.int64, where)]
    strides = dense_strides(shape, input._strides)
    return [(shape, input.dtype, where, strides), (shape, dt.int64, where, strides)]


def _sort_kernel(out: list[Tensor], input: Tensor, dim: int, descending: bool) -> None:
    sort_along(out[0], out[1], input, dim, descending)


def _place_values(g: tuple[Any, ...], index: Tensor, dim: int, input_shape: Any) -> Tensor:
    return place_along(g[0], index, dim, input_shape, True)


_SORTING: Any = {
    "layout": _sort_layout,
    "keeps": {"index": 1},
    "returns": _sort_result,
    "grads": {"input": _place_values},
}


@internal(**_SORTING, quirks=Quirks(label="SortBackward0"), batching="along", aten="sort(input, dim, descending)")
def sorted_along(input: Tensor, dim: int, descending: bool) -> Any:
    """The lines of a dimension in order, and the order that sorts them."""


@internal(**_SORTING, quirks=Quirks(label="SortBackward1"), batching="along")
def stably_sorted_along(input: Tensor, dim: int, descending: bool) -> Any:
    """Sort along a dimension for users who require that equal elements keep their order."""


sorted_along.on("any")(_sort_kernel)
stably_sorted_along.on("any")(_sort_kernel)


@composite(out="exact")
def sort(input: Tensor, *args: Any, stable: bool | None = None, **kwargs: Any) -> Any:
    """sort(input, dim=-1, descending=False, *, stable=None, out=None): elements in order along a dimension, nan last,
    and where they were. Equal elements always keep their order."""
    dim, descending = _sort_arguments("sort", args, kwargs, stable)
    d = one_dim("sort", dim, len(input.shape))
    return (sorted_along if stable is None else stably_sorted_along)(input, d, descending)


def _sort_arguments(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], stable: Any) -> tuple[Any, bool]:
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
    """argsort(input, dim=-1, descending=False, *, stable=None, out=None): the order that sorts along a dimension."""
    dim, descending = _sort_arguments("argsort", args, kwargs, stable)
    return sorted_along(input._bare_alias(), one_dim("argsort", dim, len(input.shape)), descending)[1]


@composite(out="exact")
def msort(input: Tensor) -> Tensor:
    """The elements sorted along the first dimension."""
    return sort(input, 0)[0]


# -- topk --------------------------------------------------------------------------------------------------------------

_topk_result = named_result("topk", "values", "indices")


@internal(
    keeps={"index": 1},
    returns=_topk_result,
    grads={"input": _place_values},
    quirks=Quirks(label="TopkBackward0"),
    batching="along",
)
def topk_along(input: Tensor, k: int, dim: int, largest: bool) -> NewTensors:
    """The k best of each line, best first, and where they are."""
    shape = (*input.shape[:dim], k, *input.shape[dim + 1 :]) if input.shape else ()
    return [(shape, input.dtype, input.device), (shape, dt.int64, input.device)]


@topk_along.on("any")
def _(out: list[Tensor], input: Tensor, k: int, dim: int, largest: bool) -> None:
    values, index = out
    outer, n, inner = split_at(input.shape, dim)
    x, where = dense(input), input.device
    if k <= select_kernels.FEW and (k * 8 <= n or n <= select_kernels.FEW):
        select_kernels.top_few(values, index, x, outer, n, inner, k, largest=largest)
        return
    tasks = min(outer * inner, _TASKS)
    if k * 64 <= n:
        keys, places = empty((tasks, k), dt.int64, where), empty((tasks, k), dt.int64, where)
        select_kernels.top_heap(values, index, x, keys, places, outer, n, inner, k, tasks, largest=largest)
        return
    chosen, order = empty(index.shape, dt.int64, where), empty(index.shape, dt.int64, where)
    select_kernels.top_many(chosen, x, outer, n, inner, k, tasks, largest=largest, long=n > select_kernels.SMALL)
    best = empty(values.shape, values.dtype, where)
    take_into(best, x, chosen, dim, input.shape)
    sort_along(values, order, best, dim, largest)
    take_into(index, chosen, order, dim, index.shape)


@composite(out="exact")
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k largest (or smallest) elements along a dimension, best first, and where they are."""
    if type(k) is not int and not is_int(k):
        raise TypeError(f"topk(): argument 'k' (position 2) must be int, not {type_name(k)}")
    k, d = int(k), one_dim("topk", dim, len(input.shape))
    if not 0 <= k <= (input.shape[d] if input.shape else 1):
        raise RuntimeError("selected index k out of range")
    if input.dtype.is_complex or input.dtype is dt.bool_:
        raise RuntimeError(f"topk does not support {'complex' if input.dtype.is_complex else 'bool'} dtypes on CPU")
    return topk_along(input, k if input.shape else 1, d, largest)  # a lone element is always chosen


# -- one element of each line ------------------------------------------------------------------------------------------


def _selection_layout(input: Tensor, dim: int, keepdim: bool) -> list[Any]:
    shape = reduced_shape(input.shape, (wrap_dim(dim, len(input.shape)),), keepdim)
    return [(shape, input.dtype, input.device), (shape, dt.int64, input.device)]


def _select(values: Tensor, index: Tensor, input: Tensor, dim: int, k: int, mode: str) -> None:
    """Find the k-th smallest element along a dimension (or a median) and its index. For kernels."""
    outer, n, inner = split_at(input.shape, dim)
    long, tasks = n > select_kernels.SMALL, min(outer * inner, _TASKS)
    select_kernels.select_lines(values, index, dense(input), outer, n, inner, k, tasks, mode=mode, long=long)


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


def _write_apart(name: str, input: Tensor, out: Any, result: tuple[Any, ...]) -> Any:
    """Write values and indices into tensors that must not share memory with the input."""
    for t in out if isinstance(out, (tuple, list)) else ():
        if isinstance(t, Tensor) and t._storage is input._storage and numel_of(t.shape):
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single"
                " memory location. Please clone() the tensor before performing the operation."
            )
    return write_out(name, out, result, exact=True)


@internal(
    keeps={"index": 1},
    returns=_SELECT_RESULTS["kthvalue"],
    grads={"input": select_backward},
    quirks=Quirks(label="KthvalueBackward0"),
    batching="along",
)
def kth_along(input: Tensor, k: int, dim: int, keepdim: bool) -> NewTensors:
    """The k-th smallest element along a dimension, and where it is."""
    need_tensor("kthvalue", input)
    if not is_int(k):
        raise TypeError(f"kthvalue(): argument 'k' (position 2) must be int, not {type_name(k)}")
    d = one_dim("kthvalue", dim, len(input.shape))
    _need_elements("kthvalue", input, d)
    if not 1 <= int(k) <= (input.shape[d] if input.shape else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {d}")
    return _selection_layout(input, d, keepdim)


@kth_along.on("any")
def _(out: list[Tensor], input: Tensor, k: int, dim: int, keepdim: bool) -> None:
    _select(out[0], out[1], input, dim, int(k) - 1, "kth")


def _shared_evenly(g: Tensor, input: Tensor, out: Tensor) -> Tensor:
    """Return the gradient of the median: every element that equals it gets the same share."""
    found = (input == out).logical_or(input.isnan().logical_and(out.isnan()))
    return where(found, g / found.sum(), 0)


def _declare_medians(name: str) -> tuple[Any, Any]:
    """Declare the median of all elements, and along a dimension with its index."""

    def layout(input: Tensor) -> tuple[Any, ...]:
        need_tensor(name, input)
        if numel_of(input.shape):
            _need_elements(name, input, 0)
        return (), input.dtype, input.device

    def of_all(input: Tensor) -> Any:
        """Return the median of all elements."""

    def along(input: Tensor, dim: int, keepdim: bool) -> Any:
        """The middle element along a dimension, and where it is."""

    label = name.capitalize()
    whole = internal(
        of_all,
        name=f"{name}_of_all",
        layout=layout,
        grads={"input": _shared_evenly},
        quirks=Quirks(label=f"{label}Backward0"),
        batching="each",
    )
    line = internal(
        along,
        name=f"{name}_along",
        layout=_selection_layout,
        keeps={"index": 1},
        returns=_SELECT_RESULTS[name],
        grads={"input": select_backward},
        quirks=Quirks(label=f"{label}Backward1"),
        batching="along",
    )

    @whole.on("any")
    def _(out: Tensor, input: Tensor) -> None:
        if numel_of(input.shape):
            flat = dense(input).reshape(-1)
            _select(out, empty((), dt.int64, out.device), flat, 0, 0, name)
        else:
            raw_copy(out, math.nan if out.dtype.is_floating_point else int(np.iinfo(out.dtype.numpy).min))

    @line.on("any")
    def _(out: list[Tensor], input: Tensor, dim: int, keepdim: bool) -> None:
        _select(out[0], out[1], input, dim, 0, name)

    return whole, line


median_of_all, median_along = _declare_medians("median")
nanmedian_of_all, nanmedian_along = _declare_medians("nanmedian")


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
def median(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Tensor | NamedResult:
    """The middle element (the lower of two), overall or along a dimension with its index. nan if there is one."""
    return _median("median", input, dim, keepdim, out, median_of_all, median_along)


@composite
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Tensor | NamedResult:
    """The middle of the elements that are not nan, overall or along a dimension with its index."""
    return _median("nanmedian", input, dim, keepdim, out, nanmedian_of_all, nanmedian_along)


@primitive(
    keeps={"index": 1}, returns=_SELECT_RESULTS["mode"], grads={"input": select_backward}, out="exact", batching="along"
)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> NewTensors:
    """The most frequent element along a dimension (the smallest of several), and where it last occurs."""
    d = one_dim("mode", dim, len(input.shape))
    _need_elements("mode", input, d, dtypes=False)
    if input.dtype.is_complex:
        raise unsupported("mode_cpu", input.dtype)
    return _selection_layout(input, d, keepdim)


@mode.on("any")
def _(out: list[Tensor], input: Tensor, dim: int = -1, keepdim: bool = False) -> None:
    d = wrap_dim(dim, len(input.shape))
    rows = to_rows(input, d)
    ordered, order = empty(rows.shape, rows.dtype, rows.device), empty(rows.shape, dt.int64, rows.device)
    sort_rows(ordered, order, rows, False)
    n = input.shape[d] if input.shape else 1
    radix_kernels.longest_runs(out[0], out[1], ordered, order, numel_of(out[0].shape), n)
