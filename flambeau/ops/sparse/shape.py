"""COO tensors in other shapes: transposed, selected, joined. No views: the results have entries of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.layout import sparse_bsc, sparse_bsr, sparse_csc, sparse_csr, wrap_dim
from ...core.size import make_size
from ...core.sparse import SparseCoo, SparseCsr, SparseRefusal, new_coo, new_csr
from ...core.tensor import Tensor
from ..index import gather
from ..machinery.quirks import Quirks
from ..machinery.sparse_dispatch import sparse_form, sparse_primitive
from ..shape import complex_views, dimensions, joining, parts, rearrange
from ..shape import reshape as reshaping
from ..shape.complex_views import view_as_complex as numbers_of
from ..shape.complex_views import view_as_real as pairs_of
from ..shape.dimensions import permutation
from ..shape.joining import cat as cat_strided
from .conversion import as_coo
from .coo import as_view, coalesce, coo_from_parts, layout_word, values_in_place_of
from .index import entry_keys, grouped, index_tensor, on_host, within_bounds
from .places import repeated


def _need_coo(t: Any, name: str) -> SparseCoo:
    if isinstance(t, SparseCsr):
        t.stride()  # raises: PyTorch makes a view here
    return t


_TURNED = {sparse_csr: sparse_csc, sparse_csc: sparse_csr, sparse_bsr: sparse_bsc, sparse_bsc: sparse_bsr}


# -- dimensions in another order ---------------------------------------------------------------------------------------


def _permuted(t: Any, order: list[int]) -> Any:
    shape = make_size([t.shape[d] for d in order])
    sparse = t._sparse_dims
    if isinstance(t, SparseCsr):
        batch = order[: sparse - 2]
        if sorted(batch) != list(range(sparse - 2)) or order[sparse:] != list(range(sparse, len(order))):
            raise RuntimeError(f"permute(): a compressed tensor cannot have its dimensions in the order {order}")
        compressed, plain, values = (part.permute(*batch, *range(len(batch), len(part.shape))) for part in t._parts())
        if order[sparse - 2] < order[sparse - 1]:
            return as_view(new_csr(compressed, plain, values, shape, t.layout), t)
        values = values if t._blocksize is None else values.transpose(sparse - 1, sparse)
        return as_view(new_csr(compressed, plain, values, shape, _TURNED[t.layout]), t)
    if any((d < sparse) != (i < sparse) for i, d in enumerate(order)):
        raise RuntimeError(
            "permute(sparse_coo): dimensions can only be exchanged among sparse ones or among dense ones; "
            f"got order {order} with sparse_dim {sparse}"
        )
    rows = [d for d in order if d < sparse]
    indices = t._index_part if rows == sorted(rows) else index_tensor(on_host(t._index_part)[rows])
    rest = [d - sparse + 1 for d in order if d >= sparse]
    values = t._values_part if rest == sorted(rest) else t._values_part.permute(0, *rest)
    return new_coo(indices, values, shape, t._is_coalesced and rows == sorted(rows), t._in_bounds)


def _check_exchanged(t: Any, a: int, b: int) -> None:
    if t.dense_dim():
        raise RuntimeError("transpose(): hybrid sparse compressed tensors with dense dimensions are not supported")
    first, second = ("Batch" if d < t._batch_dims else "Sparse" for d in (a, b))
    if first != second:
        raise RuntimeError(
            "transpose(): can only transpose dimensions of the same type (Batch, Sparse, Dense), got"
            f" {a}({first}) and {b}({second})"
        )


def _swapped(t: Any, dim0: int, dim1: int) -> Any:
    n = len(t.shape)
    a, b = wrap_dim(dim0, n), wrap_dim(dim1, n)
    if isinstance(t, SparseCsr):
        _check_exchanged(t, a, b)
    elif (a < t._index_part.shape[0]) != (b < t._index_part.shape[0]):
        raise RuntimeError(
            "sparse transpose: transposed dimensions must be sparse Got sparse_dim:"
            f" {t._index_part.shape[0]}, d0: {a}, d1: {b}"
        )
    order = list(range(n))
    if n:
        order[a], order[b] = order[b], order[a]
    return _permuted(t, order)


@sparse_form(
    dimensions.transpose,
    grads={"input": lambda g, dim0, dim1: g.transpose(dim0, dim1)},
    quirks=Quirks(label="TransposeBackward0"),
)
def transpose(input: Any, dim0: int, dim1: int) -> Tensor:
    return _swapped(input, dim0, dim1)


@sparse_form(dimensions.t, grads={"input": lambda g: g.t()}, quirks=Quirks(label="TBackward0"))
def t(input: Any) -> Tensor:
    if len(input.shape) > 2:
        raise RuntimeError(
            f"t() expects a tensor with <= 2 {'sparse and 0 dense ' if input.is_sparse else ''}dimensions, but self is"
            f" {len(input.shape)}D"
        )
    return _swapped(input, 0, 1) if len(input.shape) == 2 else _permuted(input, list(range(len(input.shape))))


@sparse_form(
    dimensions.permute_dims,
    grads={"input": lambda g, dims: g.permute(*np.argsort([d % len(dims) for d in dims]).tolist())},
    quirks=Quirks(label="PermuteBackward0"),
)
def permute_dims(input: Any, dims: tuple[int, ...]) -> Tensor:
    return _permuted(input, permutation(dims, len(input.shape)))


# -- parts -------------------------------------------------------------------------------------------------------------


def entries_kept(t: SparseCoo, keep: np.ndarray, indices: np.ndarray, shape: list[int]) -> Tensor:
    """Return the entries at the positions `keep`, at new places: differentiable through the values."""
    values = uncoalesced_values(t).index_select(0, index_tensor(keep))
    return coo_from_parts(values, index_tensor(indices), make_size(shape), t._is_coalesced, True)


def _listed_values_grad(g: Tensor, input: Tensor) -> Tensor:
    """Return the gradient of listed values: entries of one place share the gradient of the place."""
    held: Any = input
    order, _, first = grouped(entry_keys(held))
    once = index_tensor(order[first])
    indices = held._index_part.index_select(1, once)
    return coo_from_parts(g.index_select(0, once), indices, held.shape, True, True)


# The values as listed, with their history.
uncoalesced_values = sparse_primitive(
    lambda input: input._values_part._bare_alias(),
    {"input": _listed_values_grad},
    Quirks(label="ValuesBackward0"),
    name="uncoalesced_values",
)


@sparse_form(dimensions.select)
def select(input: Any, dim: int, index: int) -> Tensor:
    d = wrap_dim(dim, len(input.shape))
    size = input.shape[d]
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {d}"
        )
    index %= size
    if isinstance(input, SparseCsr):
        return _part_of_compressed(input, d, index)
    t = within_bounds(input)
    rows, sparse = on_host(t._index_part), t._index_part.shape[0]
    shape = [n for i, n in enumerate(t.shape) if i != d]
    if d >= sparse:
        values = uncoalesced_values(t).select(d - sparse + 1, index)
        return coo_from_parts(values, t._index_part, make_size(shape), t._is_coalesced, True)
    keep = np.flatnonzero(rows[d] == index)
    if sparse == 1:
        return uncoalesced_values(t).index_select(0, index_tensor(keep)).sum(0, dtype=t.dtype)
    return entries_kept(t, keep, np.delete(rows, d, 0)[:, keep], shape)


def _part_of_compressed(t: SparseCsr, d: int, index: int) -> Tensor:
    """Select from a compressed tensor: along a batch or dense dimension in the same layout; from one matrix a COO tensor."""
    sparse = t._sparse_dims
    shape = make_size([n for i, n in enumerate(t.shape) if i != d])
    if d < sparse - 2:
        compressed, plain, _ = (part.select(d, index) for part in t._parts())
        like = new_csr(compressed, plain, t._values_part.select(d, index), shape, t.layout)
        return values_in_place_of(t.values().select(d, index), like)
    if d >= sparse:
        at = d - sparse + len(t._values_part.shape) - (len(t.shape) - sparse)
        like = new_csr(t._compressed_part, t._plain_part, t._values_part.select(at, index), shape, t.layout)
        return values_in_place_of(t.values().select(at, index), like)
    if sparse > 2:
        raise RuntimeError(
            "select(): selecting sparse dimensions is not supported for batched sparse compressed tensors."
        )
    return select(coalesce(as_coo(t)), d, index)


@sparse_form(parts.unbind)
def unbind(input: Any, dim: int = 0) -> tuple[Any, ...]:
    d = wrap_dim(dim, len(input.shape))
    return tuple(select(input, d, i) for i in range(input.shape[d]))


@sparse_form(dimensions.unsqueeze)
def unsqueeze(input: Any, dim: int) -> Tensor:
    t = _need_coo(input, "unsqueeze")
    n, sparse = len(t.shape), t._index_part.shape[0]
    d = wrap_dim(dim, n + 1)
    shape = make_size([*t.shape[:d], 1, *t.shape[d:]])
    if d > sparse:
        return coo_from_parts(
            uncoalesced_values(t).unsqueeze(d - sparse + 1), t._index_part, shape, t._is_coalesced, t._in_bounds
        )
    rows = np.insert(on_host(t._index_part), d, 0, axis=0)
    return coo_from_parts(uncoalesced_values(t), index_tensor(rows), shape, t._is_coalesced, t._in_bounds)


@sparse_form(gather.index_select)
def index_select(input: Any, dim: int, index: Tensor) -> Tensor:
    t = within_bounds(_need_coo(input, "index_select"))
    d = wrap_dim(dim, len(t.shape))
    wanted = on_host(index).reshape(-1)
    size = t.shape[d]
    if wanted.size and (wanted.min() < -size or wanted.max() >= size):
        raise IndexError(
            f"index_select(): index contains {wanted.max()} that is out of range for tensor of size {list(t.shape)} at dimension {d}"
        )
    wanted = np.where(wanted < 0, wanted + size, wanted)
    shape = [*t.shape[:d], wanted.size, *t.shape[d + 1 :]]
    sparse = t._index_part.shape[0]
    if d >= sparse:
        values = uncoalesced_values(t).index_select(d - sparse + 1, index_tensor(wanted))
        return coo_from_parts(values, t._index_part, make_size(shape), t._is_coalesced, True)
    rows = on_host(t._index_part)
    order = np.argsort(rows[d], kind="stable")
    held = rows[d][order]
    first, last = np.searchsorted(held, wanted, "left"), np.searchsorted(held, wanted, "right")
    counts = last - first
    place = repeated(np.arange(wanted.size), counts)
    within = np.arange(counts.sum()) - repeated(np.cumsum(counts) - counts, counts)
    keep = order[repeated(first, counts) + within]
    moved = rows[:, keep]
    moved[d] = place
    values = uncoalesced_values(t).index_select(0, index_tensor(keep))
    return coo_from_parts(values, index_tensor(moved), make_size(shape), False, True)


@sparse_form(parts.narrow_copy)
def narrow_copy(input: Any, dim: int, start: int, length: int) -> Tensor:
    t = within_bounds(_need_coo(input, "narrow_copy"))
    d = wrap_dim(dim, len(t.shape))
    if not 0 <= start <= start + length <= t.shape[d]:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({t.shape[d]}).")
    shape = [*t.shape[:d], length, *t.shape[d + 1 :]]
    sparse = t._index_part.shape[0]
    if d >= sparse:
        values = uncoalesced_values(t).narrow(d - sparse + 1, start, length)
        return coo_from_parts(values, t._index_part, make_size(shape), t._is_coalesced, True)
    rows = on_host(t._index_part)
    keep = np.flatnonzero((rows[d] >= start) & (rows[d] < start + length))
    moved = rows[:, keep]
    moved[d] -= start
    return entries_kept(t, keep, moved, shape)


# -- several tensors ---------------------------------------------------------------------------------------------------


@sparse_form(joining.cat)
def cat(tensors: Any, dim: int = 0) -> Tensor:
    for i, t in enumerate(tensors):
        if not isinstance(t, SparseCoo):
            if isinstance(tensors[0], SparseCoo):
                raise RuntimeError(f"Concatenating sparse tensors, but a dense tensor was found at position {i}.")
            raise SparseRefusal("cat() of strided and sparse tensors is not implemented")
    first = tensors[0]
    d, sparse = wrap_dim(dim, len(first.shape)), first._index_part.shape[0]
    for t in tensors:
        same = [a == b for i, (a, b) in enumerate(zip(t.shape, first.shape)) if i != d]
        if len(t.shape) != len(first.shape) or not all(same) or t._index_part.shape[0] != sparse:
            raise RuntimeError(
                f"All tensors must have the same shape: {list(first.shape)} (except in the concatenating dimension {d}), but got"
                f" {list(t.shape)}"
            )
    shape = list(first.shape)
    shape[d] = sum(t.shape[d] for t in tensors)
    indices, values, offset = [], [], 0
    for t in tensors:
        rows = on_host(t._index_part).copy()
        part = uncoalesced_values(t)
        if d < sparse:
            rows[d] += offset
        else:  # the values of this tensor fill a part of wider rows
            size = list(part.shape)
            size[d - sparse + 1] = offset
            after = list(part.shape)
            after[d - sparse + 1] = shape[d] - offset - t.shape[d]
            zero = t._values_part.new_zeros
            part = cat_strided((zero(size), part, zero(after)), d - sparse + 1)
        indices.append(rows)
        values.append(part)
        offset += t.shape[d]
    bounded = all(t._in_bounds for t in tensors)
    return coo_from_parts(
        cat_strided(values, 0), index_tensor(np.concatenate(indices, 1)), make_size(shape), False, bounded
    )


@sparse_form(joining.stack)
def stack(tensors: Any, dim: int = 0) -> Tensor:
    d = wrap_dim(dim, len(tensors[0].shape) + 1)
    return cat([unsqueeze(t, d) if isinstance(t, SparseCoo) else t for t in tensors], d)


@sparse_form(
    dimensions.expand_to,
    dimensions.expand,
    rearrange.repeat,
    rearrange.tile,
    dimensions.broadcast_to,
    dimensions.expand_as,
)
def expand(input: Any, *args: Any, **kwargs: Any) -> Tensor:
    raise SparseRefusal(f"expand is unsupported for {layout_word(input)} tensors")


@sparse_form(reshaping.reshape, reshaping.flatten, reshaping.unflatten, reshaping.ravel)
def reshape(input: Any, *args: Any, **kwargs: Any) -> Tensor:
    raise SparseRefusal("reshape is not implemented for sparse tensors")


def getitem(self: Any, key: Any) -> Any:
    """x[key] if key consists of integers, full slices, None and an ellipsis."""
    items = key if isinstance(key, tuple) else (key,)
    if Ellipsis in [i for i in items if i is Ellipsis]:
        at = next(n for n, i in enumerate(items) if i is Ellipsis)
        rest = len(self.shape) - sum(i is not None and i is not Ellipsis for i in items)
        items = (*items[:at], *([slice(None)] * rest), *items[at + 1 :])
    result, d = self, 0
    for item in items:
        if item is None:
            result, d = unsqueeze(result, d), d + 1
        elif isinstance(item, slice):
            if item.indices(result.shape[d]) != (0, result.shape[d], 1):
                raise NotImplementedError(
                    "Could not run 'aten::as_strided' with arguments from the 'SparseCPU' backend: a part of a dimension"
                    " cannot be a view; use narrow_copy() or index_select()"
                )
            d += 1
        elif isinstance(item, (int, np.integer)) or (isinstance(item, Tensor) and item.shape == ()):
            at = int(item)
            if d >= len(result.shape):
                raise IndexError(f"too many indices for tensor of dimension {len(self.shape)}")
            if not -result.shape[d] <= at < result.shape[d]:
                raise IndexError(f"index {at} is out of bounds for dimension {d} with size {result.shape[d]}")
            result = result.select(d, at)
        else:
            raise NotImplementedError(
                "Could not run 'aten::index.Tensor' with arguments from the 'SparseCPU' backend: use index_select()"
            )
    return result


# -- complex numbers as pairs -------------------------------------------------------------------------------------------


@sparse_form(
    complex_views.view_as_real,
    grads={"input": lambda g: g.view_as_complex()},
    quirks=Quirks(label="ViewAsRealBackward0"),
)
def view_as_real(input: Any) -> Tensor:
    t = _need_coo(input, "view_as_real")
    return new_coo(t._index_part, pairs_of(t._values_part), make_size([*t.shape, 2]), t._is_coalesced, t._in_bounds)


@sparse_form(
    complex_views.view_as_complex,
    grads={"input": lambda g: g.view_as_real()},
    quirks=Quirks(label="ViewAsComplexBackward0"),
)
def view_as_complex(input: Any) -> Tensor:
    t = _need_coo(input, "view_as_complex")
    if len(t._values_part.shape) < 2 or t.shape[-1] != 2:
        raise RuntimeError(f"view_as_complex: expected a last, dense dimension of size 2, got shape {list(t.shape)}")
    return new_coo(t._index_part, numbers_of(t._values_part), make_size(t.shape[:-1]), t._is_coalesced, t._in_bounds)
