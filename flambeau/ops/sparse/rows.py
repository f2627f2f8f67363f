"""Conversion of sorted row numbers to row starts, and back: `torch._convert_indices_from_coo_to_csr` and its inverse."""

from __future__ import annotations

from ...core import dtype as dt
from ...core.tensor import Tensor
from ..creation.ranges import arange
from ..index.unique import searchsorted
from ..machinery.declare import composite
from ..reduce.differences import diff
from ..shape.joining import stack
from ..shape.rearrange import repeat_interleave


@composite(name="_convert_indices_from_coo_to_csr", method=False)
def rows_begin(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Return where the first entry of each of `size` rows, and the end, is among the sorted row numbers."""
    if len(input.shape) != 1:
        raise RuntimeError(f"Input is supposed to be a vector, but got {len(input.shape)} dimensional tensor.")
    wanted = arange(size + 1, dtype=input.dtype, device=input.device)
    return searchsorted(input.contiguous(), wanted, out_int32=out_int32)


@composite(name="_convert_indices_from_csr_to_coo", method=False)
def rows_of(crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False) -> Tensor:
    """The row and the column of each entry, from the starts of rows; with `transpose`, the column first."""
    numbers = arange(crow_indices.shape[-1] - 1, device=crow_indices.device)
    rows = repeat_interleave(numbers, diff(crow_indices))
    pair = (col_indices, rows) if transpose else (rows, col_indices)
    kind = dt.int32 if out_int32 else dt.int64
    return stack([t.to(kind) for t in pair])
