"""What all matrix operators share: checks of shapes and dtypes, and results laid out by columns as LAPACK leaves them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.dtype import dtype
from ...core.errors import LinAlgError
from ...core.layout import broadcast_shapes
from ...core.size import make_size
from ...core.tensor import Tensor, copy_of_array, is_contiguous_layout, new_tensor
from ..machinery.arguments import need_tensor
from ..machinery.dtype_rules import type_word, unsupported

SUPPORTED = frozenset({dt.float32, dt.float64, dt.complex64, dt.complex128})


def require(name: str, argument: str, x: Any, position: int = 1) -> None:
    need_tensor(name.replace(".", "_"), x, argument, position)


def check_matrix(name: str, A: Any, argument: str = "A") -> None:
    require(name, argument, A)
    if len(A.shape) < 2:
        raise RuntimeError(f"{name}: The input tensor {argument} must have at least 2 dimensions.")


def check_floating(name: str, A: Tensor, low_precision: bool = True) -> None:
    """Raise unless A holds floating point or complex numbers (with low_precision, also not half-width ones)."""
    if A.dtype.category < 2:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {type_word(A.dtype)}")
    if low_precision and A.dtype not in SUPPORTED:
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {type_word(A.dtype)}")


def check_kernel(kernel: str, A: Tensor) -> None:
    """Raise as PyTorch does where a kernel has no half-width version."""
    if A.dtype not in SUPPORTED:
        raise unsupported(f"{kernel}", A.dtype)


def check_square(name: str, A: Any, argument: str = "A") -> None:
    check_matrix(name, A, argument)
    m, n = A.shape[-2:]
    if m != n:
        raise RuntimeError(f"{name}: {argument} must be batches of square matrices, but they are {m} by {n} matrices")


def check_same_dtype(name: str, A: Tensor, B: Tensor, first: str = "A", second: str = "B") -> None:
    if A.dtype is not B.dtype:
        raise RuntimeError(
            f"{name}: Expected {first} and {second} to have the same dtype, but found {first} of type"
            f" {type_word(A.dtype)} and {second} of type {type_word(B.dtype)} instead"
        )


def check_equation(name: str, A: Tensor, B: Tensor, left: bool) -> None:
    """Raise unless A X = B (left) or X A = B is an equation between shapes."""
    if A.shape[-2] != B.shape[-2 if left else -1]:
        equation = "AX = B" if left else "XA = B"
        a, b = (f"{t.shape[-2]}x{t.shape[-1]}" for t in (A, B))
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation {equation} ({a} and {b})")


def batch_of(*tensors: Tensor) -> tuple[int, ...]:
    """The batch dimensions of matrices, broadcast together."""
    batch: tuple[int, ...] = ()
    for t in tensors:
        batch = tuple(broadcast_shapes(batch, t.shape[:-2]))
    return batch


# -- results ----------------------------------------------------------------------------------------------------------


def by_rows(array: np.ndarray, d: dtype) -> Tensor:
    array = np.asarray(array)
    if array.dtype == d.numpy:
        return copy_of_array(array, d)
    with np.errstate(over="ignore"):  # what overflows single precision is infinite, without a warning
        return copy_of_array(array, d)


def by_columns(array: np.ndarray, d: dtype) -> Tensor:
    """A new tensor with the array's values, each matrix stored column after column."""
    stored = by_rows(array.swapaxes(-2, -1), d)
    *outer, near, far = stored._strides
    shape, strides = make_size(array.shape), (*outer, far, near)
    return new_tensor(stored._storage, shape, strides, 0, d, stored.device, is_contiguous_layout(shape, strides))


def integers(array: np.ndarray, d: dtype = dt.int32) -> Tensor:
    return copy_of_array(np.asarray(array, d.numpy), d)


# -- failures ---------------------------------------------------------------------------------------------------------

_REASONS = {
    "least squares": "The least squares solution could not be computed because the input matrix does not have full rank"
    " (error code: {}).",
    "linalg.inv": "The diagonal element {} is zero, the inversion could not be completed because the input matrix is"
    " singular.",
    "solve": "The solver failed because the input matrix is singular.",
    "cholesky": "The factorization could not be completed because the input is not positive-definite (the leading minor"
    " of order {} is not positive-definite).",
}


def raise_failures(name: str, info: Tensor, reason: str) -> None:
    """Raise LinAlgError for the first matrix whose info is not 0."""
    codes = info._array()
    if not codes.any():
        return
    codes = codes.reshape(-1)
    bad = np.flatnonzero(codes)
    where = f"(Batch element {bad[0]}): " if info.shape else ""
    raise LinAlgError(f"{name}: {where}{_REASONS[reason].format(codes[bad[0]])}")
