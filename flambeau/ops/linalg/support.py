"""Common part of all matrix operators: checks of shapes and dtypes, and results stored by columns as LAPACK writes them."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import device
from ...core.dtype import dtype
from ...core.errors import LinAlgError
from ...core.layout import broadcast_shapes
from ...core.tensor import Tensor, address_of, contiguous_strides
from ..machinery.arguments import need_tensor
from ..machinery.dtype_rules import unsupported
from ..machinery.memory import values_on_host
from ..machinery.watched import watched

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
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {A.dtype.scalar_type}")
    if low_precision and A.dtype not in SUPPORTED:
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {A.dtype.scalar_type}")


def check_kernel(kernel: str, A: Tensor) -> None:
    """Raise PyTorch's error if a kernel has no half-width version."""
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
            f" {A.dtype.scalar_type} and {second} of type {B.dtype.scalar_type} instead"
        )


def check_equation(name: str, A: Tensor, B: Tensor, left: bool) -> None:
    """Raise unless A X = B (left) or X A = B is an equation between shapes."""
    if A.shape[-2] != B.shape[-2 if left else -1]:
        equation = "AX = B" if left else "XA = B"
        a, b = (f"{t.shape[-2]}x{t.shape[-1]}" for t in (A, B))
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation {equation} ({a} and {b})")


def batch_of(*tensors: Tensor) -> tuple[int, ...]:
    """Return the batch dimensions of matrices, broadcast together."""
    batch: tuple[int, ...] = ()
    for t in tensors:
        batch = tuple(broadcast_shapes(batch, t.shape[:-2]))
    return batch


# -- results ----------------------------------------------------------------------------------------------------------


@lru_cache(4096)
def _column_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    *outer, near, far = contiguous_strides((*shape[:-2], shape[-1], shape[-2]))
    return *outer, far, near


def columns(shape: tuple[int, ...], d: dtype, where: device) -> tuple[Any, ...]:
    """Return the layout of a result whose matrices are stored column by column."""
    return shape, d, where, _column_strides(shape)


def infos(A: Tensor) -> tuple[Any, ...]:
    """Return the layout of one number per matrix that says where its factorization failed."""
    return A.shape[:-2], dt.int32, A.device


def store(out: Tensor, array: Any) -> None:
    """Store an array's values as those of a result, in one copy of memory if both have the same order. For kernels."""
    array = np.asarray(array)
    if array.dtype == out.dtype.numpy and array.shape == out.shape and array.size:
        if out._contig:
            return _copy(out, array)
        if out._strides == _column_strides(out.shape):
            return _copy(out, array.swapaxes(-2, -1))
    with np.errstate(over="ignore"):  # what overflows single precision is infinite, without a warning
        out._array()[...] = array


def _copy(out: Tensor, array: np.ndarray) -> None:
    array = np.ascontiguousarray(array)
    ctypes.memmove(out._storage.ptr, address_of(array), array.nbytes)


# -- failures ---------------------------------------------------------------------------------------------------------

_REASONS = {
    "lstsq": "The least squares solution could not be computed because the input matrix does not have full rank"
    " (error code: {}).",
    "inv": "The diagonal element {} is zero, the inversion could not be completed because the input matrix is"
    " singular.",
    "solve": "The solver failed because the input matrix is singular.",
    "cholesky": "The factorization could not be completed because the input is not positive-definite (the leading minor"
    " of order {} is not positive-definite).",
    "lu": "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the"
    " factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
    "ldl": "D[{0},{0}] is zero and using it on ldl_solve would divide by zero.",
}
_PLAIN_ERRORS = ("lu", "ldl")  # told by a RuntimeError


@watched(reads_values=True, batching="each")
def raise_failures(name: str, info: Tensor) -> None:
    """Raise LinAlgError for the first matrix whose info is not 0; the operator's name tells the reason."""
    if info.is_meta:
        return
    codes = values_on_host(info)
    if not codes.any():
        return
    codes = codes.reshape(-1)
    bad = np.flatnonzero(codes)
    reason = next(word for word in _REASONS if word in name)
    where = f"(Batch element {bad[0]}): " if info.shape else ""
    error = RuntimeError if reason in _PLAIN_ERRORS else LinAlgError
    raise error(f"{name}: {where}{_REASONS[reason].format(codes[bad[0]])}")


@raise_failures.op.as_aten
def _(recorder: Any, name: str, info: Tensor) -> Any:
    return recorder.aten._linalg_check_errors.default(info, name, is_matrix=not info.shape)
