"""Conversions of tensors from one layout to another."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from ...core.layout import layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from ...core.sparse import SparseCoo, SparseCsr, SparseTensor, new_coo, new_csr
from ...core.tensor import Tensor
from ..machinery.declare import composite
from ..machinery.quirks import Quirks
from ..machinery.sparse_dispatch import sparse_primitive
from .compressed import BLOCKS, LINES, in_lines
from .coo import coalesce, layout_word, listed_places, listed_values, strided_to_coo
from .index import index_tensor, keys_of, on_host, within_bounds


def compressed_to_coo(input: SparseCsr) -> SparseCoo:
    """Return the entries of a compressed tensor in their order, with their coordinates, those of the batch included."""
    index, keys = listed_places(input)
    coalesced = input.layout is sparse_csr and bool((keys[1:] > keys[:-1]).all())
    return new_coo(index, listed_values(input), input.shape, coalesced)


def _back(g: Any, input: Any) -> Tensor:
    """Return a gradient in the layout of `input`; for blocks, in the same blocks."""
    if input._blocksize is None and isinstance(g, SparseCoo):
        return in_layout_of(input, g)
    return g.sparse_mask(input.detach())


_compressed_to_coo = sparse_primitive(compressed_to_coo, {"input": _back}, Quirks(label="ToSparseBackward0"))


def _coo_to_compressed(input: Any, kind: layout, block: tuple[int, int] | None, index_dtype: Any = None) -> SparseCsr:
    """Return the blocks (or elements) that hold an entry, in order, with zeros where there is none; the first sparse dimensions are batches."""
    t = within_bounds(coalesce(input))
    *matrices, rows, columns = on_host(t._index_part)
    *batch, height, width = t.shape[: t._sparse_dims]
    tall, wide = block or (1, 1)
    lines, across = in_lines(kind, height // max(tall, 1), width // max(wide, 1))
    line, place = in_lines(kind, rows // max(tall, 1), columns // max(wide, 1))
    keys = keys_of([*matrices, line, place], (*batch, lines, across))
    listed = np.unique(keys)
    slots = (np.searchsorted(listed, keys) * tall + rows % max(tall, 1)) * wide + columns % max(wide, 1)
    values = t._values_part.new_zeros((listed.size * tall * wide, *t._values_part.shape[1:]))
    values = values.index_put((index_tensor(slots),), t._values_part)
    count = math.prod(batch)
    nnz = listed.size // max(count, 1)
    numbers = np.arange(count).reshape(-1, 1)
    starts = np.searchsorted(listed, (numbers * lines + np.arange(lines + 1)) * across) - numbers * nnz
    if listed.size != nnz * count or (starts[:, -1] != nnz).any():
        raise RuntimeError("Expect the same number of specified elements per batch.")
    found = (
        index_tensor(starts).reshape(*batch, lines + 1),
        index_tensor(listed % max(across, 1)).reshape(*batch, nnz),
    )
    starts, places = (part if index_dtype is None else part.to(index_dtype) for part in found)
    values = values.reshape(*batch, nnz, *(block or ()), *t._values_part.shape[1:])
    return new_csr(starts, places, values, t.shape, kind)


coo_to_compressed = sparse_primitive(
    _coo_to_compressed,
    {"input": lambda g: g.to_sparse_coo() if g.layout is not strided else g},
    Quirks(label="ToSparseBackward0"),
    name="coo_to_compressed",
)


def as_coo(t: Any) -> Any:
    """Return a sparse tensor in coordinate layout."""
    return _compressed_to_coo(t) if isinstance(t, SparseCsr) else t


def in_layout_of(like: Any, t: Any) -> Any:
    """Return a COO tensor in the layout of another tensor, with blocks of its size."""
    if isinstance(like, SparseCoo):
        return t
    return coo_to_compressed(t, like.layout, like._blocksize, like._plain_part.dtype)


# -- as users ask for it -----------------------------------------------------------------------------------------------


def _name(kind: layout) -> str:
    return "sparse" if kind is sparse_coo else repr(kind).removeprefix("torch.")


def _refuse(t: Tensor, kind: layout, why: str) -> NoReturn:
    """Raise for a conversion, in the name of PyTorch's step for it."""
    start = "dense" if t.layout is strided else "coo" if isinstance(t, SparseCoo) else "sparse_compressed"
    name = "to_sparse" if t.layout is kind else f"{start}_to_{_name(kind)}"
    raise RuntimeError(f"{name}: conversion from {layout_word(t)} to {layout_word(kind)} {why} is not supported")


@composite(function=False)
def to_sparse(
    self: Tensor, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None
) -> Tensor:
    """The entries that are not zero, in a sparse layout (by default COO)."""
    if isinstance(sparse_dim, type(sparse_coo)):
        sparse_dim, layout = None, sparse_dim
    kind = sparse_coo if layout is None else layout
    if kind is self.layout is strided:
        return self
    if kind is not sparse_coo and kind not in LINES:
        raise RuntimeError(f"to_sparse: expected a sparse layout but got {layout_word(kind)}")
    if isinstance(self, SparseTensor):
        return _from_sparse(self, kind, sparse_dim, blocksize, dense_dim)
    if kind is sparse_coo:
        _checked_block(self, kind, blocksize, 0)
        return strided_to_coo(self, sparse_dim if dense_dim is None else len(self.shape) - dense_dim)
    rows, dense = len(self.shape) - (dense_dim or 0) - 2, dense_dim or 0
    if len(self.shape) < 2:
        raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got -2)")
    if not 0 <= dense <= len(self.shape) - 2:
        raise RuntimeError(
            f"dense_to_{_name(kind)}: dense_dim argument must be in [0,{len(self.shape) - 2}] range, but {dense} is given"
        )
    if 0 in self.shape[:rows]:
        raise RuntimeError(f"to_{_name(kind)}: Expected product of batch dimensions to be non-zero.")
    return coo_to_compressed(strided_to_coo(self, rows + 2), kind, _checked_block(self, kind, blocksize, rows))


def _from_sparse(t: Any, kind: layout, sparse_dim: Any, blocksize: Any, dense_dim: Any) -> Tensor:
    """Convert a sparse tensor: its sparse and dense dimensions remain so."""
    own = t._sparse_dims if isinstance(t, SparseCoo) else 2
    if sparse_dim not in (None, own):
        _refuse(t, kind, f"with sparse_dim argument !={'self.sparse_dim()' if isinstance(t, SparseCoo) else 2}")
    if dense_dim is not None:
        _refuse(t, kind, "with dense_dim argument given")
    if isinstance(t, SparseCsr) and t._batch_dims and kind in BLOCKS and t._blocksize is None:
        _refuse(t, kind, "for batched inputs")
    block = _checked_block(t, kind, blocksize, t._sparse_dims - 2)
    if kind is t.layout:
        return t
    if kind is sparse_coo:
        return as_coo(t)
    if isinstance(t, SparseCoo) and own != 2:
        _refuse(t, kind, "for input tensors with sparse_dim()!=2")
    return coo_to_compressed(as_coo(t), kind, block, t._plain_part.dtype if isinstance(t, SparseCsr) else None)


def _checked_block(t: Any, kind: layout, blocksize: Any, at: int) -> tuple[int, int] | None:
    """Return the size of blocks that is requested for a conversion; None for layouts without them. `at` is the dimension of rows."""
    given = getattr(t, "_blocksize", None)
    if kind not in BLOCKS:
        if blocksize is not None:
            _refuse(t, kind, "with blocksize argument given")
        if given is not None and kind is not sparse_coo:
            raise RuntimeError(
                f"sparse_compressed_to_{_name(kind)}: expected SparseCsr or SparseCsc layout but got {layout_word(t)}"
            )
        return None
    if blocksize is None:
        return given or _refuse(t, kind, "without blocksize argument given")
    pair = (blocksize, blocksize) if isinstance(blocksize, int) else tuple(blocksize)
    if given is not None and given != pair:
        _refuse(t, kind, f"with blocksize changed from {list(given)} to {list(pair)}")
    start = "dense" if t.layout is strided else "sparse_compressed"
    if len(pair) != 2 or any(n <= 0 for n in pair):
        raise RuntimeError(f"{start}_to_{_name(kind)}: blocksize needs to be positive, but got {list(pair)}")
    rows, columns = t.shape[at : at + 2]
    if rows % pair[0] or columns % pair[1]:
        raise RuntimeError(
            f"{start}_to_{_name(kind)}: tensor sparse size ({rows},{columns}) must be divisible by given blocksize"
            f" ({pair[0]},{pair[1]})"
        )
    return pair[0], pair[1]


@composite(function=False)
def to_sparse_coo(self: Tensor) -> Tensor:
    """The entries that are not zero, in coordinate layout."""
    return self.to_sparse()


@composite(function=False)
def to_sparse_csr(self: Tensor, dense_dim: Any = None) -> Tensor:
    """The entries that are not zero, in compressed rows."""
    return self.to_sparse(layout=sparse_csr, dense_dim=dense_dim)


@composite(function=False)
def to_sparse_csc(self: Tensor, dense_dim: Any = None) -> Tensor:
    """The entries that are not zero, in compressed columns."""
    return self.to_sparse(layout=sparse_csc, dense_dim=dense_dim)


@composite(function=False)
def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: Any = None) -> Tensor:
    """The blocks that are not all zero, in compressed rows of blocks."""
    return self.to_sparse(layout=sparse_bsr, blocksize=blocksize, dense_dim=dense_dim)


@composite(function=False)
def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: Any = None) -> Tensor:
    """The blocks that are not all zero, in compressed columns of blocks."""
    return self.to_sparse(layout=sparse_bsc, blocksize=blocksize, dense_dim=dense_dim)
