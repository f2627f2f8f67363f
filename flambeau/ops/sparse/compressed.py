"""Compressed sparse tensors (CSR, CSC and, of blocks, BSR, BSC; in batches, with dense dimensions): making them, checking and reading
their parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import default_device
from ...core.layout import layout, sparse_bsc, sparse_bsr, sparse_csc, sparse_csr
from ...core.promotion import get_default_dtype
from ...core.size import Size, make_size
from ...core.sparse import Invariants, SparseCsr, new_csr
from ...core.tensor import Tensor, empty
from ..creation.construct import from_data
from ..creation.filled import fill_raw, finish
from ..machinery.arguments import as_ints, read_options
from ..machinery.aten_form import aten_only
from ..machinery.declare import composite
from .coo import layout_word, values_in_place_of
from .index import compressed_entries, on_host

_ROWS, _COLUMNS = ("crow_indices", "col_indices"), ("ccol_indices", "row_indices")
LINES = {sparse_csr: _ROWS, sparse_csc: _COLUMNS, sparse_bsr: _ROWS, sparse_bsc: _COLUMNS}
BLOCKS = (sparse_bsr, sparse_bsc)


def in_lines(kind: layout, rows: Any, columns: Any) -> tuple[Any, Any]:
    """Return (rows, columns), or (columns, rows) for layouts that compress columns: first what belongs to the lines, then what is across."""
    return (rows, columns) if LINES[kind] is _ROWS else (columns, rows)


# -- checks ------------------------------------------------------------------------------------------------------------


def _need(holds: Any, message: str) -> None:
    if not holds:
        raise RuntimeError(message)


def _ranks(compressed: Tensor, plain: Tensor, values: Tensor, kind: layout) -> tuple[int, int, int]:
    """Return the numbers of batch, block and dense dimensions."""
    first, second = LINES[kind]
    rank = len(compressed.shape)
    _need(rank, f"{first} must have dimensionality >= 1 but got 0")
    _need(
        rank == len(plain.shape),
        f"{first} and {second} dimensionalities must be equal but got {rank} and {len(plain.shape)}, respectively",
    )
    block = 2 if kind in BLOCKS else 0
    _need(
        len(values.shape) > rank - 1 + block,
        f"values must have dimensionality > sum of batch and block dimensionalities (={rank - 1} + {block}) but got"
        f" {len(values.shape)}",
    )
    return rank - 1, block, len(values.shape) - rank - block


def _check_sizes(compressed: Tensor, plain: Tensor, values: Tensor, shape: Any, kind: layout) -> tuple[int, int]:
    """Return the numbers of lines and of places in a line; raise unless the sizes of the parts fit together."""
    first, second = LINES[kind]
    for name, part in ((first, compressed), (second, plain)):
        _need(
            not part.shape or part._contig or part._strides[-1] == 1 or part.shape[-1] < 2,
            f"expected {name} to be a contiguous tensor per batch",
        )
    batch, block, dense = _ranks(compressed, plain, values, kind)
    _need(
        len(shape) == batch + 2 + dense,
        f"tensor dimensionality must be sum of batch, base, and dense dimensionalities (={batch} + 2 + {dense}) but got"
        f" {len(shape)}",
    )
    batches = [list(sizes[:batch]) for sizes in (compressed.shape, plain.shape, values.shape, shape)]
    _need(
        all(sizes == batches[-1] for sizes in batches),
        f"all batch dimensions of {first} (={batches[0]}), {second} (={batches[1]}), and values (={batches[2]}) must be equal"
        f" to tensor batch dimensions (={batches[3]})",
    )
    blocksize = tuple(values.shape[batch + 1 : batch + 3]) if block else (1, 1)
    for i, n in enumerate(blocksize):
        _need(
            shape[batch + i] % n == 0 if n else not shape[batch + i],
            f"tensor shape[{batch + i}] (={shape[batch + i]}) must be divisible with blocksize[{i}] (={n}) as defined by values"
            " shape",
        )
    lines, across = in_lines(kind, *(shape[batch + i] // max(n, 1) for i, n in enumerate(blocksize)))
    word = in_lines(kind, "row", "column")[0] + (" block" if block else "")
    _need(
        compressed.shape[-1] == lines + 1,
        f"{first}.shape[-1] must be equal to the number of {word}s + 1 (={lines + 1}), but got {compressed.shape[-1]}",
    )
    nnz = values.shape[batch]
    _need(
        plain.shape[-1] == nnz,
        f"{second}.shape[-1] must be equal to nnz (={nnz}) as defined by values.shape[{batch}], but got {plain.shape[-1]}",
    )
    _need(
        tuple(values.shape[batch + 1 + block :]) == tuple(shape[batch + 2 :]),
        f"values.shape[{batch + 1 + block}:] must be equal to tensor.shape[{batch + 2}:] (={list(shape[batch + 2 :])}), but got"
        f" {list(values.shape[batch + 1 + block :])}",
    )
    return lines, across


def _check_index(names: Any, compressed: Tensor, plain: Tensor, across: int, nnz: int, ordered: bool) -> None:
    """Raise unless the entries of every line are inside it; with `ordered` also unless they are sorted, each place once."""
    first, second = names
    lines_word, across_word = ("nrows", "ncols") if names is _ROWS else ("ncols", "nrows")
    starts, places = on_host(compressed), on_host(plain)
    steps = np.diff(starts)
    for holds, what in (
        ((starts[..., 0] == 0).all(), f"{first}[..., 0] == 0"),
        ((starts[..., -1] == nnz).all(), f"{first}[..., -1] == nnz"),
        (
            ((steps >= 0) & ((steps <= across) | (not ordered))).all(),
            f"0 <= {first}[..., 1:] - {first}[..., :-1] <= {across_word}",
        ),
        (((places >= 0) & (places < across)).all(), f"0 <= {second} < {across_word}"),
    ):
        _need(holds, f"`{what}` is not satisfied.")
    _need(
        not ordered or are_sorted(starts, places, across),
        f"`{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., {lines_word} are sorted and distinct along the"
        " last dimension values` is not satisfied.",
    )


def are_sorted(starts: Any, places: Any, across: int) -> bool:
    """Return whether the entries of every line are in order, each place once."""
    line, place = compressed_entries(starts, places)
    keys = line * across + place
    return bool((keys[1:] > keys[:-1]).all())


def check_compressed(
    compressed: Tensor, plain: Tensor, values: Tensor, shape: Any, kind: layout, ordered: bool = False
) -> None:
    """Raise unless the parts describe a tensor of this shape: native kernels rely on it."""
    _, across = _check_sizes(compressed, plain, values, shape, kind)
    first, second = LINES[kind]
    a, b = compressed.dtype, plain.dtype
    _need(
        a is b,
        f"{first} and {second} must have the same dtype, bot got {a.scalar_type} and {b.scalar_type}, respectively",
    )
    _need(a in (dt.int64, dt.int32), f"{first} and {second} dtype must be Int or Long, but got {a.scalar_type}")
    if compressed.device.type != "meta":
        _check_index(LINES[kind], compressed, plain, across, plain.shape[-1], ordered)


@composite(name="_validate_sparse_compressed_tensor_args", method=False)
def validate_arguments(
    compressed_indices: Tensor, plain_indices: Tensor, values: Tensor, size: Any, layout: Any, check_pinning: Any = None
) -> None:
    """Raise unless the parts describe a tensor of this size and layout."""
    check_compressed(compressed_indices, plain_indices, values, tuple(size), layout, True)


@composite(name="_validate_compressed_sparse_indices", method=False)
def validate_indices(is_crow: bool, compressed_idx: Tensor, plain_idx: Tensor, cdim: int, dim: int, nnz: int) -> None:
    """Raise unless the indices describe matrices of `cdim` lines with `dim` places each and `nnz` entries."""
    _check_index(_ROWS if is_crow else _COLUMNS, compressed_idx, plain_idx, dim, nnz, True)


# -- construction ------------------------------------------------------------------------------------------------------


def _estimated_size(compressed: Tensor, plain: Tensor, values: Tensor, kind: layout) -> tuple[int, ...]:
    batch, block, _ = _ranks(compressed, plain, values, kind)
    places = on_host(plain)
    counts = in_lines(kind, compressed.shape[-1] - 1, int(places.max()) + 1 if places.size else 0)
    blocksize = values.shape[batch + 1 : batch + 1 + block] or (1, 1)
    sizes = (n * width for n, width in zip(counts, blocksize))
    return (*compressed.shape[:-1], *sizes, *values.shape[batch + 1 + block :])


def _compressed(
    compressed: Any, plain: Any, values: Any, size: Any, kind: layout, options: dict[str, Any], name: str
) -> Tensor:
    ordered = options.pop("check_invariants", None)
    chosen = read_options(name, {k: v for k, v in options.items() if k != "layout"})
    where = chosen.device
    starts, places = (
        t if isinstance(t, Tensor) else from_data(t, dt.int64, default_device()) for t in (compressed, plain)
    )
    starts, places = (t if where is None else t.to(where) for t in (starts, places))
    held = values if isinstance(values, Tensor) else from_data(values, chosen.dtype, starts.device)
    held = held.to(device=where or held.device, dtype=chosen.dtype or held.dtype)
    if size is None:
        size = _estimated_size(starts, places, held, kind)
    shape = make_size(as_ints(size, name, "size", 4))
    check_compressed(starts, places, held, shape, kind, Invariants.checked if ordered is None else ordered)
    like = new_csr(starts._bare_alias(), places._bare_alias(), held.detach(), shape, kind)
    return finish(values_in_place_of(held, like), chosen.requires_grad)


@composite(kind="creation", method=False)
def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any) -> Tensor:
    """A sparse matrix in compressed rows: the entries of row i are those from crow_indices[i] to crow_indices[i + 1]. All parts may have
    leading batch dimensions, values trailing dense dimensions."""
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
    """A sparse tensor in one of the compressed layouts: sparse_csr, sparse_csc, sparse_bsr or sparse_bsc."""
    if layout not in LINES:
        word = "none" if layout is None else layout_word(layout)
        raise RuntimeError(f"sparse_compressed_tensor expected sparse compressed tensor layout but got {word}")
    return _compressed(compressed_indices, plain_indices, values, size, layout, options, "sparse_compressed_tensor")


for _make in (sparse_csr_tensor, sparse_csc_tensor, sparse_bsr_tensor, sparse_bsc_tensor, sparse_compressed_tensor):
    aten_only(f"_{_make.op.name}_unsafe")(_make)  # no less checked than others: kernels rely on it


def with_zero_index(
    shape: Size, nnz: int, block: tuple[int, ...], dense: int, kind: layout, d: Any, where: Any, index: Any = dt.int64
) -> SparseCsr:
    """Return a tensor with `nnz` entries in each matrix, all of whose indices are zero: without entries, a tensor of zeros."""
    at = len(shape) - dense - 2
    lines, _ = in_lines(kind, *(shape[at + i] // (block[i] if block else 1) for i in range(2)))
    batch = shape[:at]
    starts, places = (fill_raw(empty(make_size((*batch, n)), index, where), 0) for n in (lines + 1, nnz))
    return new_csr(starts, places, empty(make_size((*batch, nnz, *block, *shape[at + 2 :])), d, where), shape, kind)


@aten_only("_sparse_compressed_tensor_with_dims")
def with_dims(
    nnz: int, dense_dim: int, size: Any, blocksize: Any, index_dtype: Any, *, layout: Any = None, **options: Any
) -> Tensor:
    """A compressed tensor with room for `nnz` entries in each matrix, none of them in a line yet."""
    chosen = read_options("_sparse_compressed_tensor_with_dims", options)
    shape, block = make_size(tuple(size)), tuple(blocksize)
    where = chosen.device or default_device()
    return with_zero_index(
        shape, nnz, block, dense_dim, layout, chosen.dtype or get_default_dtype(), where, index_dtype
    )


# -- parts -------------------------------------------------------------------------------------------------------------


def _part(self: Tensor, name: str, which: str) -> Tensor:
    if not isinstance(self, SparseCsr) or name not in LINES[self.layout]:
        words = "row" if name in _ROWS else "column"
        raise RuntimeError(f"{name} expected sparse {words} compressed tensor layout but got {layout_word(self)}")
    return getattr(self, which)._bare_alias()


@composite(function=False)
def crow_indices(self: Tensor) -> Tensor:
    """The start of each row of a CSR or BSR tensor."""
    return _part(self, "crow_indices", "_compressed_part")


@composite(function=False)
def col_indices(self: Tensor) -> Tensor:
    """The column of each entry of a CSR or BSR tensor."""
    return _part(self, "col_indices", "_plain_part")


@composite(function=False)
def ccol_indices(self: Tensor) -> Tensor:
    """The start of each column of a CSC or BSC tensor."""
    return _part(self, "ccol_indices", "_compressed_part")


@composite(function=False)
def row_indices(self: Tensor) -> Tensor:
    """The row of each entry of a CSC or BSC tensor."""
    return _part(self, "row_indices", "_plain_part")
