"""Random sparse tensors, as the base class of PyTorch's tests makes them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing import make_tensor

_COMPRESSED = {
    torch.sparse_csr: ("row", 0),
    torch.sparse_csc: ("column", 0),
    torch.sparse_bsr: ("row", 2),
    torch.sparse_bsc: ("column", 2),
}


def _patterns() -> list[tuple[tuple[int, ...], int, list[int]]]:
    """(sizes of a matrix, seed of its positions, sizes of dense dimensions)."""
    return [((4, 6), 1, []), ((6, 4), 2, [2]), ((2, 2), 3, [2, 3])]


class SparseCases:
    """Part of the base class of tests."""

    def genSparseTensor(  # noqa: N802
        self, size: Any, sparse_dim: int, nnz: int, is_uncoalesced: bool, device: Any, dtype: Any
    ) -> tuple[Any, Any, Any]:
        """A COO tensor, its indices and values. One that is not coalesced has its first position twice."""
        if not all(size[:sparse_dim]) and nnz:
            raise ValueError(f"a tensor of size {size} has no place for {nnz} elements")
        limits = torch.tensor(size[:sparse_dim], dtype=torch.float64, device=device).reshape(sparse_dim, 1)
        indices = (torch.rand(sparse_dim, nnz, device=device, dtype=torch.float64) * limits).to(torch.long)
        values = make_tensor([nnz, *size[sparse_dim:]], device=device, dtype=dtype, low=-1, high=1)
        if is_uncoalesced:
            indices = torch.cat([indices, indices[:, : min(1, nnz)]], 1)
            more = torch.randn_like(values[:1]) if dtype.is_floating_point or dtype.is_complex else values[:1]
            values = torch.cat([values, more], 0)
        made = torch.sparse_coo_tensor(indices, values, torch.Size(size), dtype=dtype, device=device)
        made = made._coalesced_(False) if is_uncoalesced else made.coalesce()
        return made, made._indices().clone(), made._values().clone()

    def genSparseCompressedTensor(  # noqa: N802
        self,
        size: Any,
        nnz: int,
        *,
        layout: Any,
        device: Any,
        dtype: Any,
        index_dtype: Any,
        blocksize: tuple[int, ...] = (),
        dense_dims: int = 0,
    ) -> Any:
        side, blocks = _COMPRESSED[layout]
        block = tuple(blocksize) if blocks else ()
        batch, (rows, columns), dense = self._parts(size, dense_dims)
        if block:  # nnz counts elements
            rows, columns, nnz = rows // block[0], columns // block[1], nnz // math.prod(block)
        lines, others = (rows, columns) if side == "row" else (columns, rows)
        count = math.prod(batch)
        pairs = [self._positions(lines, others, nnz, index_dtype, device) for _ in range(count)]
        shape = (*batch, nnz, *block, *dense)
        values = make_tensor(shape, dtype=dtype, device=device)
        starts = (
            torch.stack([p[0] for p in pairs]).reshape(*batch, lines + 1) if pairs else torch.zeros(*batch, lines + 1)
        )
        plain = torch.stack([p[1] for p in pairs]).reshape(*batch, nnz) if pairs else torch.zeros(*batch, nnz)
        starts, plain = starts.to(index_dtype), plain.to(index_dtype)
        return torch.sparse_compressed_tensor(
            starts, plain, values, size=size, dtype=dtype, layout=layout, device=device
        )

    @staticmethod
    def _parts(size: Any, dense_dims: int) -> tuple[tuple, tuple, tuple]:
        end = len(size) - dense_dims
        return tuple(size[: end - 2]), tuple(size[end - 2 : end]), tuple(size[end:])

    @staticmethod
    def _positions(lines: int, others: int, nnz: int, index_dtype: Any, device: Any) -> tuple[Any, Any]:
        """Compressed and plain indices of nnz random places."""
        places = torch.randperm(lines * others)[:nnz].sort().values
        per_line = torch.bincount(places // max(others, 1), minlength=lines)[:lines]
        starts = torch.cat([torch.zeros(1, dtype=torch.long), per_line.cumsum(0)])
        return starts.to(index_dtype).to(device), (places % max(others, 1)).to(index_dtype).to(device)

    def genSparseCSRTensor(self, size: Any, nnz: int, **options: Any) -> Any:  # noqa: N802
        return self.genSparseCompressedTensor(size, nnz, layout=torch.sparse_csr, **options)

    def genSparseCSCTensor(self, size: Any, nnz: int, **options: Any) -> Any:  # noqa: N802
        return self.genSparseCompressedTensor(size, nnz, layout=torch.sparse_csc, **options)

    def genSparseBSRTensor(self, size: Any, blocksize: Any, nnz: int, **options: Any) -> Any:  # noqa: N802
        return self.genSparseCompressedTensor(size, nnz, layout=torch.sparse_bsr, blocksize=blocksize, **options)

    def genSparseBSCTensor(self, size: Any, blocksize: Any, nnz: int, **options: Any) -> Any:  # noqa: N802
        return self.genSparseCompressedTensor(size, nnz, layout=torch.sparse_bsc, blocksize=blocksize, **options)

    def safeToDense(self, t: Any) -> Any:  # noqa: N802
        return t.coalesce().to_dense() if t.layout is torch.sparse_coo else t.to_dense()

    def generate_simple_inputs(
        self,
        layout: Any,
        device: Any = None,
        dtype: Any = None,
        index_dtype: Any = None,
        pin_memory: Any = None,
        members_pin_memory: Any = None,
        enable_batch: bool = True,
        enable_hybrid: bool = True,
        enable_zero_sized: bool = True,
        enable_non_contiguous_indices: bool = True,
        enable_non_contiguous_values: bool = True,
        enable_batch_variable_nse: bool = False,
        output_tensor: bool = True,
        patterns: Any = None,
    ) -> Iterator[Any]:
        """Small tensors of a layout: plain, in batches, with dense dimensions, without elements. With output_tensor=False the
        arguments that make them."""
        batches: list[tuple] = [()]
        if enable_batch and layout is not torch.sparse_coo:
            batches += [(2,), (2, 3)]
        for (matrix, seed, dense), batch in itertools.product(_patterns(), batches):
            if dense and not enable_hybrid:
                continue
            t = self._simple(layout, (*batch, *matrix, *dense), len(batch), len(dense), seed, dtype or torch.float64)
            yield self._given(t, device, index_dtype, output_tensor)
        if enable_zero_sized:
            for matrix in ((0, 0), (0, 2), (2, 0)):
                t = self._simple(layout, matrix, 0, 0, 0, dtype or torch.float64)
                yield self._given(t, device, index_dtype, output_tensor)

    @staticmethod
    def _simple(layout: Any, size: tuple, batch: int, dense: int, seed: int, dtype: Any) -> Any:
        """A strided tensor with zeros at the same number of places of each matrix, in the layout."""
        matrix = size[batch : len(size) - dense]
        places = torch.zeros(math.prod(matrix), dtype=torch.bool)
        places[: seed * 2] = True
        order = torch.randperm(len(places), generator=torch.Generator().manual_seed(seed)) if len(places) else None
        mask = (places if order is None else places[order]).reshape(matrix)
        mask[-1:, -1:] = True  # so that the size can be found from the indices
        mask = mask.reshape(*matrix, *[1] * dense)
        full = torch.arange(1, 1 + math.prod(size)).reshape(size)
        full = (full % 7 + 1).to(dtype) * mask.to(dtype)
        if layout is torch.strided:
            return full
        if layout is torch.sparse_coo:
            return full.to_sparse(len(size) - dense)
        block = (2, 2) if _COMPRESSED[layout][1] else None
        return full.to_sparse(layout=layout, blocksize=block, dense_dim=dense)

    @staticmethod
    def _given(t: Any, device: Any, index_dtype: Any, whole: bool) -> Any:
        if t.layout is torch.strided:
            return t.to(device) if whole else ((t.to(device),), {})
        if t.layout is torch.sparse_coo:
            parts = [t._indices().to(index_dtype or torch.int64), t._values()]
        else:
            rows = t.layout in (torch.sparse_csr, torch.sparse_bsr)
            starts, plain = (t.crow_indices(), t.col_indices()) if rows else (t.ccol_indices(), t.row_indices())
            parts = [starts.to(index_dtype or torch.int64), plain.to(index_dtype or torch.int64), t.values()]
        options = {"device": device, "dtype": t.dtype, "size": tuple(t.shape)}
        if not whole:
            return tuple(parts), options
        if t.layout is torch.sparse_coo:
            return torch.sparse_coo_tensor(*parts, **options)
        return torch.sparse_compressed_tensor(*parts, layout=t.layout, **options)
