"""Counting: bincount, histc, histograms in one and more dimensions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.bfloat16 import bits_to_float32
from ...core.return_types import named_result
from ...core.size import make_size
from ...core.tensor import Tensor, copy_of_array, numel_of
from ...core.typenames import type_name
from ...kernels.library.counting import bounds, count_between, count_numbers
from ...kernels.library.search import search_sorted
from ..creation.convert import to
from ..machinery.arguments import as_int, need_tensor
from ..machinery.declare import composite, internal
from ..machinery.dtype_rules import unsupported
from ..machinery.inplace import raw_copy
from ..machinery.memory import bare, dense
from ..machinery.out import write_out
from ..machinery.record import NewTensor, NewTensors


@composite
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Counts of each number from 0 on, or sums of the weights of its occurrences."""
    if input.dtype.category != 1:
        raise unsupported("bincount_cpu", input.dtype)
    if as_int(minlength, "bincount", "minlength", 3) < 0:
        raise RuntimeError("minlength should be >= 0")
    if len(input.shape) != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights.shape != input.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    return counts_of(input, weights, minlength)


@internal(reads_values=True, batching="each")
def counts_of(input: Tensor, weights: Tensor | None, minlength: int) -> Tensor:
    """Counts of each number from 0 on in a vector, or sums of the weights of its occurrences."""


@counts_of.on("cpu")
def _(input: Tensor, weights: Tensor | None, minlength: int) -> Tensor:
    found, n = np.zeros(2, np.int64), numel_of(input.shape)
    if n:
        bounds(found, dense(input), n)
    if found[0] < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None or not n:  # where nothing is counted, PyTorch does not look at the weights
        size = max(int(found[1]) + 1 if n else 0, minlength)
        counts = np.zeros((2, size), np.int64)
        count_numbers(counts, dense(input), n, size)
        return copy_of_array(counts[0], dt.int64)
    kind = dt.float32 if weights.dtype is dt.float32 else dt.float64
    plain = to(weights._bare_alias(), dt.float64)
    return copy_of_array(np.bincount(input._array(), plain._array(), minlength), kind)


# -- edges -------------------------------------------------------------------------------------------------------------


def _values(x: Tensor) -> np.ndarray:
    array = x._bare_alias()._array()
    return bits_to_float32(array) if x.dtype is dt.bfloat16 else array


def _check_range(low: float, high: float, dim: int) -> None:
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.histogramdd: dimension {dim}'s range [{low:g}, {high:g}] is not finite")
    if low > high:
        raise RuntimeError(
            f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for dimension {dim}"
        )


def _outer_edges(column: np.ndarray, given: tuple[float, float] | None, dim: int) -> tuple[float, float]:
    if given is not None:
        low, high = given
    elif column.size:
        low, high = float(column.min()), float(column.max())
    else:
        low, high = 0.0, 1.0
    _check_range(low, high, dim)
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def _places(column: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the bin of each element between any edges; -1 outside. The last edge belongs to the last bin."""
    place = np.empty(len(column), np.int64)
    if len(column):
        search_sorted(
            place, edges, np.ascontiguousarray(column), None, len(column), len(edges), len(column), right=True
        )
    place -= 1
    place = np.where(column == edges[-1], len(edges) - 2, place)
    return np.where((column >= edges[0]) & (column <= edges[-1]), place, -1)


# -- histc -------------------------------------------------------------------------------------------------------------


@composite
def histc(input: Tensor, bins: int = 100, min: Any = 0, max: Any = 0, *, out: Any = None) -> Tensor:
    """Counts of elements in evenly spaced bins between min and max (those of the input if both are 0)."""
    if as_int(bins, "histc", "bins", 2) <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    if min > max:
        raise RuntimeError("torch.histc: max must be larger than min")
    if not input.dtype.is_floating_point:
        raise unsupported("histogram_cpu", input.dtype)
    result = even_counts(input, bins, float(min), float(max))
    return result if out is None else write_out("histc", out, result, exact=True)


@internal(name="histc", batching="each", sharding="counts")
def even_counts(input: Tensor, bins: int, low: float, high: float) -> NewTensor:
    """Counts of elements in evenly spaced bins between low and high (those of the input if they are equal)."""
    return (bins,), input.dtype, input.device


@even_counts.on("cpu")
def _(out: Tensor, input: Tensor, bins: int, low: float, high: float) -> None:
    x = bare(input)
    flat = _values(x).reshape(-1)
    if low == high and flat.size:
        low, high = float(flat.min()), float(flat.max())
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low:g}, {high:g}] is not finite")
    counts = np.zeros(bins + 1, np.int64)
    places: Any = None
    if input.dtype.itemsize == 2:  # PyTorch rounds after every step
        edges = to(copy_of_array(np.array([low, high]), dt.float64), input.dtype)
        low, high = edges.tolist()
        places = (x - low) * bins / (edges[1] - edges[0])
    count_between(counts, x, places, flat.size, bins, low, high)
    raw_copy(out, copy_of_array(counts[:bins], dt.int64))


# -- histogram ---------------------------------------------------------------------------------------------------------


def _check_bins(bins: Any, kind: dt.dtype, dim: int) -> None:
    if not isinstance(bins, Tensor):
        if bins <= 0:
            raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension {dim}")
        return
    if len(bins.shape) != 1:
        raise RuntimeError(
            f"torch.histogramdd: bins tensor should have one dimension, but got {len(bins.shape)} dimensions in"
            f" the bins tensor for dimension {dim}"
        )
    if bins.shape[0] < 2:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins.shape[0] - 1} for dimension {dim}")
    if bins.dtype is not kind:
        raise RuntimeError(
            "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype"
            f" {kind.name} and bins for dimension {dim} with dtype {bins.dtype.name}"
        )


def _edges_of_dim(column: np.ndarray, bins: Any, given: Any, dim: int) -> np.ndarray:
    if isinstance(bins, Tensor):
        return np.ascontiguousarray(_values(bins))
    low, high = _outer_edges(column, given, dim)
    return np.linspace(low, high, bins + 1).astype(column.dtype)


def _check_input(name: str, input: Tensor) -> None:
    need_tensor(name, input)
    if input.dtype is not dt.float32 and input.dtype is not dt.float64:
        raise unsupported("histogramdd", input.dtype)


def _check_weight(input_shape: list[int], weight: Tensor | None, kind: dt.dtype) -> None:
    if weight is None:
        return
    if list(weight.shape) != input_shape[:-1]:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor"
            " excluding its"
            f" innermost dimension, but got input with shape {input_shape} and weight with shape {list(weight.shape)}"
        )
    if weight.dtype is not kind:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same"
            f" dtype, but got input(dtype={kind.name}), and weight(dtype={weight.dtype.name})"
        )


@internal(returns=tuple, runs_empty=True, batching="each")
def histogram_of(table: Tensor, bins: list[Any], ranges: list[Any], weight: Tensor | None, density: bool) -> NewTensors:
    """The histogram of the rows of a table, and the edges of its bins in each dimension."""
    for d, b in enumerate(bins):
        _check_bins(b, table.dtype, d)
    shape = [b.shape[0] - 1 if isinstance(b, Tensor) else b for b in bins]
    edges = [(b.shape if isinstance(b, Tensor) else (b + 1,), table.dtype, table.device) for b in bins]
    return [(make_size(shape), table.dtype, table.device), *edges]


@histogram_of.on("cpu")
def _(
    out: list[Tensor], table: Tensor, bins: list[Any], ranges: list[Any], weight: Tensor | None, density: bool
) -> None:
    columns = _values(table)
    edges = [_edges_of_dim(columns[:, d], b, ranges[d], d) for d, b in enumerate(bins)]
    places = [_places(columns[:, d], edge) for d, edge in enumerate(edges)]
    shape = tuple(out[0].shape)
    inside = np.all([p >= 0 for p in places], axis=0) if columns.size else np.zeros(len(columns), bool)
    flat = np.ravel_multi_index([p[inside] for p in places], shape) if inside.any() else np.zeros(0, np.int64)
    chosen = None if weight is None else _values(weight).reshape(-1)[inside]
    counts = np.bincount(flat, chosen, int(np.prod(shape))).astype(np.float64).reshape(shape)
    if density:
        counts = counts / counts.sum()
        for d, edge in enumerate(edges):
            counts = counts / np.diff(edge.astype(np.float64)).reshape([-1 if i == d else 1 for i in range(len(shape))])
    for t, array in zip(out, (counts, *edges)):
        t._array()[...] = array


_histogram_result = named_result("histogram", "hist", "bin_edges")
_histogramdd_result = named_result("histogramdd", "hist", "bin_edges")


@composite
def histogram(
    input: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False, out: Any = None
) -> Any:
    """Counts (or weights, or a density) of elements in bins, and the edges of the bins."""
    _check_input("histogram", input)
    if not isinstance(bins, Tensor) and (isinstance(bins, bool) or not isinstance(bins, int)):
        raise TypeError(f"histogram(): argument 'bins' must be Tensor or int, not {type_name(bins)}")
    n = numel_of(input.shape)
    flat_weight = None if weight is None else (weight.reshape(-1) if weight.shape == input.shape else weight)
    _check_weight([n, 1], flat_weight, input.dtype)
    given = None if range is None else (float(range[0]), float(range[1]))
    table = input._bare_alias().reshape(n, 1)
    result = _histogram_result(histogram_of(table, [bins], [given], flat_weight, bool(density)))
    return result if out is None else write_out("histogram", out, result)


@composite(method=False)
def histogramdd(
    input: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Any:
    """The histogram of points in several dimensions, and the edges of its bins."""
    _check_input("histogramdd", input)
    if len(input.shape) < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    dims = input.shape[-1]
    each = [bins] * dims if isinstance(bins, int) else list(bins)
    if len(each) != dims:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    if range is not None and len(range) != 2 * dims:
        raise RuntimeError(
            f"torch.histogramdd: for a {dims}-dimensional histogram range should have {2 * dims} elements, but got"
            f" {len(range)}"
        )
    ranges = [None if range is None else (float(range[2 * d]), float(range[2 * d + 1])) for d in _up_to(dims)]
    _check_weight(list(input.shape), weight, input.dtype)
    table = input._bare_alias().reshape(numel_of(input.shape[:-1]), dims)
    hist, *edges = histogram_of(table, each, ranges, weight, bool(density))
    return _histogramdd_result((hist, tuple(edges)))


def _up_to(n: int) -> Any:
    return range(n)  # where an argument has taken the name
