"""Distinct elements, membership, counts, repeated indices and windows at random places on NVIDIA GPUs, composed of sorts, scans, searches and
scatters.

The host waits for the device only if a shape depends on values."""

from __future__ import annotations

import math
from typing import Any

from ....core import dtype as dt
from ....core.layout import wrap_dim
from ....core.tensor import Tensor, empty, numel_of
from ....kernels.library.counting import count_between, count_numbers
from ....ops.creation.filled import fill_raw
from ....ops.index import unique as unique_operators
from ....ops.index.index_vector import fill_at, fill_shared_at_
from ....ops.index.indexing import put_raw, put_shared_
from ....ops.index.masked import fill_shared_
from ....ops.index.positions import true_positions
from ....ops.index.sort import sorted_along, stably_sorted_along
from ....ops.machinery.dtype_rules import number_dtype
from ....ops.machinery.inplace import raw_copy
from ....ops.machinery.memory import bare, dense
from ....ops.machinery.record import lookup
from ....ops.nn.embedding import renorm_rows
from ....ops.nn.max_pool import pool_by_table
from ....ops.nn.max_pool_more import _FRACTIONAL, _whole
from ....ops.reduce.agreement import xor_of_bits
from ....ops.reduce.histogram import _check_range, counts_of, even_counts, histogram_of
from ....ops.shape.rearrange import _counted_indices


def _function(name: str) -> Any:
    return lookup(name).function


# -- distinct elements -------------------------------------------------------------------------------------------------


def _groups(fresh: Any, order: Any, shape: Any, inverse: bool, counts: bool) -> tuple[Any, list[Tensor]]:
    """Return where groups begin in an order whose first elements are marked `fresh`, and if requested each element's group and the groups'
    sizes."""
    n, begins = fresh.shape[0], true_positions(fresh)
    found: list[Tensor] = []
    if inverse:
        group: Any = fresh.to(dt.int64).cumsum(0) - 1
        places = group if order is None else group.new_empty(n).scatter_(0, order, group)
        found.append(places.reshape(shape))
    if counts:
        after = _function("cat")([begins, begins.new_full((1,), n)])
        found.append(after.narrow(0, 1, begins.shape[0]) - begins)
    return begins, found


def _fresh(ordered: Any) -> Any:
    """Mark the elements (or rows) that differ from the one before."""
    n = ordered.shape[0]
    marks = empty((n,), dt.bool_, ordered.device)
    raw_copy(marks.narrow(0, 0, 1), True)
    if n > 1:
        differs = ordered.narrow(0, 1, n - 1) != ordered.narrow(0, 0, n - 1)
        raw_copy(marks.narrow(0, 1, n - 1), differs if len(differs.shape) == 1 else differs.any(1))
    return marks


def _distinct(ordered: Any, order: Any, shape: Any, inverse: bool, counts: bool) -> tuple[Tensor, ...]:
    if not numel_of(ordered.shape):
        return unique_operators._groups(ordered, order, shape, inverse, counts)
    begins, found = _groups(_fresh(ordered), order, shape, inverse, counts)
    return (ordered.index_select(0, begins), *found)


@unique_operators.unique_elements.on("cuda")
def _(input: Tensor, inverse: bool, counts: bool) -> Any:
    ordered, order = sorted_along(bare(input).reshape(-1), 0, False)
    return _distinct(ordered, order, input.shape, inverse, counts)


@unique_operators.distinct_neighbours.on("cuda")
def _(input: Tensor, inverse: bool, counts: bool) -> Any:
    return _distinct(bare(input).reshape(-1), None, input.shape, inverse, counts)


def _distinct_slices(input: Any, dim: int, everywhere: bool, inverse: bool, counts: bool) -> tuple[Tensor, ...]:
    d = wrap_dim(dim, len(input.shape))
    if input.shape and not numel_of(tuple(n for i, n in enumerate(input.shape) if i != d)):
        raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    slices = bare(input).movedim(d, 0) if input.shape else bare(input).reshape(1)
    n = slices.shape[0]
    if not n:
        nothing = slices.new_empty(0, dtype=dt.int64)
        return (input.clone(), *[nothing] * (inverse + counts))
    rows = slices.reshape(n, -1)
    order = None
    if everywhere:  # sorted by the last column first: the sorts are stable
        order = _function("arange")(n, device=input.device)
        for c in reversed(range(rows.shape[1])):
            column = rows.select(1, c).index_select(0, order)
            order = order.index_select(0, stably_sorted_along(column, 0, False)[1])
        rows = rows.index_select(0, order)
    begins, found = _groups(_fresh(rows), order, (n,), inverse, counts)
    picked = slices.index_select(0, begins if order is None else order.index_select(0, begins))
    return (picked.movedim(0, d) if input.shape else picked, *found)


@unique_operators.distinct_neighbour_slices.on("cuda")
def _(input: Tensor, dim: int, inverse: bool, counts: bool) -> Any:
    return _distinct_slices(input, dim, False, inverse, counts)


@unique_operators.unique_slices.on("cuda")
def _(input: Tensor, dim: int, inverse: bool, counts: bool) -> Any:
    return _distinct_slices(input, dim, True, inverse, counts)


# -- membership --------------------------------------------------------------------------------------------------------

_FEW = 16  # test elements that are compared one by one


@unique_operators.is_among.on("cuda")
def _(out: Any, elements: Any, test_elements: Any, assume_unique: bool, invert: bool) -> None:
    where = out.device
    tensors: list[Any] = []
    for x in (elements, test_elements):
        given = isinstance(x, Tensor)
        tensors.append(bare(x) if given else _function("full")((), x, dtype=number_dtype(x), device=where))
    common = _function("result_type")(*tensors)
    left, right = (t.to(common) for t in tensors)
    right = right.reshape(-1)
    count = right.shape[0]
    if count <= _FEW:
        found = _function("zeros")(out.shape, dtype=dt.bool_, device=where)
        for k in range(count):
            found = found | (left == right.select(0, k))
    else:
        ordered, _ = sorted_along(right, 0, False)
        places = _function("searchsorted")(ordered, left.reshape(-1)).clamp(max=count - 1)
        found = ordered.index_select(0, places).reshape(left.shape) == left
    raw_copy(out, ~found if invert else found)


# -- counting ----------------------------------------------------------------------------------------------------------


@counts_of.on("cuda")
def _(input: Any, weights: Any, minlength: int) -> Tensor:
    n, where = numel_of(input.shape), input.device
    low, high = (int(input.amin().item()), int(input.amax().item())) if n else (0, -1)
    if low < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    size = max(high + 1, minlength)
    if weights is None:
        counts = fill_raw(empty((size,), dt.int64, where), 0)
        if n:
            count_numbers(counts, dense(input), n, size)
        return counts
    kind = dt.float32 if weights.dtype is dt.float32 else dt.float64
    sums: Any = fill_raw(empty((size,), kind, where), 0)
    return sums.scatter_add_(0, bare(input).to(dt.int64), bare(weights).to(kind)) if n else sums


def _edges(column: Any, bins: Any, given: Any, dim: int) -> Any:
    """Return the edges of the bins of one dimension."""
    if isinstance(bins, Tensor):
        return bare(bins).contiguous()
    low, high = (0.0, 1.0) if given is None else given
    if given is None and column.shape[0]:
        low, high = column.min().item(), column.max().item()
    _check_range(low, high, dim)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return _function("linspace")(low, high, bins + 1, dtype=dt.float64, device=column.device).to(column.dtype)


@histogram_of.on("cuda")
def _(
    out: list[Tensor], table: Tensor, bins: list[Any], ranges: list[Any], weight: Tensor | None, density: bool
) -> None:
    rows: Any = bare(table)
    shape = tuple(out[0].shape)
    place = inside = None
    for d, (given, size) in enumerate(zip(bins, shape)):
        column = rows.select(1, d).contiguous()
        edges = _edges(column, given, ranges[d], d)
        raw_copy(out[d + 1], edges)
        first, last = edges.narrow(0, 0, 1), edges.narrow(0, size, 1)
        at = (_function("searchsorted")(edges, column, right=True) - 1).clamp(0, size - 1)
        within = (column >= first) & (column <= last)
        place = at if place is None else place * size + at
        inside = within if inside is None else inside & within
    total = math.prod(shape)
    amounts = (
        rows.new_ones(rows.shape[:1], dtype=dt.float64) if weight is None else bare(weight).reshape(-1).to(dt.float64)
    )
    counts = rows.new_zeros((total,), dtype=dt.float64)
    if rows.shape[0] and total:
        counts = counts.index_add(0, place, amounts.masked_fill(~inside, 0.0))  # type: ignore[operator]
    counts = counts.reshape(shape)
    if density:
        counts = counts / counts.sum()
        for d in range(len(shape)):
            sizes = [-1 if i == d else 1 for i in range(len(shape))]
            counts = counts / bare(out[d + 1]).to(dt.float64).diff().reshape(sizes)
    raw_copy(out[0], counts.to(out[0].dtype))


@even_counts.on("cuda")
def _(out: Tensor, input: Any, bins: int, low: float, high: float) -> None:
    x: Any = dense(bare(input))
    n = numel_of(x.shape)
    if low == high and n:
        low, high = float(x.amin().item()), float(x.amax().item())
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low:g}, {high:g}] is not finite")
    counts: Any = fill_raw(empty((bins + 1,), dt.int64, out.device), 0)
    if n:
        count_between(counts, x, None, n, bins, low, high)
    raw_copy(out, counts.narrow(0, 0, bins))


@xor_of_bits.on("cuda")
def _(out: Any, input: Any, dims: tuple[int, ...], shape: tuple[int, ...]) -> None:
    kept = [d for d in range(len(input.shape)) if d not in dims]
    bits = bare(input).view(dt.int64).permute([*kept, *dims])
    n = numel_of(tuple(input.shape[d] for d in dims))
    rows = bits.reshape(-1, n) if n else bits.new_zeros((numel_of(out.shape), 1))
    while rows.shape[1] > 1:
        half, rest = rows.shape[1] // 2, rows.shape[1] % 2
        joined = rows.narrow(1, 0, half) ^ rows.narrow(1, half, half)
        rows = _function("cat")([joined, rows.narrow(1, 2 * half, 1)], 1) if rest else joined
    raw_copy(out, rows.reshape(shape).view(dt.uint64))


# -- rows of tables, repeated indices ----------------------------------------------------------------------------------


@_counted_indices.on("cuda")
def _(repeats: Any) -> Tensor:
    ends = bare(repeats).to(dt.int64).cumsum(0)
    total = int(ends[-1].item()) if repeats.shape[0] else 0
    places = _function("arange")(total, device=repeats.device)
    return _function("searchsorted")(ends, places, right=True).to(repeats.dtype)


@renorm_rows.on("cuda")
def _(input: Any, indices: Any, max_norm: float, norm_type: float) -> None:
    rows, table = _function("unique")(bare(indices)), bare(input)
    if not rows.shape[0]:
        return
    if not 0 <= int(rows[0].item()) <= int(rows[-1].item()) < input.shape[0]:
        raise IndexError("index out of range in self")
    picked = table.index_select(0, rows)
    norms = picked.to(dt.float64).norm(norm_type, 1, True)
    scale = (max_norm / (norms + 1e-7)).where(norms > max_norm, norms.new_full((), 1.0))
    table.index_copy_(0, rows, picked * scale.to(picked.dtype))
    input._bump("embedding_renorm_")


# -- fractional pooling ------------------------------------------------------------------------------------------------


def _fractional(out: list[Tensor], input: Any, widths: tuple[int, ...], sizes: tuple[int, ...], samples: Any) -> None:
    """Make tables of windows from random numbers, without reading them on the host: numbers outside [0, 1) are moved inside."""
    dims = len(sizes)
    wide = samples.to(dt.float32) if samples.dtype in (dt.float16, dt.bfloat16) else samples
    numbers = bare(wide).reshape(-1, dims)
    rows = numbers.shape[0]
    table = [
        numbers.new_tensor(row, dtype=dt.int64).reshape(1, -1).expand(rows, -1) for part in _whole(dims) for row in part
    ]
    for d in range(dims):
        sample = numbers.select(1, dims - 1 - d if dims == 2 else d).reshape(-1, 1)
        size, count, width = input.shape[len(input.shape) - dims + d], sizes[d], widths[d]
        last = numbers.new_full((rows, 1), size - width, dtype=dt.int64)
        starts = last
        if count > 1:
            pace = (size - width) / (count - 1)
            steps = _function("arange")(count - 1, device=input.device).to(numbers.dtype)
            moved = ((steps + sample) * pace).to(dt.int64) - (sample * pace).to(dt.int64)
            starts = _function("cat")([moved.clamp(0, size - width), last], 1)
        table += [starts, numbers.new_full((rows, count), width, dtype=dt.int64)]
    pool_by_table(out[0], out[1], input, _function("cat")(table, 1), (1,) * dims)


for _operator in _FRACTIONAL.values():
    _operator.on("cuda")(_fractional)


# -- writes to elements that share memory ---------------------------------------------------------------------------------


@put_shared_.on("cuda")
def _(t: Tensor, indices: Any, values: Tensor, accumulate: bool) -> None:
    put_raw(t, indices, values, accumulate)


@fill_shared_at_.on("cuda")
def _(out: Tensor, dim: int, index: Tensor, value: Any) -> None:
    fill_at(out, dim, index, value)


@fill_shared_.on("cuda")
def _(t: Any, mask: Any, filling: Tensor) -> None:
    places = true_positions(mask.expand(t.shape))
    coordinates = _function("unravel_index")(places, tuple(t.shape))
    put_raw(t, list(coordinates), filling, False)
