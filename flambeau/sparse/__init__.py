"""`flambeau.sparse`: operators on sparse tensors that differ from their strided namesakes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compat.legacy import SPARSE_TENSOR_TYPES
from ..core.dtype import int64
from ..core.layout import sparse_coo, sparse_csc, sparse_csr
from ..core.sparse import Invariants, new_coo
from ..core.tensor import Tensor
from ..core.uninterrupted import uninterrupted
from ..ops.sparse.coo import coalesce
from ..ops.sparse.index import index_tensor, on_host
from ..ops.sparse.products import reduced_mm, sparse_addmm, sparse_mm
from ..ops.sparse.products import sampled_addmm as _sampled_addmm
from ..ops.sparse.reductions import sparse_softmax, sum_dims
from .semi_structured import (
    SparseSemiStructuredTensor,
    SparseSemiStructuredTensorCUSPARSELT,
    SparseSemiStructuredTensorCUTLASS,
    to_sparse_semi_structured,
)

__all__ = [
    "SparseSemiStructuredTensor", "SparseSemiStructuredTensorCUSPARSELT", "SparseSemiStructuredTensorCUTLASS", "addmm",
    "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum",
    "to_sparse_semi_structured",
]  # fmt: skip

globals().update(SPARSE_TENSOR_TYPES)  # FloatTensor and its kin: older constructors


def mm(mat1: Tensor, mat2: Tensor, reduce: str | None = None) -> Tensor:
    """The product of two matrices, of which one or both are sparse. The gradient of a sparse matrix is sparse.

    >>> a = sparse_coo_tensor([[0, 1], [1, 0]], [1., 2.], (2, 2))
    >>> mm(a, ones(2, 2))
    tensor([[1., 1.],
            [2., 2.]])
    """
    if reduce is not None:
        return reduced_mm(mat1, mat2, reduce)
    return sparse_mm(mat1, mat2)


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """Return beta * mat + alpha * mat1 @ mat2 for a sparse mat1, whose gradient is sparse."""
    return sparse_addmm(mat, mat1, mat2, beta, alpha)


def sampled_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0, out: Tensor | None = None
) -> Tensor:
    """Return beta * input + alpha * (mat1 @ mat2), computed only at the entries of the compressed matrix `input`."""
    result = _sampled_addmm(input, mat1, mat2, beta, alpha)
    if out is None:
        return result
    out._adopt(result)
    return out


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """Return the sum of a sparse tensor, overall or over some dimensions; its gradient is sparse."""
    if dim is None:
        return coalesce(input).values().sum(dtype=dtype)
    return sum_dims(input, dim, dtype)


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Return softmax over the stored entries: the others count as minus infinity."""
    return sparse_softmax(input, dim, dtype, False)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Compute the logarithm of softmax."""
    return sparse_softmax(input, dim, dtype, True)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: tuple[int, int], layout: Any = None) -> Tensor:
    """Return a sparse matrix with the rows of `diagonals` on the diagonals that `offsets` names."""
    rows = diagonals.reshape(1, -1) if diagonals.dim() < 2 else diagonals
    shifts = on_host(offsets.reshape(-1))
    if len(shape) != 2:
        raise RuntimeError("Output shape must be 2d")
    if layout not in (None, sparse_coo, sparse_csr, sparse_csc):
        raise RuntimeError(f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {layout!r}")
    if offsets.dim() > 1:
        raise RuntimeError("Offsets must be scalar or vector")
    if rows.dim() != 2:
        raise RuntimeError("Diagonals must be vector or matrix")
    if rows.shape[0] != shifts.size:
        raise RuntimeError(
            f"Number of diagonals ({rows.shape[0]}) does not match the number of offsets ({shifts.size})"
        )
    if np.unique(shifts).size != shifts.size:
        raise RuntimeError("Offset tensor contains duplicate values")
    if offsets.dtype is not int64:
        raise RuntimeError(f"Offset Tensor must have dtype Long but got {offsets.dtype.scalar_type}")
    which, column = np.divmod(np.arange(rows.shape[0] * rows.shape[1]), max(rows.shape[1], 1))
    row = column - shifts[which]
    inside = (row >= 0) & (row < shape[0]) & (column < shape[1])
    values = rows.reshape(-1).index_select(0, index_tensor(np.flatnonzero(inside)))
    t = new_coo(index_tensor(np.stack([row[inside], column[inside]])), values, tuple(shape))
    return t if layout is None or layout is sparse_coo else t.to_sparse(layout=layout)


class check_sparse_tensor_invariants:
    """Switch, context manager and decorator: check sparse tensors when they are made."""

    def __init__(self, enable: bool = True):
        self.wanted = enable
        self.before: list[bool] = []

    @staticmethod
    def is_enabled() -> bool:
        return Invariants.checked

    @staticmethod
    def enable() -> None:
        Invariants.checked = True

    @staticmethod
    def disable() -> None:
        Invariants.checked = False

    def __enter__(self) -> None:
        self.before.append(Invariants.checked)
        Invariants.checked = self.wanted

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        Invariants.checked = self.before[-1]
        del self.before[-1]

    def __call__(self, function: Any) -> Any:
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.wanted):
                return function(*args, **kwargs)

        return checked
