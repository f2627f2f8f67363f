"""Picking and placing elements along one dimension by indices that an operator computed (max, sort, topk, ...)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.device import cpu
from ..core.size import make_size
from ..core.tensor import Tensor, empty, numel_of
from ..kernels.library.index import gather as gather_kernel
from ..kernels.library.index import scatter as scatter_kernel
from .declare import primitive


def split_at(shape: tuple[int, ...], dim: int) -> tuple[int, int, int]:
    """A contiguous shape as (outer, n, inner) around a dimension; a 0-dim tensor is one line of one element."""
    if not shape:
        return 1, 1, 1
    if dim < 0:
        dim += len(shape)
    return numel_of(shape[:dim]), shape[dim], numel_of(shape[dim + 1 :])


def contiguous(x: Tensor) -> Tensor:
    """The values of x, contiguous, without history."""
    return (x if x._meta is None else x._bare_alias()).contiguous()


def _check(error: np.ndarray, size: int) -> None:
    if error[0]:
        raise IndexError(f"index {error[1]} is out of bounds for a dimension of size {size}: the indices were changed")


@primitive(
    grads={"input": lambda g, index, dim, shape: place_along(g, index, dim, shape)}, function=False, method=False
)
def take_along(input: Tensor, index: Tensor, dim: int, shape: Any) -> Tensor:
    """out[o, k, i] = input[o, index[o, k, i], i]; `shape` is the input's."""
    out = empty(index.shape, input.dtype, input.device)
    if input.device is not cpu or not numel_of(index.shape):
        return out
    if not input.shape:
        out._array()[...] = input._array()
        return out
    outer, n, inner = split_at(input.shape, dim)
    if input.dtype.is_complex:
        out._array()[...] = np.take_along_axis(input._array(), index._array(), dim)
        return out
    error = np.zeros(2, np.int64)
    gather_kernel(out, contiguous(input), contiguous(index), error, outer, n, index.shape[dim], inner)
    _check(error, n)
    return out


@primitive(
    grads={"values": lambda g, index, dim, shape: take_along(g, index, dim, shape)}, function=False, method=False
)
def place_along(values: Tensor, index: Tensor, dim: int, shape: Any) -> Tensor:
    """Zeros of `shape` with out[o, index[o, k, i], i] += values[o, k, i]."""
    out = empty(make_size(shape), values.dtype, values.device)
    if values.device is not cpu or not numel_of(shape):
        return out
    if not shape:
        out._array()[...] = values._array().reshape(())
        return out
    out._array()[...] = 0
    outer, n, inner = split_at(tuple(shape), dim)
    if values.dtype.is_complex:
        lines = np.moveaxis(out._array(), dim, -1)
        places = np.meshgrid(*map(np.arange, np.moveaxis(index._array(), dim, -1).shape), indexing="ij")
        np.add.at(lines, (*places[:-1], np.moveaxis(index._array(), dim, -1)), np.moveaxis(values._array(), dim, -1))
        return out
    error = np.zeros(2, np.int64)
    scatter_kernel(
        out, contiguous(index), contiguous(values), 0, error, outer, n, index.shape[dim], inner, reduce="add"
    )
    _check(error, n)
    return out
