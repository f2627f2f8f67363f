"""Sparse tensors of zeros, and changes of size: zeros, zeros_like, sparse_resize_."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.device import default_device
from ...core.layout import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from ...core.promotion import get_default_dtype
from ...core.size import Size, make_size
from ...core.sparse import SparseCoo, SparseCsr, SparseTensor, empty_coo, new_csr
from ...core.tensor import Tensor, empty
from ..creation import filled
from ..creation.filled import fill_raw, finish
from ..machinery.arguments import as_shape, read_options
from ..machinery.declare import composite
from ..machinery.inplace import check_history_writable
from ..machinery.sparse_dispatch import sparse_form
from .coo import layout_word, need_coo, read_shape


def _resized(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> tuple[SparseCoo, Any]:
    """The tensor to resize, and its new shape."""
    t = need_coo(self, "sparse_resize_")
    check_history_writable(t)
    shape = read_shape(size, 1)
    if len(shape) != sparse_dim + dense_dim:
        raise RuntimeError(
            "'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = "
            f"{len(shape)}, sparse_dim = {sparse_dim}, dense_dim = {dense_dim}"
        )
    return t, shape


@composite(function=False)
def sparse_resize_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Give a sparse tensor a larger shape, or any shape if it has no entries."""
    t, shape = _resized(self, size, sparse_dim, dense_dim)
    if not t._values_part.shape[0]:
        return _cleared(t, shape, sparse_dim)
    if (
        t._index_part.shape[0] != sparse_dim
        or any(a < b for a, b in zip(shape, t.shape))
        or (tuple(shape[sparse_dim:]) != tuple(t.shape[sparse_dim:]))
    ):
        raise RuntimeError(
            f"changing the shape of a non-empty sparse tensor from {list(t.shape)} to {list(shape)} is not supported:"
            " sparse dimensions may only grow"
        )
    t.shape = shape
    t._bump("sparse_resize_")
    return t


def _cleared(t: SparseCoo, shape: tuple[int, ...], sparse_dim: int) -> SparseCoo:
    t._take_parts(empty_coo(shape, t.dtype, sparse_dim, t.device))
    t.shape = make_size(shape)
    t._bump("sparse_resize_and_clear_")
    return t


@composite(function=False)
def sparse_resize_and_clear_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Give a sparse tensor another shape, without entries."""
    return _cleared(*_resized(self, size, sparse_dim, dense_dim), sparse_dim)


@sparse_form(filled.zeros, filled.empty)
def zeros(*size: Any, out: Any = None, **options: Any) -> Tensor:
    shape = as_shape((options.pop("size"),) if not size and "size" in options else size, "zeros")
    kind = options.pop("layout", sparse_coo)  # or out= is a sparse tensor
    chosen = read_options("zeros", options)
    where, d = chosen.device or default_device(), chosen.dtype or get_default_dtype()
    made = empty_coo(shape, d, None, where) if kind is sparse_coo else _empty_compressed(shape, d, kind, where)
    return finish(made, chosen.requires_grad)


def _empty_compressed(shape: Size, d: Any, kind: Any, where: Any) -> SparseTensor:
    if kind in (sparse_bsr, sparse_bsc):
        raise RuntimeError(
            f"zeros_sparse_compressed expected sparse compressed (non-block) tensor layout but got {layout_word(kind)}"
        )
    if kind not in (sparse_csr, sparse_csc) or len(shape) != 2:
        raise NotImplementedError(f"zeros of shape {list(shape)} with layout {kind!r} are not implemented")
    lines = shape[0] if kind is sparse_csr else shape[1]
    starts, places = (fill_raw(empty(make_size((n,)), dt.int64, where), 0) for n in (lines + 1, 0))
    return new_csr(starts, places, empty(make_size((0,)), d, where), shape, kind)


def _without_blocks(t: SparseCsr, d: Any, where: Any) -> SparseTensor:
    starts, places = (fill_raw(empty(make_size((n,)), dt.int64, where), 0) for n in (t._compressed_part.shape[0], 0))
    return new_csr(starts, places, empty(make_size((0, *t._values_part.shape[1:])), d, where), t.shape, t.layout)


@sparse_form(filled.empty_like)
def empty_like(input: Any, **options: Any) -> Tensor:
    """Places of a compressed tensor stay: only its values are new. Other tensors come back without entries."""
    if not isinstance(input, SparseCsr):
        return zeros_like(input, **options)
    kind = options.pop("layout", None) or input.layout
    if kind is not input.layout:
        raise RuntimeError(
            f"empty_like with different sparse layout is not supported (self is {layout_word(input.layout)} but you requested"
            f" {layout_word(kind)})"
        )
    chosen = read_options("empty_like", options)
    d, where = chosen.dtype or input.dtype, chosen.device or input.device
    starts, places = (part.to(where).clone() for part in (input._compressed_part, input._plain_part))
    return finish(
        new_csr(starts, places, empty(input._values_part.shape, d, where), input.shape, kind), chosen.requires_grad
    )


@sparse_form(filled.zeros_like)
def zeros_like(input: Any, **options: Any) -> Tensor:
    kind = options.pop("layout", input.layout)
    if options.pop("memory_format", None) is not None:
        raise RuntimeError("memory format option is only supported by strided tensors")
    chosen = read_options("zeros_like", options)
    d, where = chosen.dtype or input.dtype, chosen.device or input.device
    if kind is strided:
        return finish(fill_raw(empty(input.shape, d, where), 0), chosen.requires_grad)
    if kind is not sparse_coo:
        if kind is input.layout and input._blocksize is not None:
            return finish(_without_blocks(input, d, where), chosen.requires_grad)
        return finish(_empty_compressed(input.shape, d, kind, where), chosen.requires_grad)
    count = input._index_part.shape[0] if isinstance(input, SparseCoo) else None
    return finish(empty_coo(input.shape, d, count, where), chosen.requires_grad)
