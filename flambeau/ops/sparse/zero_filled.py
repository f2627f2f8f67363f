"""Sparse tensors of zeros, and changes of size: zeros, zeros_like, sparse_resize_."""

from __future__ import annotations

from typing import Any

from ...core.device import default_device
from ...core.layout import sparse_coo, strided
from ...core.promotion import get_default_dtype
from ...core.size import Size, make_size
from ...core.sparse import SparseCoo, SparseCsr, SparseRefusal, SparseTensor, empty_coo, new_csr
from ...core.tensor import Tensor, empty
from ..creation import filled, memory
from ..creation.filled import fill_raw, finish
from ..machinery.arguments import as_shape, read_options, varargs_ints
from ..machinery.declare import composite
from ..machinery.inplace import check_history_writable
from ..machinery.sparse_dispatch import sparse_form
from ..shape.joining import cat
from .compressed import BLOCKS, LINES, in_lines, with_zero_index
from .coo import layout_word, need_coo, read_shape


def _resized(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> tuple[SparseCoo, Any]:
    """Return the tensor to resize, and its new shape."""
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
    """Enlarge the shape of a sparse tensor, or change it if it has no entries."""
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
    """Change the shape of a sparse tensor and drop all entries."""
    return _cleared(*_resized(self, size, sparse_dim, dense_dim), sparse_dim)


@sparse_form(memory.resize_)
def resize_(self: Any, *sizes: Any, memory_format: Any = None) -> Any:
    """Resize a compressed tensor to another number of lines, and wider ones; the first matrices of a batch are kept."""
    shape = varargs_ints(sizes, "resize_")
    if not isinstance(self, SparseCsr):
        raise SparseRefusal("Could not run 'aten::resize_' with arguments from the 'SparseCPU' backend.")
    check_history_writable(self)
    if len(shape) < 2:
        raise RuntimeError(f"torch.resize_: Only batched sparse CSR matrices are supported, but got size {list(shape)}")
    batch = len(shape) - 2 - self.dense_dim()
    before, block = self.shape[self._sparse_dims - 2 : self._sparse_dims], self._blocksize or (1, 1)
    old_across, across = (in_lines(self.layout, *sizes)[1] for sizes in (before, shape[batch : batch + 2]))
    if across < old_across:
        raise RuntimeError(
            "torch.resize_: Resizing columns of sparse CSR tensors to a smaller value is not supported. The original number of"
            f" columns is {old_across} while the requested new number of columns is {across}."
        )
    counts = in_lines(self.layout, *(n // width for n, width in zip(shape[batch : batch + 2], block)))
    _cut(self, shape, batch, counts[0], min(self._nnz(), counts[0] * counts[1]))
    self._bump("resize_")
    return self


def _cut(t: SparseCsr, shape: Any, batch: int, lines: int, nnz: int) -> None:
    """Keep the first matrices, lines and entries of a compressed tensor; new lines are empty."""
    parts = t._parts()
    for _ in range(t._batch_dims - batch):
        parts = tuple(part.select(0, 0) for part in parts)
    starts, places, values = parts
    for i, n in enumerate(shape[:batch]):
        starts, places, values = (part.narrow(i, 0, n) for part in (starts, places, values))
    starts = starts.narrow(batch, 0, min(lines, starts.shape[batch] - 1))
    more = starts.new_full((*starts.shape[:-1], lines + 1 - starts.shape[-1]), nnz)
    t._compressed_part = cat([starts.clamp(max=nnz), more], -1)
    t._plain_part, t._values_part = (part.narrow(batch, 0, nnz).clone() for part in (places, values))
    t.shape = make_size(shape)


@composite
def resize_as_sparse_(self: Tensor, the_template: Tensor) -> Tensor:
    """Set the shape and the indices of a sparse tensor to those of another; values stay only if nothing changes."""
    if isinstance(self, SparseCoo) and isinstance(the_template, SparseCoo):
        return sparse_resize_(self, the_template.shape, the_template._sparse_dims, the_template.dense_dim())
    t: Any = self
    like: Any = the_template
    for name, given in (("self", t), ("src", like)):
        if not isinstance(given, SparseCsr):
            raise RuntimeError(
                f"resize_as_sparse_compressed_: {name}  expected sparse compressed tensor layout but got {layout_word(given)}"
            )
    if t.layout is not like.layout:
        raise RuntimeError(
            "resize_as_sparse_compressed_tensor_: self and src must have the same layout, but got: self"
            f" ({layout_word(t)}) and source ({layout_word(like)})"
        )
    check_history_writable(t)
    if t.shape == like.shape and all(a.shape == b.shape for a, b in zip(t._parts(), like._parts())):
        return t
    starts, places = (part.to(t._plain_part.dtype, copy=True) for part in like._parts()[:2])
    values = empty(like._values_part.shape, t.dtype, t.device)
    t._take_parts(new_csr(starts, places, values, like.shape, t.layout))
    t.shape = like.shape
    t._bump("resize_as_sparse_")
    return t


@sparse_form(filled.zeros, filled.empty)
def zeros(*size: Any, out: Any = None, **options: Any) -> Tensor:
    shape = as_shape((options.pop("size"),) if not size and "size" in options else size, "zeros")
    kind = options.pop("layout", sparse_coo)  # or out= is a sparse tensor
    chosen = read_options("zeros", options)
    where, d = chosen.device or default_device(), chosen.dtype or get_default_dtype()
    made: Tensor
    if kind is strided:
        made = fill_raw(empty(shape, d, where), 0)
    else:
        made = empty_coo(shape, d, None, where) if kind is sparse_coo else _empty_compressed(shape, d, kind, where)
    return finish(made, chosen.requires_grad)


def _empty_compressed(shape: Size, d: Any, kind: Any, where: Any) -> SparseTensor:
    if kind not in LINES or len(shape) < 2:
        raise RuntimeError(
            f"torch.empty: Only batched sparse compressed (non-block) tensors are supported, but got size {list(shape)}"
        )
    if kind in BLOCKS:
        raise RuntimeError(
            f"zeros_sparse_compressed expected sparse compressed (non-block) tensor layout but got {layout_word(kind)}"
        )
    return with_zero_index(shape, 0, (), 0, kind, d, where)


@sparse_form(filled.empty_like)
def empty_like(input: Any, **options: Any) -> Tensor:
    """A compressed tensor with the same places and new values; other tensors become empty."""
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


@sparse_form(filled.ones_like)
def ones_like(input: Any, **options: Any) -> Tensor:
    """Ones at the places of a compressed tensor."""
    return empty_like(input, **options).fill_(1)


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
        if kind is not input.layout:
            return finish(_empty_compressed(input.shape, d, kind, where), chosen.requires_grad)
        zero = with_zero_index(input.shape, 0, input._blocksize or (), input.dense_dim(), kind, d, where)
        return finish(zero, chosen.requires_grad)
    count = input._sparse_dims if isinstance(input, SparseCoo) else None
    return finish(empty_coo(input.shape, d, count, where), chosen.requires_grad)
