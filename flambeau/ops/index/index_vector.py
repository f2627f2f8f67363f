"""One index vector for a whole dimension: index_add, index_copy, index_fill, index_reduce."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import cpu
from ...core.layout import contiguous_format, memory_format, preserve_format, wrap_dim
from ...core.tensor import Tensor, copy_of_array, numel_of
from ...kernels.library import index as kernels
from ..creation.filled import check_fits
from ..machinery.along import split_at
from ..machinery.declare import primitive
from ..machinery.dtype_rules import type_word
from .gather import first_bad_index, need_one_device, scatter_raw, scatter_reduce, scatter_reduce_grads


def _check_vector(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor | None) -> int:
    d = wrap_dim(dim, len(input.shape))
    if len(index.shape) > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {len(index.shape)} with type: {type_word(index.dtype)} and size: {list(index.shape)}"
        )
    if index.dtype not in (dt.int64, dt.int32):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index but got: {type_word(index.dtype)}")
    if source is not None:
        if source.dtype is not input.dtype:
            raise RuntimeError(
                f"{name}(): self and source expected to have the same dtype, but got (self) {type_word(input.dtype)} and (source) {type_word(source.dtype)}"
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
    size = input.shape[d] if input.shape else 1
    bad = first_bad_index(index, size)
    if bad is not None:
        raise IndexError(f"index {bad} is out of bounds for dimension {d} with size {size}")
    return d


def _spread(index: Tensor, shape: tuple[int, ...], d: int) -> Tensor:
    """An index vector as the full index that scatter takes."""
    view = [1] * len(shape)
    view[d] = index.numel()
    full = list(shape)
    full[d] = index.numel()
    return index.reshape(view).expand(full)


def _flat_source(source: Tensor) -> Tensor:
    return source.reshape(1) if not source.shape else source


def _scatter_vector(
    input: Tensor, d: int, index: Tensor, source: Tensor, reduce: str, layout: memory_format = contiguous_format
) -> Tensor:
    scalar = not input.shape
    out = input.clone().reshape(1) if scalar else input.clone(memory_format=layout)
    scatter_into(out, d, index, source, reduce)
    return out.reshape(()) if scalar else out


def scatter_into(out: Tensor, d: int, index: Tensor, source: Tensor, reduce: str) -> None:
    """out[..., index, ...] (op)= source; the indices are known to be good."""
    need_one_device(out, index, source)
    source = source.reshape(1) if not source.shape else source
    if not index.numel() or not out.numel():
        return
    if out._contig and out.device is cpu and not out.dtype.is_complex:
        outer, n, inner = split_at(out.shape, d)
        if out.dtype is dt.bool_:
            out, source = out.view(dt.uint8), source.view(dt.uint8)
        kernels.scatter_slices(
            out, index.contiguous(), source.contiguous(), outer, n, numel_of(index.shape), inner, reduce=reduce
        )
    else:
        scatter_raw(out, d, _spread(index, out.shape, d), source, 0.0, reduce)


def _scaled(source: Tensor, alpha: Any) -> Tensor:
    """source times a factor of its own dtype."""
    if alpha == 1:
        return source
    return source * (bool(alpha) if source.dtype is dt.bool_ else check_fits(alpha, source.dtype))


def _index_add_into(out: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> bool:
    d = _check_vector("index_add", out, dim, index, source)
    if not out.shape:
        return False
    scatter_into(out, d, index, _scaled(source, alpha), "amax" if out.dtype is dt.bool_ else "add")
    return True


@primitive(
    grads={
        "input": lambda g: g,
        "source": lambda g, dim, index, source_shape, alpha: (g.index_select(dim, index) * alpha).reshape(source_shape),
    },
    inplace=_index_add_into,
    out="exact",
)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """input with alpha * source added at the given indices of one dimension."""
    d = _check_vector("index_add", input, dim, index, source)
    source = _scaled(source, alpha)
    return _scatter_vector(input, d, index, source, "amax" if input.dtype is dt.bool_ else "add")


def _index_copy_into(out: Tensor, dim: int, index: Tensor, source: Tensor) -> bool:
    d = _check_vector("index_copy", out, dim, index, source)
    if not out.shape:
        return False
    scatter_into(out, d, index, source, "none")
    return True


@primitive(
    grads={
        "input": lambda g, dim, index: g.index_fill(dim, index, 0),
        "source": lambda g, dim, index, source_shape: g.index_select(dim, index).reshape(source_shape),
    },
    inplace=_index_copy_into,
    out="exact",
)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """input with source copied to the given indices of one dimension."""
    d = _check_vector("index_copy", input, dim, index, source)
    return _scatter_vector(input, d, index, source, "none")


def _fill_value_grad(g: Tensor, dim: int, index: Tensor, value: Any) -> Tensor | None:
    if not isinstance(value, Tensor):
        return None
    filled = copy_of_array(np.unique(index._array()), dt.int64)  # a repeated index is filled once
    return g.index_select(dim, filled).sum()


def _fill_operands(input: Tensor, dim: int, index: Tensor, value: Any) -> tuple[int, Tensor, Tensor]:
    """The dimension, indices that are not negative, and what is copied there."""
    if isinstance(value, Tensor) and value.shape:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {len(value.shape)} dimension(s)."
        )
    if len(index.shape) > 1:
        raise IndexError("index_fill_(): Index has to be a vector/scalar")
    if index.dtype is not dt.int64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    d = wrap_dim(dim, len(input.shape))
    size = input.shape[d] if input.shape else 1
    positions = index.reshape(-1)
    array = positions._array()
    if array.size and (array.min() < -size or array.max() >= size):
        raise IndexError(
            f"index {int(array.max() if array.max() >= size else array.min())} is out of bounds for dimension {d} with size {size}"
        )
    if array.size and array.min() < 0:
        positions = positions.where(positions >= 0, positions + size)
    value = value.item() if isinstance(value, Tensor) else value
    if isinstance(value, complex) and not input.dtype.is_complex:
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    shape = [1] * len(input.shape)
    if input.shape:
        shape = list(input.shape)
        shape[d] = index.numel()
    source = input.new_full(shape if input.shape else [index.numel()], value)
    return d, positions, source


def _index_fill_into(out: Tensor, dim: int, index: Tensor, value: Any) -> bool:
    if not out.shape:
        return False
    scatter_into(out, *_fill_operands(out, dim, index, value), "none")
    return True


def _fill_shared(t: Tensor, dim: int, index: Tensor, value: Any) -> None:
    d, positions, source = _fill_operands(t, dim, index, value)
    np.moveaxis(t._array(), d, 0)[positions._array()] = np.moveaxis(source._array(), d, 0)


@primitive(
    grads={"input": lambda g, dim, index: g.index_fill(dim, index, 0), "value": _fill_value_grad},
    inplace=_index_fill_into,
    shared=_fill_shared,
)
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """input with one value at the given indices of a dimension."""
    return _scatter_vector(input, *_fill_operands(input, dim, index, value), "none", preserve_format)


def _index_reduce_grads(
    g: Tensor, input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool, out: Tensor
) -> tuple:
    shape = source.shape
    if not input.shape:
        input, out, g, source = input.reshape(1), out.reshape(1), g.reshape(1), source.reshape(1)
        a, b = scatter_reduce_grads(g, input, 0, index.reshape(-1), source, reduce, include_self, out)
        return a.reshape(()), b.reshape(shape)
    d = wrap_dim(dim, len(input.shape))
    full = _spread(index, input.shape, d)
    a, b = scatter_reduce_grads(g, input, d, full, _flat_source(source), reduce, include_self, out)
    return a, b.reshape(shape)


@primitive(grads={("input", "source"): _index_reduce_grads}, inplace=True, out="exact")
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Combine source into the given indices of one dimension: prod, mean, amax or amin."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    d = _check_vector("index_reduce", input, dim, index, source)
    whole = input.reshape(1) if not input.shape else input
    if not index.numel():
        return input.clone(memory_format=contiguous_format)
    out = scatter_reduce(
        whole, d, _spread(index, whole.shape, d), _flat_source(source), reduce, include_self=include_self
    )
    return out.reshape(input.shape)
