"""Distinct elements, membership, and positions in sorted sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.bfloat16 import bits_to_float32
from ...core.layout import wrap_dim
from ...core.size import make_size
from ...core.tensor import Tensor, copy_of_array, empty, is_contiguous_layout, new_tensor, numel_of
from ...core.typenames import type_name
from ...kernels.library.search import mark_groups, search_sorted
from ..machinery.arguments import as_number
from ..machinery.declare import composite, internal
from ..machinery.dtype_rules import number_dtype, unsupported
from ..machinery.inplace import raw_copy
from ..machinery.memory import bare, dense, raise_if_set
from ..machinery.out import write_out
from ..machinery.primitive import unknown_derivative
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, lookup
from .sort import sorted_along

# -- unique ------------------------------------------------------------------------------------------------------------


def _groups(ordered: Tensor, order: Tensor | None, shape: Any, inverse: bool, counts: bool) -> tuple[Tensor, ...]:
    """Return the first of each group of equal neighbours, and if requested each element's group and the sizes of the groups."""
    n, where = numel_of(ordered.shape), ordered.device
    values, number = empty((n,), ordered.dtype, where), ordered.new_zeros(1, dtype=dt.int64)
    places = empty(shape, dt.int64, where) if inverse else None
    firsts: Any = empty((n + 1,), dt.int64, where) if counts else None
    if n:
        mark_groups(values, places, firsts, number, ordered, order, n)
    groups = number.item()
    found = [values.narrow(0, 0, groups).clone()]
    if places is not None:
        found.append(places)
    if firsts is not None:
        raw_copy(firsts.narrow(0, groups, 1), n)
        found.append(firsts.narrow(0, 1, groups) - firsts.narrow(0, 0, groups))
    return tuple(found)


@internal(reads_values=True, grads={"input": unknown_derivative("_unique2")}, quirks=Quirks(label="Unique2Backward0"))
def unique_elements(input: Tensor, inverse: bool, counts: bool) -> Any:
    """The distinct elements in order, and if requested each element's index among them and how often each occurs."""


@unique_elements.on("any")
def _(input: Tensor, inverse: bool, counts: bool) -> Any:
    ordered, order = sorted_along(bare(input).reshape(-1), 0, False)
    return _groups(ordered, order, input.shape, inverse, counts)


@internal(
    reads_values=True,
    grads={"input": unknown_derivative("unique_consecutive")},
    quirks=Quirks(label="UniqueConsecutiveBackward0"),
)
def distinct_neighbours(input: Tensor, inverse: bool, counts: bool) -> Any:
    """The elements that differ from the one before."""


@distinct_neighbours.on("any")
def _(input: Tensor, inverse: bool, counts: bool) -> Any:
    return _groups(bare(input).reshape(-1), None, input.shape, inverse, counts)


@internal(
    reads_values=True,
    grads={"input": unknown_derivative("unique_consecutive")},
    quirks=Quirks(label="UniqueConsecutiveBackward0"),
)
def distinct_neighbour_slices(input: Tensor, dim: int, inverse: bool, counts: bool) -> Any:
    """The slices along `dim` that differ from the one before."""


@distinct_neighbour_slices.on("cpu")
def _(input: Tensor, dim: int, inverse: bool, counts: bool) -> Any:
    return _distinct_slices(input, dim, False, inverse, counts)


@internal(
    reads_values=True, grads={"input": unknown_derivative("unique_dim")}, quirks=Quirks(label="UniqueDimBackward0")
)
def unique_slices(input: Tensor, dim: int, inverse: bool, counts: bool) -> Any:
    """The distinct slices along `dim` in order."""


@unique_slices.on("cpu")
def _(input: Tensor, dim: int, inverse: bool, counts: bool) -> Any:
    return _distinct_slices(input, dim, True, inverse, counts)


def _comparable(x: Tensor) -> np.ndarray:
    return bits_to_float32(x._array()) if x.dtype is dt.bfloat16 else x._array()


def _distinct_slices(
    input: Tensor, dim: int, everywhere: bool, with_inverse: bool, with_counts: bool
) -> tuple[Tensor, ...]:
    """Return the slices along `dim` that differ from all others (in order), or from the one before."""
    if not input.shape:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    d = wrap_dim(dim, len(input.shape))
    if not numel_of(tuple(n for i, n in enumerate(input.shape) if i != d)):
        raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    array = _comparable(input)
    n = array.shape[d]
    rows = np.moveaxis(array, d, 0).reshape(n, -1 if n else 0)
    order = np.lexsort(rows.T[::-1]) if everywhere and n else np.arange(n)
    ordered = rows[order]
    fresh = np.ones(n, bool)
    fresh[1:] = (ordered[1:] != ordered[:-1]).any(1)
    begins = np.flatnonzero(fresh)
    inverse = np.empty(n, np.int64)
    inverse[order] = np.cumsum(fresh) - 1
    memory = input._array() if input.shape else input._array().reshape(1)
    picked = copy_of_array(np.moveaxis(memory, d, 0)[order[begins]], input.dtype)  # slices are adjacent
    shape, strides = (tuple(np.roll(v[: d + 1], -1)) + tuple(v[d + 1 :]) for v in (picked.shape, picked._strides))
    shape, strides = make_size(map(int, shape)), tuple(map(int, strides))
    contig = is_contiguous_layout(shape, strides)
    values = new_tensor(picked._storage, shape, strides, 0, input.dtype, input.device, contig)
    wanted = [inverse] * with_inverse + [np.diff(begins, append=n)] * with_counts
    return (values, *[copy_of_array(v, dt.int64) for v in wanted])


def _refuse_complex(input: Tensor) -> None:
    if input.dtype.is_complex:
        raise unsupported("unique", input.dtype)


@composite
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]:
    """The distinct elements (or slices along `dim`) in order; optionally each element's index among them, and how often each occurs."""
    _refuse_complex(input)
    wanted = bool(return_inverse), bool(return_counts)
    found = unique_elements(input, *wanted) if dim is None else unique_slices(input, dim, *wanted)
    return found if any(wanted) else found[0]


@unique.op.as_aten
def _(
    recorder: Any, input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:  # fmt: skip
    if dim is None:
        found = recorder.aten._unique2.default(input, sorted, return_inverse, return_counts)
    else:
        found = recorder.aten.unique_dim.default(input, dim, sorted, return_inverse, return_counts)
    wanted = [found[0]] + [f for f, flag in zip(found[1:], (return_inverse, return_counts)) if flag]
    return tuple(wanted) if len(wanted) > 1 else wanted[0]


@unique.op.in_script
def _(
    recorder: Any, input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> Tensor:  # fmt: skip
    if return_inverse or return_counts:
        raise NotImplementedError("unique returns values alone in compiled code")  # a function has one type of result
    if dim is None:
        return recorder.aten._unique2(input, sorted, False, False)[0]
    return recorder.aten.unique_dim(input, dim, sorted, False, False)[0]


@composite
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]:
    """The input without elements (or slices along `dim`) that equal the one before."""
    _refuse_complex(input)
    wanted = bool(return_inverse), bool(return_counts)
    found = distinct_neighbours(input, *wanted) if dim is None else distinct_neighbour_slices(input, dim, *wanted)
    return found if return_inverse or return_counts else found[0]


# -- membership --------------------------------------------------------------------------------------------------------


@composite(method=False, out="exact")
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """A mask of the elements that occur among the test elements."""
    given = [x for x in (elements, test_elements) if isinstance(x, Tensor)]
    if not given:
        raise TypeError(
            f"isin() received an invalid combination of arguments: got ({type_name(elements)},"
            f" {type_name(test_elements)}), one must be a Tensor"
        )
    for x in given:
        if x.dtype.is_complex or x.dtype is dt.bool_:
            raise RuntimeError(f"Unsupported input type encountered for isin(): {x.dtype.scalar_type}")
    return is_among(elements, test_elements, assume_unique, invert)


@internal(batching="each")
def is_among(elements: Any, test_elements: Any, assume_unique: bool, invert: bool) -> NewTensor:
    """A mask of the elements that occur among the test elements; either may be a number."""
    if isinstance(elements, Tensor):
        return elements.shape, dt.bool_, elements.device
    return (), dt.bool_, test_elements.device


@is_among.on("cpu")
def _(out: Tensor, elements: Any, test_elements: Any, assume_unique: bool, invert: bool) -> None:
    left, right = (_comparable(x) if isinstance(x, Tensor) else np.asarray(x) for x in (elements, test_elements))
    out._array()[...] = np.isin(left, right, assume_unique=assume_unique, invert=invert)


# -- places in sorted sequences ----------------------------------------------------------------------------------------


def _check_search(boundaries: Tensor, values: Any, sorter: Tensor | None, side: str | None, right: bool) -> None:
    if not boundaries.shape:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension"
        )
    if boundaries.dtype.is_complex or (isinstance(values, Tensor) and values.dtype.is_complex):
        raise unsupported("searchsorted_out_cpu", boundaries.dtype)
    if side is not None and side not in ("left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    shape = values.shape if isinstance(values, Tensor) else ()
    if not shape and len(boundaries.shape) != 1:
        raise RuntimeError(
            "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but we got"
            f" boundaries tensor dim({len(boundaries.shape)}) and input value's dim({len(shape)})"
            f" numel({numel_of(shape)})"
        )
    if len(boundaries.shape) != 1 and boundaries.shape[:-1] != shape[:-1]:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries"
            f" tensor and input value tensor must match, but we got boundaries tensor {list(boundaries.shape)} and"
            f" input value tensor {list(shape)}"
        )
    if sorter is not None:
        _check_sorter(boundaries, sorter)


def _check_sorter(boundaries: Tensor, sorter: Tensor) -> None:
    if sorter.shape != boundaries.shape:
        raise RuntimeError(
            "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor"
            f" {list(boundaries.shape)} and got sorter tensor {list(sorter.shape)}"
        )
    if sorter.dtype is not dt.int64:
        raise RuntimeError(
            f"torch.searchsorted(): sorter must be a tensor of long dtype but got dtype {sorter.dtype.scalar_type}"
        )


@internal(sharding="places", runs_empty=True, batching="each")
def places_between(edges: Tensor, values: Tensor, sorter: Tensor | None, right: bool, out_int32: bool) -> NewTensor:
    """The number of edges below each value (or, if `right`, not above); `sorter` sorts the edges."""
    return values.shape, dt.int32 if out_int32 else dt.int64, edges.device


@places_between.on("any")
def _(out: Tensor, edges: Tensor, values: Tensor, sorter: Tensor | None, right: bool, out_int32: bool) -> None:
    n, count = edges.shape[-1], numel_of(out.shape)
    if sorter is not None:  # the search trusts it
        error = RuntimeError("torch.searchsorted(): sorter index out of range")
        raise_if_set(((sorter < 0) | (sorter >= n)).any(), error)
    if count:
        per_row = count if len(edges.shape) == 1 else out.shape[-1]
        order = None if sorter is None else dense(sorter)
        search_sorted(out, dense(edges), dense(values), order, count, n, per_row, right=right)


def _search(
    boundaries: Tensor, values: Any, right: bool, out_int32: bool, sorter: Tensor | None, out: Tensor | None
) -> Tensor:
    kind = dt.int32 if out_int32 else dt.int64
    if out is not None and out.dtype is not kind:
        raise RuntimeError(
            "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or Long(int64) depending"
            f" on whether out_int32 flag is True, but we got output tensor's dtype {out.dtype.scalar_type} and"
            f" out_int32 flag is {out_int32}"
        )
    if isinstance(values, Tensor):
        common = lookup("promote_types").function(boundaries.dtype, values.dtype)
    else:
        own = number_dtype(values)
        common = dt.float64 if own.is_floating_point and not boundaries.dtype.is_floating_point else boundaries.dtype
        values = boundaries.new_full((), values, dtype=own)
    edges, x = (t._bare_alias().to(common) for t in (boundaries, values))
    result = places_between(edges, x, sorter, right, out_int32)
    return result if out is None else write_out("searchsorted", out, result)


@composite(method=False)
def searchsorted(
    sorted_sequence: Tensor,
    input: Any = None,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
    out: Tensor | None = None,
    **others: Any,
) -> Tensor:
    """The index at which each value would be inserted to keep the sequence sorted."""
    values = others.pop("self", input) if input is None else input
    if others:
        raise TypeError(f"searchsorted() got an unexpected keyword argument '{next(iter(others))}'")
    if not isinstance(values, Tensor):
        values = as_number(values, "searchsorted", "input", 2)
    _check_search(sorted_sequence, values, sorter, side, right)
    return _search(sorted_sequence, values, right or side == "right", out_int32, sorter, out)


@composite(method=False)
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Tensor | None = None
) -> Tensor:
    """The index of the bucket, between boundaries, that contains each value."""
    if not isinstance(boundaries, Tensor):
        raise TypeError(
            "bucketize() received an invalid combination of arguments: 'boundaries' must be Tensor, not"
            f" {type_name(boundaries)}"
        )
    if len(boundaries.shape) != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({len(boundaries.shape)})")
    if not isinstance(input, Tensor):
        input = as_number(input, "bucketize", "input", 1)
    _check_search(boundaries, input, None, None, right)
    return _search(boundaries, input, right, out_int32, None, out)
