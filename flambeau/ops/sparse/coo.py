"""COO tensors: making them, their parts, and conversions to and from strided tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.cpu.threads import get_num_threads
from ...core import dtype as dt
from ...core.device import cpu, default_device
from ...core.promotion import get_default_dtype
from ...core.size import Size, make_size, new_size
from ...core.sparse import Invariants, SparseCoo, SparseTensor, empty_coo, new_coo, new_csr
from ...core.tensor import Tensor, empty, numel_of
from ...kernels.library import sparse as kernels
from ..creation import convert as conversion
from ..creation.construct import from_data
from ..creation.convert import CASTS
from ..creation.filled import fill_raw, finish, zeros_like
from ..machinery.arguments import as_int, as_ints, read_options
from ..machinery.declare import composite, effect
from ..machinery.memory import dense
from ..machinery.quirks import Quirks
from ..machinery.sparse_dispatch import sparse_form, sparse_primitive
from .index import (
    compressed_entries,
    entry_keys,
    found_at,
    grouped,
    index_tensor,
    keys_of,
    not_zero,
    on_host,
    places_of,
)

# -- values at places ------------------------------------------------------------------------------------------------


@effect(batching="each")
def add_at(out: Tensor, keys: Any, values: Tensor) -> Tensor:
    """out.flatten()[key] += value, whole rows of trailing dimensions at a time. `out` is contiguous, keys (an array) are inside."""


@add_at.on("cpu")
def _(out: Tensor, keys: np.ndarray, values: Tensor) -> None:
    width = numel_of(values.shape[1:])
    rows = numel_of(out.shape) // width if width else 0
    if not keys.size or not rows:
        return
    if out.dtype.is_complex or out.dtype is dt.bool_:
        add = np.logical_or if out.dtype is dt.bool_ else np.add
        sums, given = out._array().reshape(rows, width), values._array().reshape(-1, width)
        for part in sums.dtype.names or (...,):  # NumPy knows pairs of half precision only as two fields
            add.at(sums[part], keys, given[part])
        return
    parts = 1 if keys.size * width < 1 << 16 else get_num_threads()
    kernels.add_rows(out, keys, dense(values), keys.size, rows, width, parts)


def values_at(source: Tensor, indices: Tensor, keys: np.ndarray) -> Tensor:
    """Return the values of `source` (strided or COO) at the places of a COO index; differentiable."""
    if not isinstance(source, SparseCoo):
        if not indices.shape[0]:
            return source.unsqueeze(0).expand((indices.shape[1], *source.shape))
        return source[tuple(indices)]
    held = coalesce(source)
    at, found = found_at(entry_keys(held), keys)
    if not held._values_part.shape[0]:
        return held.values().new_zeros((keys.size, *held._values_part.shape[1:]))
    picked = held.values().index_select(0, index_tensor(at))
    missing = index_tensor(~found).reshape((-1,) + (1,) * (len(picked.shape) - 1)) != 0
    return picked.masked_fill(missing, 0)


# -- construction ------------------------------------------------------------------------------------------------------


def _constructor_grad(g: Tensor, indices: Tensor, shape: Size) -> Tensor:
    probe = new_coo(indices, indices, shape)
    return values_at(g, indices, entry_keys(probe))


def _from_parts(values: Tensor, indices: Tensor, shape: Size, coalesced: bool, in_bounds: bool) -> SparseCoo:
    return new_coo(indices._bare_alias(), values._bare_alias(), shape, coalesced, in_bounds)


coo_from_parts = sparse_primitive(
    _from_parts,
    {"values": _constructor_grad},
    Quirks(label="SparseCooTensorWithDimsAndTensorsBackward0"),
    name="coo_from_parts",
)


def _as_part(data: Any, d: Any, where: Any) -> Tensor:
    if isinstance(data, Tensor):
        return data.to(device=where or data.device, dtype=d or data.dtype)
    return from_data(data, d, where or cpu)


def _inferred_size(indices: Tensor, values: Tensor) -> Size:
    rows = on_host(indices)
    if rows.shape[1]:
        if rows.size and rows.min() < 0:
            raise RuntimeError(f"found negative index {rows.min()} for dim {int(np.argmin(rows.min(1)))}")
        sizes = [n + 1 for n in rows.max(1).tolist()]
    else:
        sizes = [0] * rows.shape[0]
    return make_size((*sizes, *values.shape[1:]))


def _check_parts(indices: Tensor, values: Tensor, shape: tuple[int, ...]) -> None:
    if len(indices.shape) != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    nnz = indices.shape[1]
    if nnz != values.shape[0]:
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {nnz}, nnz from values: {values.shape[0]}"
        )
    sparse, dense_dims = indices.shape[0], len(values.shape) - 1
    if sparse + dense_dims != len(shape):
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)}, sparse_dim = {sparse},"
            f" dense_dim = {dense_dims}"
        )
    if tuple(values.shape[1:]) != tuple(shape[sparse:]):
        raise RuntimeError(f"values has incorrect size, expected {[nnz, *shape[sparse:]]}, got {list(values.shape)}")


@composite(kind="creation", method=False)
def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
    **options: Any,
) -> Tensor:
    """A sparse tensor with `values[k]` at the place that column k of `indices` names; equal places add up.

    >>> sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    chosen = read_options("sparse_coo_tensor", {k: v for k, v in options.items() if k != "layout"})
    if values is None:
        shape = read_shape(indices if size is None else size, 1)
        return finish(
            empty_coo(shape, chosen.dtype or get_default_dtype(), None, chosen.device or default_device()),
            chosen.requires_grad,
        )
    value_part = _as_part(values, chosen.dtype, chosen.device)
    index_part = _as_part(indices, dt.int64, chosen.device or value_part.device)
    if not value_part.shape:
        value_part = value_part.unsqueeze(0)
    if len(index_part.shape) != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(index_part.shape)}")
    shape = _inferred_size(index_part, value_part) if size is None else read_shape(size, 3)
    _check_parts(index_part, value_part, shape)
    flag = bool(is_coalesced) or index_part.shape[1] < 2
    result = coo_from_parts(value_part, index_part, shape, flag, False)
    if Invariants.checked if check_invariants is None else check_invariants:
        check_invariants_of(result)
    return finish(result, chosen.requires_grad)


def read_shape(size: Any, position: int) -> Size:
    return new_size(as_ints(size, "sparse_coo_tensor", "size", position))


def check_invariants_of(t: SparseCoo) -> None:
    """Raise unless all indices are inside the tensor and, if it is marked coalesced, are sorted and distinct."""
    keys = entry_keys(t)
    if t._is_coalesced and (keys[1:] <= keys[:-1]).any():
        raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")


@composite(name="_validate_sparse_coo_tensor_args", method=False)
def validate_arguments(
    indices: Tensor, values: Tensor, size: Any, is_coalesced: Any = None, check_pinning: Any = None
) -> None:
    """Raise unless the parts describe a sparse tensor of this size."""
    shape = read_shape(size, 3)
    _check_parts(indices, values, shape)
    check_invariants_of(new_coo(indices, values, shape, bool(is_coalesced), False))


# -- the parts ---------------------------------------------------------------------------------------------------------


def layout_word(t: Any) -> str:
    """Return PyTorch's name in messages for a layout, or for that of a tensor."""
    return getattr(t, "layout", t).word


def need_coo(t: Tensor, name: str) -> SparseCoo:
    if not isinstance(t, SparseCoo):
        raise RuntimeError(f"{name} expected sparse coordinate tensor layout but got {layout_word(t)}")
    return t


def _coalesced(input: SparseCoo) -> SparseCoo:
    keys = entry_keys(input)
    order, group, first = grouped(keys)
    indices = index_tensor(on_host(input._index_part)[:, order[first]])
    values = input._values_part
    summed = values.new_zeros((first.size, *values.shape[1:]))
    add_at(summed, group, values.index_select(0, index_tensor(order)) if keys.size else values)
    return new_coo(indices, summed, input.shape, coalesced=True)


_coalesce = sparse_primitive(
    _coalesced, {"input": lambda g: g}, Quirks(label="CoalesceBackward0"), name="coalesce_entries"
)


@composite(function=False)
def coalesce(self: Tensor) -> Tensor:
    """The tensor with every place listed once, in order; the tensor itself if it is coalesced."""
    t = need_coo(self, "coalesce")
    return t if t._is_coalesced else _coalesce(t)


def listed_places(t: Any) -> tuple[Tensor, np.ndarray]:
    """Return the places of any sparse tensor as a COO index, and their keys; for blocks those of all elements, in the order of their values."""
    if isinstance(t, SparseCoo):
        return t._index_part, entry_keys(t)
    line, place = compressed_entries(on_host(t._compressed_part), on_host(t._plain_part))
    count = max(t._compressed_part.shape[-1] - 1, 1)
    matrix, line = line // count, line % count
    pair = (line, place) if t._by_rows else (place, line)
    if t._blocksize is not None:
        height, width = t._blocksize
        matrix, tall, wide = (np.repeat(p, height * width) for p in (matrix, *pair))
        within = np.tile(np.arange(height * width), place.size)
        pair = tall * height + within // max(width, 1), wide * width + within % max(width, 1)
    batch = places_of(matrix, tuple(t.shape[: t._batch_dims]))
    rows = np.stack([*batch, *pair])
    return index_tensor(rows), keys_of(rows, tuple(t.shape[: t._sparse_dims]))


def listed_values(t: Any) -> Tensor:
    """Return the values of a compressed tensor, one row of dense sizes for each of its listed places; outside autograd."""
    return t._values_part.reshape(-1, *t.shape[t._sparse_dims :])


def _pattern_grad(g: Any, like: Any) -> Tensor:
    if isinstance(g, SparseTensor) and not isinstance(g, SparseCoo):
        g = g.to_sparse_coo()
    return values_at(g, *listed_places(like)).reshape(like._values_part.shape)


# The places of `like` with other values.
values_in_place_of = sparse_primitive(
    lambda values, like: with_values(like, values._bare_alias()),
    {"values": _pattern_grad},
    Quirks(label="SparseCompressedTensorBackward0"),
    name="values_in_place_of",
)


def _values_grad(g: Tensor, input: Tensor) -> Tensor:
    held: Any = input
    if not isinstance(held, SparseCoo):
        return values_in_place_of(g, held.detach())
    return coo_from_parts(g, held._index_part, held.shape, held._is_coalesced, True)


values_of = sparse_primitive(
    lambda input: input._values_part._bare_alias(),
    {"input": _values_grad},
    Quirks(label="ValuesBackward0"),
    name="values_of",
)


def as_view(t: Tensor, base: Tensor) -> Tensor:
    """Mark a tensor as a view of one whose values it shares, and return it; a recorded one has a history instead."""
    if t._autograd is None and t is not base:
        t._base = base if base._base is None else base._base
    return t


def _coalesced_only(self: Tensor, name: str) -> SparseCoo:
    t = need_coo(self, name)
    if not t._is_coalesced:
        raise RuntimeError(f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")
    return t


@composite(function=False)
def indices(self: Tensor) -> Tensor:
    """The places of a coalesced tensor, one per column."""
    return _coalesced_only(self, "indices")._index_part._bare_alias()


@composite(function=False)
def values(self: Tensor) -> Tensor:
    """The values of a coalesced (or compressed) tensor."""
    if not isinstance(self, SparseTensor):
        raise RuntimeError(f"values expected sparse tensor layout but got {layout_word(self)}")
    if isinstance(self, SparseCoo):
        return values_of(_coalesced_only(self, "values"))
    held: Any = self
    return as_view(values_of(held), held._values_part)


def _sparse_only(self: Tensor, name: str) -> Any:
    if not isinstance(self, SparseTensor if name == "_nnz" else SparseCoo):
        raise NotImplementedError(f"Could not run 'aten::{name}' with arguments from the 'CPU' backend.")
    return self


@composite(function=False)
def _indices(self: Tensor) -> Tensor:
    """The given places, one per column."""
    return _sparse_only(self, "_indices")._index_part._bare_alias()


@composite(function=False)
def _values(self: Tensor) -> Tensor:
    """The given values, outside autograd."""
    return _sparse_only(self, "_values")._values_part._bare_alias()


@composite(function=False)
def _nnz(self: Tensor) -> int:
    """Return the number of listed entries."""
    t = _sparse_only(self, "_nnz")
    return t._values_part.shape[0] if isinstance(t, SparseCoo) else t._plain_part.shape[-1]


@composite(function=False)
def is_coalesced(self: Tensor) -> bool:
    """Return whether every place is listed once, in order."""
    return need_coo(self, "is_coalesced")._is_coalesced


@composite(function=False)
def _coalesced_(self: Tensor, coalesced: bool) -> Tensor:
    """Mark a tensor as coalesced or not, without checking its indices."""
    need_coo(self, "_coalesced_")._is_coalesced = bool(coalesced)
    return self


# -- strided and back --------------------------------------------------------------------------------------------------


def _to_dense_grad(g: Tensor, input: Tensor, masked_grad: Any) -> Tensor:
    held: Any = input
    if masked_grad is False:
        return g.to_sparse(held._index_part.shape[0])
    return g.sparse_mask(coalesce(held).detach())


def _dense(input: SparseCoo, masked_grad: Any = None) -> Tensor:
    out = fill_raw(empty(input.shape, input.dtype, input.device), 0)
    return add_at(out, entry_keys(input), input._values_part)


coo_to_dense = sparse_primitive(
    _dense, {"input": _to_dense_grad}, Quirks(label="ToDenseBackward0"), name="coo_to_dense"
)


def _strided_to_coo(input: Tensor, sparse_dim: int) -> SparseCoo:
    shape = input.shape
    rest = tuple(range(sparse_dim, len(shape)))
    kept = not_zero(input)
    kept = kept.any(rest) if rest else kept
    found = index_tensor(np.stack(np.nonzero(kept)) if sparse_dim else np.zeros((0, int(kept.sum())), np.int64))
    return new_coo(found, values_at(input._bare_alias(), found, np.zeros(0)), shape, coalesced=True)


_to_coo = sparse_primitive(
    _strided_to_coo, {"input": lambda g: g.to_dense()}, Quirks(label="ToSparseBackward1"), name="strided_to_coo"
)


def strided_to_coo(input: Tensor, sparse_dim: int | None) -> Tensor:
    n = len(input.shape)
    count = n if sparse_dim is None else as_int(sparse_dim, "to_sparse", "sparse_dim", 1)
    if n and count == 0:
        raise RuntimeError("dense_to_sparse: sparse_dim argument must be in >0 when self.dim()>0")
    if not 0 <= count <= n:
        raise RuntimeError(f"dense_to_sparse: sparse_dim argument must be in [0,{n}] range, but {count} is given")
    return _to_coo(input, count)


def _mask_grad(g: Tensor, input: Tensor, mask: Tensor) -> Tensor:
    masked = g.sparse_mask(mask)
    return masked if isinstance(input, SparseCoo) else masked.to_dense()


def _masked(input: Tensor, mask: SparseCoo) -> SparseCoo:
    keys = entry_keys(mask)
    index = mask._index_part.clone()
    return new_coo(index, values_at(input, index, keys).clone(), mask.shape, mask._is_coalesced)


_sparse_mask = sparse_primitive(
    _masked, {"input": _mask_grad}, Quirks(label="SparseMaskBackward0"), name="masked_by_coo"
)


@composite(function=False)
def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The entries of this tensor at the places that `mask` lists."""
    held = _sparse_only(mask, "_nnz")
    if self.shape != mask.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size"
            f" {list(mask.shape)}"
        )
    if isinstance(mask, SparseCoo):
        if isinstance(self, SparseCoo) and self.sparse_dim() != mask.sparse_dim():
            raise RuntimeError(
                "sparse_mask(): the number of sparse dimensions in `self` should match that of the `mask`."
            )
        return _sparse_mask(self, mask)
    source = self.to_sparse_coo() if isinstance(self, SparseTensor) else self
    picked = values_at(source, *listed_places(mask))
    return values_in_place_of(picked.reshape(held._values_part.shape), mask.detach())


# -- shapes and copies -------------------------------------------------------------------------------------------------


@sparse_form(conversion.clone, grads={"input": lambda g: g}, quirks=Quirks(label="CloneBackward0"))
def clone(input: SparseTensor, *, memory_format: Any = None) -> SparseTensor:
    return rebuilt(input, [p.clone() for p in input._parts()])


def rebuilt(t: Any, parts: Any) -> Any:
    """Return a tensor of the same layout and shape made of other parts."""
    if isinstance(t, SparseCoo):
        index, values = parts
        return new_coo(index, values, t.shape, t._is_coalesced, t._in_bounds)
    compressed, plain, values = parts
    return new_csr(compressed, plain, values, t.shape, t.layout)


def with_values(t: Any, values: Tensor) -> Any:
    """Return a sparse tensor with other values at the same places."""
    return rebuilt(t, [*t._parts()[:-1], values])


@sparse_form(
    conversion.convert,
    grads={"input": lambda g, input_dtype: g.to(input_dtype)},
    quirks=Quirks(label="ToCopyBackward0"),
)
def convert(input: SparseTensor, d: Any, where: Any, fmt: Any) -> SparseTensor:
    parts = input._parts()
    if where.type == "meta" != input.device.type:  # how many entries there are depends on values
        return zeros_like(input, dtype=d, device=where)
    return rebuilt(input, [*(p.to(where, copy=True) for p in parts[:-1]), parts[-1].to(where, d, copy=True)])


def _declare_cast(operator: Any, d: Any) -> None:
    @sparse_form(operator)
    def cast(self: SparseTensor, memory_format: Any = None) -> Any:
        return self if self.dtype is d else convert(self, d, self.device, None)


for _dtype, _cast in CASTS.items():
    _declare_cast(_cast, _dtype)
