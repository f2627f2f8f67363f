"""`segment_reduce`, and other functions of PyTorch's that few call and that are made of other operators."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ..core.dtype import dtype as Dtype
from ..core.layout import layout as Layout
from ..core.layout import sparse_csc, sparse_csr
from ..core.promotion import get_default_dtype
from ..core.tensor import Tensor, from_array
from .creation import full
from .declare import composite
from .joining import cat
from .norms import matrix_norm, vector_norm
from .ranges import arange
from .sparse_csr import sparse_csc_tensor, sparse_csr_tensor
from .unique import searchsorted

_START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -math.inf, "amin": math.inf}
_SCATTER = {"sum": "sum", "mean": "sum", "prod": "prod", "amax": "amax", "amin": "amin"}


@composite(method=False)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Reduce consecutive segments of `axis` to one element each; segments are given by their lengths, or by where they start."""
    kind = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if kind not in _START:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    ends = _segment_ends(lengths, offsets)  # (..., segments)
    axis = axis % data.dim() if axis < 0 else axis
    if axis != ends.dim() - 1:
        raise RuntimeError(
            f"segment_reduce(): expected axis to be {ends.dim() - 1}, the last dimension of lengths, got {axis}"
        )
    if not unsafe and bool((ends[..., -1] != data.shape[axis]).any()):
        raise RuntimeError(
            "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe."
        )
    return _reduced(data, kind, ends, axis, initial)


def _segment_ends(lengths: Tensor | None, offsets: Tensor | None) -> Tensor:
    if lengths is None:
        assert offsets is not None
        return offsets[..., 1:]
    if bool((lengths < 0).any()):
        raise RuntimeError("segment_reduce(): lengths contains negative value!")
    return lengths.cumsum(-1)


def _reduced(data: Tensor, kind: str, ends: Tensor, axis: int, initial: float | None) -> Tensor:
    places = arange(data.shape[axis]).expand(*ends.shape[:-1], data.shape[axis]).contiguous()
    index = searchsorted(ends.contiguous(), places, right=True)  # which segment each element belongs to
    trailing = data.shape[axis + 1 :]
    wide = index.reshape(*index.shape, *(1 for _ in trailing)).expand(data.shape)
    start = _START[kind] if initial is None else initial
    out = full((*data.shape[:axis], ends.shape[-1], *trailing), start, dtype=data.dtype)
    out = out.scatter_reduce(axis, wide, data, _SCATTER[kind], include_self=True)
    if kind != "mean":
        return out
    counts = ends - cat([ends[..., :1] * 0, ends[..., :-1]], dim=-1)
    return out / counts.to(data.dtype).reshape(*counts.shape, *(1 for _ in trailing))


@composite(method=False)
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm over all dimensions but one, which keeps its place; over all of them for dim=-1."""
    if dim == -1:
        return vector_norm(v, pow)
    others = tuple(i for i in range(v.dim()) if i != dim % v.dim())
    return vector_norm(v, pow, others, keepdim=True)


@composite(method=False)
def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares over `dim`. Deprecated: use `linalg.vector_norm`."""
    warnings.warn(
        "at::frobenius_norm is deprecated and it is just left for JIT compatibility. It will be removed in a future PyTorch"
        " release. Please use `linalg.vector_norm(A, 2., dim, keepdim)` instead",
        UserWarning,
        stacklevel=3,
    )
    return vector_norm(input, 2, dim if isinstance(dim, int) or len(dim) else None, keepdim=keepdim)


@composite(method=False)
def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values. Deprecated: use `linalg.matrix_norm`."""
    warnings.warn(
        "at::nuclear_norm is deprecated and it is just left for JIT compatibility. It will be removed in a future PyTorch"
        " release. Please use `linalg.matrix_norm(A, 'nuc', dim, keepdim)` instead",
        UserWarning,
        stacklevel=3,
    )
    return matrix_norm(input, "nuc", dim, keepdim)


def from_file(
    filename: str,
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: Dtype | None = None,
    layout: Layout | None = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Tensor:
    """A tensor of `size` elements over a file's memory; with shared=True, changes go to the file, which is made if need be."""
    kind = dtype or get_default_dtype()
    count = size or 0
    nbytes = count * kind.itemsize
    if shared:
        with open(filename, "ab") as file:
            if file.tell() < nbytes:
                file.truncate(nbytes)
    memory = np.memmap(filename, dtype=np.uint8, mode="r+" if shared else "c", shape=(nbytes,))
    return from_array(np.asarray(memory)).view(kind)


def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    layout: Layout | None = None,
    **options: Any,
) -> Tensor:
    """A compressed sparse tensor of the layout given: sparse_csr or sparse_csc."""
    makers = {sparse_csr: sparse_csr_tensor, sparse_csc: sparse_csc_tensor}
    if layout not in makers:
        raise RuntimeError(
            f"sparse_compressed_tensor_unsafe: expected layout to be torch.sparse_csr or torch.sparse_csc, but got {layout}"
        )
    return makers[layout](compressed_indices, plain_indices, values, size, **options)


def detach_(input: Tensor) -> Tensor:
    """Take the tensor out of the graph, in place."""
    return input.detach_()


def is_distributed(input: Tensor) -> bool:
    """False: tensors live in one process."""
    return input.is_distributed()


def _copied_part(name: str) -> Any:
    def function(input: Tensor) -> Tensor:
        return getattr(input, name)().clone()

    function.__name__ = function.__qualname__ = f"{name}_copy"
    function.__doc__ = f"A copy of `input.{name}()`."
    return function


PLAIN_FUNCTIONS = {
    function.__name__: function
    for function in (
        from_file,
        sparse_compressed_tensor,
        detach_,
        is_distributed,
        *map(_copied_part, ("crow_indices", "col_indices", "ccol_indices", "row_indices")),
    )
}
