"""Masks and flat positions: masked_fill, masked_select, nonzero, take, put, and the *_scatter views."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.layout import broadcast_two, has_internal_overlap, wrap_dim
from ...core.promotion import can_cast, scalar_dtype
from ...core.size import make_size
from ...core.tensor import Tensor, numel_of
from ...expr.functions import where
from ..machinery.aten_form import aten_parts
from ..machinery.declare import composite, effect, pointwise, primitive
from ..machinery.dtype_rules import check_fits, select
from ..machinery.inplace import raw_copy
from ..machinery.memory import dense
from ..machinery.out import write_out
from ..machinery.quirks import Quirks
from ..machinery.record import Batched, NewTensor
from ..shape.dimensions import slice_dim
from .gather import first_bad_index
from .index_vector import scatter_vector
from .indexing import slice_bounds
from .positions import coordinates, start, take_dense, true_positions

# -- masks --------------------------------------------------------------------------------------------------------------


def _need_mask(name: str, mask: Tensor) -> None:
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name}(): argument 'mask' must be Tensor, not {type(mask).__name__}")
    if mask.dtype is not dt.bool_:
        raise RuntimeError(
            f"{name}: expected BoolTensor for mask, got {mask.dtype.scalar_type}"
            if name != "masked_fill"
            else f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype.cpp}"
        )


@pointwise(
    name="choose",
    rule=select,
    method=False,
    inplace=False,
    out=False,
    quirks=Quirks(label="MaskedFillBackward0"),
    namespaces=(),
)
def choose(condition, value, input):
    """value where condition holds, else input"""
    return where(condition, value, input)


_LARGE = 1e38  # larger numbers may not fit


def _is_plain(input: Tensor, value: Any) -> bool:
    """Return whether a number certainly fits input's dtype, so that it needs no tensor of its own."""
    if type(value) is not float and type(value) is not int:
        return False
    fits = -_LARGE < value < _LARGE or value in (math.inf, -math.inf)
    return fits and input.dtype.is_floating_point and input.dtype.itemsize > 1 and input.dtype is not dt.float16


def _fill_into(out: Tensor, mask: Tensor, value: Any) -> bool:
    if not isinstance(mask, Tensor) or mask.dtype is not dt.bool_ or not _is_plain(out, value):
        return False
    if mask.shape != out.shape and broadcast_two(out.shape, mask.shape) != out.shape:
        return False
    fill_where_(out, mask, float(value))
    return True


@effect(batching="each", formula=lambda t, mask, value: (choose.op.impl, (mask, value, t)))
def fill_where_(t: Tensor, mask: Tensor, value: float) -> Tensor:
    """t = value where mask is True."""


@fill_where_.on("any")
def _(t: Tensor, mask: Tensor, value: float) -> None:
    choose.op.impl.into(t, (mask, value, t))


@effect(batching="each")
def fill_shared_(t: Tensor, mask: Tensor, filling: Tensor) -> Tensor:
    """t = filling where mask is True, where elements of t may share memory."""


@fill_shared_.on("cpu")
def _(t: Tensor, mask: Tensor, filling: Tensor) -> None:
    t._array()[np.broadcast_to(mask._array(), t.shape)] = filling._array()


def _fill_shared(t: Tensor, mask: Tensor, value: Any) -> None:
    fill_shared_(t, mask, value.detach().to(t.dtype) if isinstance(value, Tensor) else t.new_full((), value))


@composite(inplace=_fill_into, shared=_fill_shared)
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """input with `value` where mask is True."""
    _need_mask("masked_fill", mask)
    if _is_plain(input, value):
        return choose(mask, float(value), input).contiguous()
    if isinstance(value, Tensor):
        if value.shape:
            raise RuntimeError(
                f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {len(value.shape)} dimension(s)."
            )
        if value.dtype.is_complex and not input.dtype.is_complex:
            raise RuntimeError(f"value cannot be converted to type {input.dtype.cpp} without overflow")
        value = value.to(input.dtype)
    elif not can_cast(scalar_dtype(value), input.dtype) and input.dtype is not dt.bool_:
        if isinstance(value, complex):
            raise RuntimeError(f"value cannot be converted to type {input.dtype.cpp} without overflow")
        value = check_fits(value, input.dtype)
    elif input.dtype is dt.bool_:
        value = bool(value)
    if not isinstance(value, Tensor):
        value = input.new_full((), value)
    return choose(mask, value, input).contiguous()


@aten_parts("masked_fill.Scalar")
def _(aten: Any, self: Tensor, mask: Tensor, value: Any) -> Tensor:
    options = {"dtype": self.dtype, "layout": self.layout, "device": self.device}
    return aten.where.self(mask, aten.scalar_tensor.default(value, **options), self)


def _masked_select_backward(g: Tensor, input_shape: Any, mask: Tensor) -> Tensor:
    shape = broadcast_two(input_shape, mask.shape)
    full = g.new_zeros(shape).masked_scatter(mask.expand(shape), g)
    return full.sum_to_size(input_shape)


@primitive(reads_values=True, grads={"input": _masked_select_backward}, out="disjoint")
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where mask is True, as a vector."""


@masked_select.on("any")
def _(input: Tensor, mask: Tensor) -> Tensor:
    _need_mask("masked_select", mask)
    shape = broadcast_two(input.shape, mask.shape)
    positions = true_positions(mask if mask.shape == shape else mask.expand(shape))
    source = input._bare_alias().expand(shape).contiguous().reshape(-1)
    return source.index_select(0, positions)


def _masked_scatter_source_grad(g: Tensor, mask: Tensor, source_shape: Any) -> Tensor:
    picked = g.masked_select(mask.expand(g.shape))
    count = numel_of(source_shape)
    if count > picked.numel():
        picked = g.new_zeros(count).slice_scatter(picked, 0, 0, picked.numel())
    return picked.reshape(source_shape)


@primitive(
    grads={
        "input": lambda g, input_shape, mask: g.masked_fill(mask, 0).sum_to_size(input_shape),
        "source": _masked_scatter_source_grad,
    },
    inplace=True,
    batching="each",
)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> NewTensor:
    """input with the places where mask is True taken from source, in order."""
    if source.dtype is not input.dtype:
        raise RuntimeError(
            "masked_scatter: expected self and source to have same dtypes but"
            f" got{input.dtype.scalar_type} and {source.dtype.scalar_type}"  # PyTorch leaves no space there
        )
    if mask.dtype is not dt.bool_:
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype.scalar_type}"
        )
    return broadcast_two(input.shape, mask.shape), input.dtype, input.device


@masked_scatter.on("any")
def _(out: Tensor, input: Tensor, mask: Tensor, source: Tensor) -> None:
    positions = true_positions(mask if mask.shape == out.shape else mask.expand(out.shape))
    count = positions.shape[0]
    if numel_of(source.shape) < count:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    raw_copy(out, input)
    scatter_vector(out.reshape(-1), 0, positions, dense(source).reshape(-1).narrow(0, 0, count), "none")


def nonzero_matrix(input: Tensor) -> Tensor:
    """A row of coordinates per non-zero element."""
    return coordinates(true_positions(input), input.shape)


@composite(reads_values=True)
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Any = None) -> Tensor | tuple[Tensor, ...]:
    """Coordinates of the non-zero elements: a matrix, or one vector per dimension."""
    if out is not None and as_tuple:
        raise RuntimeError("nonzero does not support the out kwarg when as_tuple is True")
    if isinstance(out, Tensor) and out.dtype is not dt.int64:
        raise RuntimeError(
            f"nonzero: Expected out tensor to have scalar type Long but got scalar type {out.dtype.scalar_type}"
        )
    found = nonzero_matrix(input)
    if out is not None:
        return write_out("nonzero", out, found, exact=True)
    if not as_tuple:
        return found
    if not input.shape:
        return (found.new_zeros(found.shape[0]),)
    return tuple(found.select(1, i) for i in range(len(input.shape)))


@nonzero.op.as_aten
def _(recorder: Any, input: Tensor, *, as_tuple: bool = False) -> Any:
    found = recorder.aten.nonzero.default(input)
    return tuple(recorder.aten.unbind.int(found, 1)) if as_tuple else found


@composite
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out: Any = None) -> Tensor:
    """The coordinates of `nonzero`, cut or padded to `size` rows."""
    found = nonzero_matrix(input)
    rows = min(size, found.shape[0])
    result = found.new_full((size, found.shape[1]), fill_value)
    if rows:
        result.narrow(0, 0, rows).copy_(found.narrow(0, 0, rows))
    return result if out is None else out.resize_(result.shape).copy_(result)


@composite(reads_values=True)
def argwhere(input: Tensor) -> Tensor:
    """A row of coordinates per non-zero element."""
    return nonzero_matrix(input)


# -- flat positions -------------------------------------------------------------------------------------------------------


def _check_flat(name: str, input: Tensor, index: Tensor) -> None:
    if index.dtype is not dt.int64:
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {index.dtype.scalar_type}")
    if 0 in input.shape and 0 not in index.shape:
        raise IndexError(f"{name}(): tried to take from an empty tensor")


def _flat_positions(index: Tensor, n: int) -> Tensor:
    """Return positions that are not negative in a tensor of n elements, or raise IndexError. For kernels."""
    positions = index._bare_alias().reshape(-1)
    positions = positions.where(positions >= 0, positions + n)
    bad = first_bad_index(positions, n)
    if bad is not None:
        bad = bad if bad >= 0 else bad - n
        raise IndexError(f"out of range: tried to access index {bad} on a tensor of {n} elements.")
    return positions


def _take_backward(g: Tensor, input_shape: Any, index: Tensor) -> Tensor:
    return g.new_zeros(input_shape).put(index, g, True)


@primitive(grads={"input": _take_backward}, out="disjoint")
def take(input: Tensor, index: Tensor) -> NewTensor:
    """Elements by their position in the flattened tensor."""
    _check_flat("take", input, index)
    return index.shape, input.dtype, input.device


@take.on("any")
def _(out: Tensor, input: Tensor, index: Tensor) -> None:
    positions, zero = _flat_positions(index, numel_of(input.shape)), start(out.device)
    take_dense(out, dense(input), zero, positions, zero, 1, positions.shape[0], 1)


def _check_put(input: Tensor, index: Tensor, source: Tensor) -> None:
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = {input.dtype} and source.dtype = {source.dtype}"
        )
    if index.numel() != source.numel():
        raise IndexError(
            f"put_(): Expected source and index to have the same number of elements, but got source.numel() = {source.numel()}, index.numel() = {index.numel()}"
        )
    _check_flat("put_", input, index)


@effect(batching="each")
def put_flat_(out: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Tensor:
    """Write source to (or add it at) flat positions of contiguous memory."""


@put_flat_.on("any")
def put_flat(out: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> None:
    """Write elements at flat positions, for kernels."""
    positions = _flat_positions(index, numel_of(out.shape))
    reduce = "none" if not accumulate else "amax" if out.dtype is dt.bool_ else "add"
    scatter_vector(out._bare_alias().reshape(-1), 0, positions, source._bare_alias().reshape(-1), reduce)


def _put_into(out: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> bool:
    if not out._contig or not isinstance(source, Tensor):
        return False
    _check_put(out, index, source)
    put_flat_(out, index, source, accumulate)
    return True


@primitive(
    grads={
        "input": lambda g, index, source_shape, accumulate: (
            g if accumulate else g.put(index, g.new_zeros(source_shape), False)
        ),
        "source": lambda g, index, source_shape: g.take(index).reshape(source_shape),
    },
    inplace=_put_into,
    batching="each",
)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> NewTensor:
    """input with source written to (or added at) flat positions."""
    _check_put(input, index, source)
    return input.shape, input.dtype, input.device


@put.on("any")
def _(out: Tensor, input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> None:
    raw_copy(out, input)
    put_flat(out, index, source, accumulate)


# -- writing a view into a copy -------------------------------------------------------------------------------------------


def _clone_in_place(t: Tensor, everything: bool = False) -> Tensor:
    """Return a copy with the strides and the offset of the original, in a copy of all its memory. A dense tensor is copied without the memory
    before and after it, unless `everything` is wanted."""
    if (t._contig and not everything) or has_internal_overlap(t.shape, t._strides):
        return t.clone()
    count = t._storage.size_bytes // t.dtype.itemsize
    full = t._view(make_size((count,)), (1,), 0).clone()
    out = full._view(t.shape, t._strides, t._offset)
    out._base = None
    return out


def _written(input: Tensor, src: Tensor, part: Any, everything: bool = False) -> Tensor:
    out = _clone_in_place(input, everything)
    target = part(out)
    if target.shape != src.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = {list(target.shape)}"
        )
    raw_copy(target, src)
    return out


@primitive(
    grads={
        "input": lambda g, src_shape, dim, index: g.select_scatter(g.new_zeros(src_shape), dim, index),
        "src": lambda g, dim, index: g.select(dim, index),
    },
    batching="along",
    sharding="scattered",
)
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of input with src at one index of a dimension."""
    return _written(input, src, lambda t: t.select(dim, index))


def _sliced(t: Tensor, dim: int, start: Any, end: Any, step: int) -> Tensor:
    d = wrap_dim(dim, len(t.shape))
    first, last, step = slice_bounds(slice(start, end, step), t.shape[d])
    return slice_dim(t, d, first, last, step)


@primitive(
    grads={
        "input": lambda g, src_shape, dim, start, end, step: g.slice_scatter(
            g.new_zeros(src_shape), dim, start, end, step
        ),
        "src": lambda g, dim, start, end, step: _sliced(g, dim, start, end, step),
    },
    out=True,
    batching="along",
    sharding="scattered",
)
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """A copy of input with src in a slice of a dimension."""
    return _written(input, src, lambda t: _sliced(t, dim, start, end, step))


@primitive(
    grads={
        "input": lambda g, src_shape, offset, dim1, dim2: g.diagonal_scatter(
            g.new_zeros(src_shape), offset, dim1, dim2
        ),
        "src": lambda g, offset, dim1, dim2: g.diagonal(offset, dim1, dim2),
    },
    batching=Batched("along", dims=("dim1", "dim2")),
    sharding="scattered",
)
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of input with src on a diagonal."""
    return _written(input, src, lambda t: t.diagonal(offset, dim1, dim2))


def _from_start(g: Any) -> Any:
    """Return the gradient, contiguous and at the start of its memory, from which offsets count."""
    whole = g.contiguous()
    return whole.clone() if whole.storage_offset() else whole


@primitive(
    grads={
        "input": lambda g, src_shape, size, stride, storage_offset: _from_start(g).as_strided_scatter(
            g.new_zeros(src_shape), size, stride, storage_offset
        ),
        "src": lambda g, size, stride, storage_offset: _from_start(g).as_strided(size, stride, storage_offset),
    },
    batching="each",
)
def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A copy of input with src in an as_strided view of it."""
    return _written(input, src, lambda t: t.as_strided(size, stride, storage_offset), everything=True)
