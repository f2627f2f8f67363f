"""Operators with one index vector for a whole dimension: index_add, index_copy, index_fill, index_reduce."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.layout import dense_strides, wrap_dim
from ...core.size import make_size
from ...core.tensor import Tensor, numel_of
from ...kernels.library import index as kernels
from ..machinery.along import split_at
from ..machinery.declare import effect, primitive
from ..machinery.dtype_rules import check_fits, unsupported
from ..machinery.inplace import raw_copy
from ..machinery.memory import dense
from ..machinery.record import NewTensor
from .bad_index import bad_index
from .gather import first_bad_index, reduce_raw, scatter_raw, scatter_reduce_grads


def _check_vector(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor | None) -> int:
    d = wrap_dim(dim, len(input.shape))
    if len(index.shape) > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {len(index.shape)} with type: {index.dtype.scalar_type} and size: {list(index.shape)}"
        )
    if index.dtype is not dt.int64 and (name == "index_copy" or index.dtype is not dt.int32):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index but got: {index.dtype.scalar_type}")
    if source is not None:
        if source.dtype is not input.dtype:
            raise RuntimeError(
                f"{name}(): self and source expected to have the same dtype, but got (self) {input.dtype.scalar_type} and (source) {source.dtype.scalar_type}"
            )
        if len(source.shape) != len(input.shape) and (len(source.shape), len(input.shape)) not in ((0, 1), (1, 0)):
            raise RuntimeError(
                f"{name}(): source and destination must have the same number of dimensions, got {len(source.shape)} and {len(input.shape)}"
            )
        n = source.shape[d] if source.shape else 1
        if n != index.numel():
            raise RuntimeError(
                f"{name}(): Number of indices ({index.numel()}) should be equal to source.size(dim): ({n}), for dim: {d}"
            )
        for i, (a, b) in enumerate(zip(input.shape, source.shape)):
            if i != d and a != b:
                raise RuntimeError(
                    f"{name}(): source and destination tensor slices don't match: {list(input.shape)} and {list(source.shape)} at dimension {i}"
                )
    return d


def _check_bounds(t: Tensor, dim: int, index: Tensor, reduce: str = "") -> None:
    size = t.shape[dim] if t.shape else 1
    bad = first_bad_index(index, size)
    if bad is not None:
        kind = RuntimeError if reduce == "add" and len(t.shape) > 1 else IndexError
        raise kind(f"index {bad} is out of bounds for dimension {dim} with size {size}")


def _spread(index: Tensor, shape: tuple[int, ...], d: int) -> Tensor:
    """Return an index vector as the full index that scatter takes."""
    view = [1] * len(shape)
    view[d] = index.numel()
    full = list(shape)
    full[d] = index.numel()
    return index.reshape(view).expand(full)


def _flat_source(source: Tensor) -> Tensor:
    return source.reshape(1) if not source.shape else source


def scatter_vector(out: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str) -> None:
    """out[..., index, ...] (op)= source, where dim is not negative; bad indices raise, before anything is written if that is known without
    waiting for a device. For kernels."""
    nothing = 0 in index.shape or 0 in out.shape
    if nothing or not bad_index.is_late(out.device):
        _check_bounds(out, dim, index, reduce)
    if nothing:
        return
    out, source = (t if t.shape else t._view(make_size((1,)), (1,), t._offset) for t in (out, source))
    if out._contig and not out.dtype.is_complex:
        outer, n, inner = split_at(out.shape, dim)
        if out.dtype is dt.bool_:
            out, source = out.view(dt.uint8), source.view(dt.uint8)
        count = numel_of(index.shape)
        error = bad_index.on(out.device)
        kernels.scatter_slices(out, dense(index), dense(source), error, outer, n, count, inner, reduce=reduce)
    else:
        scatter_raw(out, dim, _spread(index, out.shape, dim), source, 0.0, reduce)


@effect(runs_empty=True, batching="each")
def scatter_vector_(out: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str) -> Tensor:
    """out[..., index, ...] (op)= source."""


scatter_vector_.on("any")(scatter_vector)


def _adding(d: dt.dtype) -> str:
    return "amax" if d is dt.bool_ else "add"


def _scaled(source: Tensor, alpha: Any) -> Tensor:
    """Return source times a factor of its own dtype."""
    if alpha == 1:
        return source
    return source * (bool(alpha) if source.dtype is dt.bool_ else check_fits(alpha, source.dtype))


def _index_add_into(out: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> bool:
    d = _check_vector("index_add", out, dim, index, source)
    scatter_vector_(out, d, index, _scaled(source, alpha), _adding(out.dtype))
    return True


@primitive(
    grads={
        "input": lambda g: g,
        "source": lambda g, dim, index, source_shape, alpha: (g.index_select(dim, index) * alpha).reshape(source_shape),
    },
    inplace=_index_add_into,
    out="exact",
    runs_empty=True,
)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> NewTensor:
    """input with alpha * source added at the given indices of one dimension."""
    _check_vector("index_add", input, dim, index, source)
    return input.shape, input.dtype, input.device


@index_add.on("any")
def _(out: Tensor, input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> None:
    raw_copy(out, input)
    scatter_vector(out, wrap_dim(dim, len(input.shape)), index, _scaled(source, alpha), _adding(out.dtype))


def _index_copy_into(out: Tensor, dim: int, index: Tensor, source: Tensor) -> bool:
    d = _check_vector("index_copy", out, dim, index, source)
    scatter_vector_(out, d, index, source, "none")
    return True


@primitive(
    grads={
        "input": lambda g, dim, index: g.index_fill(dim, index, 0),
        "source": lambda g, dim, index, source_shape: g.index_select(dim, index).reshape(source_shape),
    },
    inplace=_index_copy_into,
    out="exact",
    runs_empty=True,
    autocast="widest",
)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> NewTensor:
    """input with source copied to the given indices of one dimension."""
    _check_vector("index_copy", input, dim, index, source)
    return input.shape, input.dtype, input.device


@index_copy.on("any")
def _(out: Tensor, input: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    raw_copy(out, input)
    scatter_vector(out, wrap_dim(dim, len(input.shape)), index, source, "none")


# -- index_fill ----------------------------------------------------------------------------------------------------------


def _fill_value_grad(g: Tensor, dim: int, index: Tensor, value: Any) -> Tensor | None:
    if not isinstance(value, Tensor):
        return None
    return g.index_select(dim, index.unique()).sum()  # a repeated index is filled once


def _check_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> int:
    if isinstance(value, Tensor) and value.shape:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {len(value.shape)} dimension(s)."
        )
    if len(index.shape) > 1:
        raise RuntimeError("index_fill_(): Index has to be a vector/scalar")
    if index.dtype is not dt.int64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    is_complex = value.dtype.is_complex if isinstance(value, Tensor) else isinstance(value, complex)
    if is_complex and not input.dtype.is_complex:
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    return wrap_dim(dim, len(input.shape))


def _fill_operands(t: Tensor, dim: int, index: Tensor, value: Any) -> tuple[Tensor, Tensor]:
    """Return indices that are not negative, and the values to copy there."""
    size = t.shape[dim] if t.shape else 1
    positions = index.reshape(-1)
    positions = positions.where(positions >= 0, positions + size)
    bad = first_bad_index(positions, size)
    if bad is not None:
        raise IndexError(
            f"index {bad if bad >= 0 else bad - size} is out of bounds for dimension {dim} with size {size}"
        )
    shape = list(t.shape) or [1]
    shape[dim] = positions.shape[0]
    return positions, t.new_full(shape, value.item() if isinstance(value, Tensor) else value)


def fill_at(out: Tensor, dim: int, index: Tensor, value: Any) -> None:
    """out[..., index, ...] = value, where dim is not negative; bad indices raise. For kernels."""
    positions, source = _fill_operands(out, dim, index, value)
    scatter_vector(out, dim, positions, source, "none")


@effect(runs_empty=True, batching="each")
def fill_at_(out: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """out[..., index, ...] = value."""


fill_at_.on("any")(fill_at)


@effect(runs_empty=True, batching="each")
def fill_shared_at_(out: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """out[..., index, ...] = value, where elements of out may share memory."""


@fill_shared_at_.on("cpu")
def _(out: Tensor, dim: int, index: Tensor, value: Any) -> None:
    positions, source = _fill_operands(out, dim, index, value)
    np.moveaxis(out._array(), dim, 0)[positions._array()] = np.moveaxis(source._array(), dim, 0)


def _index_fill_into(out: Tensor, dim: int, index: Tensor, value: Any) -> bool:
    fill_at_(out, _check_fill(out, dim, index, value), index, value)
    return True


def _index_fill_shared(t: Tensor, dim: int, index: Tensor, value: Any) -> None:
    fill_shared_at_(t, _check_fill(t, dim, index, value), index, value)


@primitive(
    grads={"input": lambda g, dim, index: g.index_fill(dim, index, 0), "value": _fill_value_grad},
    inplace=_index_fill_into,
    shared=_index_fill_shared,
    runs_empty=True,
)
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> NewTensor:
    """input with one value at the given indices of a dimension."""
    _check_fill(input, dim, index, value)
    return input.shape, input.dtype, input.device, dense_strides(input.shape, input._strides)


@index_fill.on("any")
def _(out: Tensor, input: Tensor, dim: int, index: Tensor, value: Any) -> None:
    raw_copy(out, input)
    fill_at(out, wrap_dim(dim, len(input.shape)), index, value)


# -- index_reduce --------------------------------------------------------------------------------------------------------


def _index_reduce_grads(
    g: Tensor, input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool, out: Tensor
) -> tuple[Any, ...]:
    shape = source.shape
    if not input.shape:
        input, out, g, source = input.reshape(1), out.reshape(1), g.reshape(1), source.reshape(1)
        a, b = scatter_reduce_grads(g, input, 0, index.reshape(-1), source, reduce, include_self, out)
        return a.reshape(()), b.reshape(shape)
    d = wrap_dim(dim, len(input.shape))
    full = _spread(index, input.shape, d)
    a, b = scatter_reduce_grads(g, input, d, full, _flat_source(source), reduce, include_self, out)
    return a, b.reshape(shape)


@primitive(grads={("input", "source"): _index_reduce_grads}, inplace=True, out="exact", runs_empty=True)
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> NewTensor:
    """Combine source into the given indices of one dimension: prod, mean, amax or amin."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    _check_vector("index_reduce", input, dim, index, source)
    if reduce == "mean" and input.dtype is dt.bool_:
        raise unsupported("scatter_reduce mean", dt.bool_)
    return input.shape, input.dtype, input.device


@index_reduce.on("any")
def _(
    out: Tensor, input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> None:
    raw_copy(out, input)
    d = wrap_dim(dim, len(input.shape))
    _check_bounds(out, d, index)
    if 0 in out.shape:
        return
    whole = out if out.shape else out.reshape(1)
    reduce_raw(whole, d, _spread(index, whole.shape, d), _flat_source(source), reduce, include_self)
