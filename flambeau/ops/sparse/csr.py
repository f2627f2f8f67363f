"""Compressed sparse matrices (CSR, CSC and, of blocks, BSR, BSC): making them, and the way to and from the other layouts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import default_device
from ...core.layout import layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from ...core.size import make_size
from ...core.sparse import Invariants, SparseCoo, SparseCsr, SparseTensor, new_coo, new_csr
from ...core.tensor import Tensor
from ..creation.construct import from_data
from ..creation.filled import finish
from ..machinery.arguments import as_ints, read_options
from ..machinery.declare import composite
from ..machinery.quirks import Quirks
from ..machinery.sparse_dispatch import sparse_primitive
from .coo import coalesce, layout_word, listed_places, strided_to_coo, values_in_place_of
from .index import index_tensor, on_host, within_bounds
from .places import repeated

_ROWS, _COLUMNS = ("crow_indices", "col_indices"), ("ccol_indices", "row_indices")
_LINES = {sparse_csr: _ROWS, sparse_csc: _COLUMNS, sparse_bsr: _ROWS, sparse_bsc: _COLUMNS}
_BLOCKS = (sparse_bsr, sparse_bsc)


# -- construction ------------------------------------------------------------------------------------------------------


def _index(data: Any) -> Tensor:
    t = data if isinstance(data, Tensor) else from_data(data, dt.int64, default_device())
    if t.dtype not in (dt.int64, dt.int32):
        raise RuntimeError(f"compressed and plain indices must be int32 or int64, got {t.dtype}")
    return t


def _in_blocks(shape: Any, block: Any, name: str) -> tuple[int, int]:
    """The numbers of blocks along rows and columns."""
    if len(block) != 2 or any(n <= 0 for n in block):
        raise RuntimeError(f"{name}: blocksize needs to be positive, but got {list(block)}")
    if shape[-2] % block[0] or shape[-1] % block[1]:
        raise RuntimeError(
            f"{name}: tensor sparse size ({shape[-2]},{shape[-1]}) must be divisible by given blocksize ({block[0]},{block[1]})"
        )
    return shape[-2] // block[0], shape[-1] // block[1]


def check_compressed(compressed: Tensor, plain: Tensor, values: Tensor, shape: Any, kind: layout) -> None:
    """Raise unless the parts describe a matrix: native kernels rely on it."""
    first, second = _LINES[kind]
    counts = _in_blocks(shape, values.shape[1:], "size") if kind in _BLOCKS else shape
    lines, across = (counts[0], counts[1]) if _LINES[kind] is _ROWS else (counts[1], counts[0])
    starts, places = on_host(compressed), on_host(plain)
    nnz = values.shape[0]
    if starts.shape != (lines + 1,):
        raise RuntimeError(
            f"{first}.shape[-1] must be equal to the number of lines + 1 = {lines + 1}, but got {list(starts.shape)}"
        )
    if places.shape != (nnz,):
        raise RuntimeError(
            f"{second} and values must have the same number of elements, got {list(places.shape)} and {nnz}"
        )
    if starts[0] != 0 or starts[-1] != nnz or (np.diff(starts) < 0).any():
        raise RuntimeError(f"{first} must rise from 0 to nnz = {nnz}, but got {starts.tolist()[:16]}")
    if nnz and (places.min() < 0 or places.max() >= across):
        raise RuntimeError(f"{second} must lie in [0, {across}), but got {places.min()} to {places.max()}")


def _compressed(
    compressed: Any, plain: Any, values: Any, size: Any, kind: layout, options: dict[str, Any], name: str
) -> Tensor:
    ordered = options.pop("check_invariants", None)
    chosen = read_options(name, {k: v for k, v in options.items() if k != "layout"})
    where = chosen.device
    starts, places = (t if where is None else t.to(where) for t in (_index(compressed), _index(plain)))
    held = values if isinstance(values, Tensor) else from_data(values, chosen.dtype, starts.device)
    held = held.to(device=where or held.device, dtype=chosen.dtype or held.dtype)
    block = tuple(held.shape[1:]) if kind in _BLOCKS else (1, 1)
    if kind in _BLOCKS and len(held.shape) < 3:
        raise RuntimeError(f"{name}(): values of blocks have 3 dimensions, got {len(held.shape)}")
    if len(starts.shape) != 1 or len(held.shape) != (3 if kind in _BLOCKS else 1):
        raise NotImplementedError(f"{name}(): batches and dense dimensions are not implemented")
    if size is None:
        across = int(on_host(places).max()) + 1 if places.shape[0] else 0
        lines = starts.shape[0] - 1
        lines, across = (lines, across) if _LINES[kind] is _ROWS else (across, lines)
        size = (lines * block[0], across * block[1])
    shape = make_size(as_ints(size, name, "size", 4))
    if len(shape) != 2:
        raise RuntimeError(f"{name}(): size must have 2 dimensions, got {list(shape)}")
    check_compressed(starts, places, held, shape, kind)
    like = new_csr(starts._bare_alias(), places._bare_alias(), held.detach(), shape, kind)
    if (Invariants.checked if ordered is None else ordered) and not _sorted(like):
        raise RuntimeError(f"{_LINES[kind][1]} of each line must be sorted and distinct")
    return finish(values_in_place_of(held, like), chosen.requires_grad)


@composite(kind="creation", method=False)
def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any) -> Tensor:
    """A sparse matrix in compressed rows: the entries of row i are those from crow_indices[i] to crow_indices[i + 1]."""
    return _compressed(crow_indices, col_indices, values, size, sparse_csr, options, "sparse_csr_tensor")


@composite(kind="creation", method=False)
def sparse_csc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, **options: Any) -> Tensor:
    """A sparse matrix in compressed columns."""
    return _compressed(ccol_indices, row_indices, values, size, sparse_csc, options, "sparse_csc_tensor")


@composite(kind="creation", method=False)
def sparse_bsr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any) -> Tensor:
    """A sparse matrix in compressed rows of blocks: `values[k]` is the block in column `col_indices[k]` of its row of blocks."""
    return _compressed(crow_indices, col_indices, values, size, sparse_bsr, options, "sparse_bsr_tensor")


@composite(kind="creation", method=False)
def sparse_bsc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, **options: Any) -> Tensor:
    """A sparse matrix in compressed columns of blocks."""
    return _compressed(ccol_indices, row_indices, values, size, sparse_bsc, options, "sparse_bsc_tensor")


@composite(kind="creation", method=False)
def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, layout: Any = None, **options: Any
) -> Tensor:
    """A sparse matrix in one of the compressed layouts: sparse_csr, sparse_csc, sparse_bsr or sparse_bsc."""
    if layout not in _LINES:
        word = "none" if layout is None else {sparse_coo: "Sparse", strided: "Strided"}.get(layout, repr(layout))
        raise RuntimeError(f"sparse_compressed_tensor expected sparse compressed tensor layout but got {word}")
    return _compressed(compressed_indices, plain_indices, values, size, layout, options, "sparse_compressed_tensor")


# -- parts -------------------------------------------------------------------------------------------------------------


def line_of_entries(starts: np.ndarray) -> np.ndarray:
    counts = np.diff(starts)
    return repeated(np.arange(counts.size), counts)


def _part(self: Tensor, name: str, which: str) -> Tensor:
    if not isinstance(self, SparseCsr) or name not in _LINES[self.layout]:
        words = "row" if name in _ROWS else "column"
        raise RuntimeError(f"{name} expected sparse {words} compressed tensor layout but got {layout_word(self)}")
    return getattr(self, which)._bare_alias()


@composite(function=False)
def crow_indices(self: Tensor) -> Tensor:
    """The start of each row of a CSR matrix."""
    return _part(self, "crow_indices", "_compressed_part")


@composite(function=False)
def col_indices(self: Tensor) -> Tensor:
    """The column of each entry of a CSR matrix."""
    return _part(self, "col_indices", "_plain_part")


@composite(function=False)
def ccol_indices(self: Tensor) -> Tensor:
    """The start of each column of a CSC matrix."""
    return _part(self, "ccol_indices", "_compressed_part")


@composite(function=False)
def row_indices(self: Tensor) -> Tensor:
    """The row of each entry of a CSC matrix."""
    return _part(self, "row_indices", "_plain_part")


# -- conversions -------------------------------------------------------------------------------------------------------


def csr_to_coo(input: SparseCsr) -> SparseCoo:
    if input._blocksize is not None:
        return new_coo(listed_places(input)[0], input._values_part.reshape(-1), input.shape, False)
    lines = line_of_entries(on_host(input._compressed_part))
    places = on_host(input._plain_part)
    if input.layout is sparse_csr:
        return new_coo(index_tensor(np.stack([lines, places])), input._values_part, input.shape, _sorted(input))
    order = np.lexsort((lines, places))
    indices = index_tensor(np.stack([places[order], lines[order]]))
    return new_coo(indices, input._values_part.index_select(0, index_tensor(order)), input.shape, True)


def _sorted(input: SparseCsr) -> bool:
    """Return whether the entries of every line are in order, each place once."""
    places, starts = on_host(input._plain_part), on_host(input._compressed_part)
    rising = np.concatenate([np.ones(min(places.size, 1), bool), places[1:] > places[:-1]])
    rising[starts[:-1][starts[:-1] < places.size]] = True
    return bool(rising.all())


_csr_to_coo = sparse_primitive(
    csr_to_coo, {"input": lambda g, input: _back(g, input)}, Quirks(label="ToSparseBackward0")
)


def _back(g: Any, input: Any) -> Tensor:
    """A gradient in the layout of `input`; of blocks, in the same blocks."""
    if getattr(input, "_blocksize", None) is not None:
        return g.sparse_mask(input.detach())
    return g.to_sparse(layout=input.layout) if isinstance(input, SparseTensor) else g.to_dense()


def _coo_to_compressed(input: Any, kind: layout, blocksize: Any = None) -> SparseCsr:
    t = within_bounds(coalesce(input))
    rows, columns = on_host(t._index_part)
    if kind in _BLOCKS:
        return _in_compressed_blocks(t, rows, columns, kind, blocksize)
    values = t._values_part
    if kind is sparse_csc:
        order = np.lexsort((rows, columns))
        rows, columns, values = columns[order], rows[order], values.index_select(0, index_tensor(order))
    lines = t.shape[0] if kind is sparse_csr else t.shape[1]
    starts = np.searchsorted(rows, np.arange(lines + 1))
    return new_csr(index_tensor(starts), index_tensor(columns), values.clone(), t.shape, kind)


def _in_compressed_blocks(t: Any, rows: Any, columns: Any, kind: layout, blocksize: Any) -> SparseCsr:
    """The blocks that hold an entry, in order, with zeros where there is none."""
    height, width = blocksize
    counts = _in_blocks(t.shape, blocksize, "to_sparse")
    lines, across = (rows // height, columns // width) if kind is sparse_bsr else (columns // width, rows // height)
    line_count, across_count = counts if kind is sparse_bsr else (counts[1], counts[0])
    keys = lines * across_count + across
    listed = np.unique(keys)
    places = (np.searchsorted(listed, keys) * height + rows % height) * width + columns % width
    values = t._values_part.new_zeros((listed.size * height * width,))
    values = values.index_put((index_tensor(places),), t._values_part).reshape(listed.size, height, width)
    starts = np.searchsorted(listed // across_count if across_count else listed, np.arange(line_count + 1))
    return new_csr(index_tensor(starts), index_tensor(listed % max(across_count, 1)), values, t.shape, kind)


_to_compressed = sparse_primitive(
    _coo_to_compressed,
    {"input": lambda g, input: g.to_sparse_coo() if g.layout is not strided else g},
    Quirks(label="ToSparseBackward0"),
    name="coo_to_compressed",
)


def as_coo(t: Any) -> Any:
    return _csr_to_coo(t) if isinstance(t, SparseCsr) else t


@composite(function=False)
def to_sparse(
    self: Tensor, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None
) -> Tensor:
    """The entries that are not zero, in a sparse layout (COO unless told otherwise)."""
    if isinstance(sparse_dim, type(sparse_coo)):
        sparse_dim, layout = None, sparse_dim
    kind = sparse_coo if layout is None else layout
    if kind is self.layout:
        if isinstance(self, SparseCoo) and sparse_dim not in (None, self._index_part.shape[0]):
            raise RuntimeError(
                "to_sparse: conversion from Sparse to Sparse with sparse_dim argument !=self.sparse_dim() is not supported"
            )
        if kind in _BLOCKS:
            _checked_block(self, kind, blocksize)
        return self
    if dense_dim:
        raise NotImplementedError("to_sparse(): dense dimensions are not implemented")
    if kind is not sparse_coo and kind not in _LINES:
        raise NotImplementedError(f"to_sparse(): layout {kind!r} is not implemented")
    block = _checked_block(self, kind, blocksize)
    coo = as_coo(self) if isinstance(self, SparseTensor) else strided_to_coo(self, sparse_dim)
    if kind is sparse_coo:
        return coo
    if len(self.shape) != 2:
        raise (RuntimeError if len(self.shape) < 2 else NotImplementedError)(
            f"to_sparse(): a matrix is needed for layout {kind!r}, got {len(self.shape)} dimensions"
        )
    return _to_compressed(coo, kind, block)


def _checked_block(t: Any, kind: layout, blocksize: Any) -> tuple[int, ...] | None:
    """The size of blocks that a conversion is asked for; None for layouts without them."""
    given = getattr(t, "_blocksize", None)
    source, target = layout_word(t), layout_word(kind)
    if kind not in _BLOCKS:
        if blocksize is not None:
            raise RuntimeError(
                f"dense_to_sparse: conversion from {source} to {target} with blocksize argument given is not supported"
            )
        if given is not None and kind is not sparse_coo:
            name = repr(kind).removeprefix("torch.")
            raise RuntimeError(f"sparse_compressed_to_{name}: expected SparseCsr or SparseCsc layout but got {source}")
        return None
    if blocksize is None:
        if given is not None:
            return given
        raise RuntimeError(
            f"dense_to_sparse: conversion from {source} to {target} without blocksize argument given is not supported"
        )
    block = (blocksize, blocksize) if isinstance(blocksize, int) else tuple(blocksize)
    if given is not None and given != block:
        raise RuntimeError(
            f"sparse_compressed_to_sparse_bsc: conversion from {source} to {target} with blocksize changed from {list(given)}"
            f" to {list(block)} is not supported"
        )
    if len(t.shape) < 2:
        raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got -2)")
    _in_blocks(t.shape, block, f"dense_to_{repr(kind).removeprefix('torch.')}")
    return block


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
