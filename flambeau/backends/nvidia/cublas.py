"""cuBLAS functions other than matrix products: inner products, triangular systems, and factors of many small matrices at once.

Matrices are stored by columns; addresses are numbers. Arrays of addresses, which the functions for batches take, are on the device."""

from __future__ import annotations

import ctypes
import functools
import threading
from ctypes import byref, c_int, c_int64, c_void_p
from typing import Any

from ...core import dtype as dt
from .. import nvidia

LEFT, RIGHT = 0, 1
LOWER, UPPER = 0, 1
PLAIN, TRANSPOSED = 0, 1
_HOST, _DEVICE = 0, 1


class _Local(threading.local):
    def __init__(self) -> None:
        self.handles: dict[Any, list[Any]] = {}


_local = _Local()


@functools.cache
def _library() -> Any:
    found = nvidia.library("cublas")
    found.cublasGetStatusString.restype = ctypes.c_char_p
    return found


def check(status: int, what: str) -> None:
    if status:
        raise nvidia.CudaError(
            f"CUDA error: {_library().cublasGetStatusString(c_int(status)).decode()} when calling `{what}`"
        )


def handle(where: Any) -> c_void_p:
    """Return the calling thread's handle for a device, set to its current stream."""
    nvidia.activate(where)
    found = _local.handles.get(where)
    if found is None:
        made = c_void_p()
        check(_library().cublasCreate_v2(byref(made)), "cublasCreate")
        found = _local.handles[where] = [made, -1]
    stream = nvidia.current_stream(where)
    if found[1] != stream:
        check(_library().cublasSetStream_v2(found[0], c_void_p(stream)), "cublasSetStream")
        found[1] = stream
    return found[0]


def _call(name: str, where: Any, *arguments: Any) -> None:
    check(getattr(_library(), name)(handle(where), *arguments), name)


def _one(d: Any) -> Any:
    """Return the number 1 in the form that the library reads."""
    kind = ctypes.c_double if d in (dt.float64, dt.complex128) else ctypes.c_float
    return (kind * 2)(1, 0)


def dot(out: int, n: int, x: int, x_step: int, y: int, y_step: int, d: Any, where: Any) -> None:
    """Compute *out = sum of x[i] * y[i]; all on the device."""
    kind, wide = c_int(d.cuda), c_int(dt.opmath(d).cuda)
    _call("cublasSetPointerMode_v2", where, c_int(_DEVICE))
    try:
        _call(
            "cublasDotEx_64", where, c_int64(n), c_void_p(x), kind, c_int64(x_step), c_void_p(y), kind, c_int64(y_step),
            c_void_p(out), kind, wide,
        )  # fmt: skip
    finally:
        _call("cublasSetPointerMode_v2", where, c_int(_HOST))


def solve_triangular(
    b: int, ldb: int, a: int, lda: int, m: int, n: int, side: int, uplo: int, trans: int, unit: bool, d: Any, where: Any
) -> None:
    """Compute b (m by n) = the solution X of op(a) X = b, or X op(a) = b."""
    _call(
        f"cublas{d.blas}trsm_v2_64", where, c_int(side), c_int(uplo), c_int(trans), c_int(unit), c_int64(m), c_int64(n),
        byref(_one(d)), c_void_p(a), c_int64(lda), c_void_p(b), c_int64(ldb),
    )  # fmt: skip


def solve_triangular_batch(
    b: int, ldb: int, a: int, lda: int, m: int, n: int, side: int, uplo: int, trans: int, unit: bool, count: int, d: Any,
    where: Any,
) -> None:  # fmt: skip
    """Solve `count` triangular systems, whose addresses are stored at a and b on the device."""
    _call(
        f"cublas{d.blas}trsmBatched_64", where, c_int(side), c_int(uplo), c_int(trans), c_int(unit), c_int64(m), c_int64(n),
        byref(_one(d)), c_void_p(a), c_int64(lda), c_void_p(b), c_int64(ldb), c_int64(count),
    )  # fmt: skip


def lu_batch(a: int, n: int, pivots: int, infos: int, count: int, d: Any, where: Any) -> None:
    """Compute LU factors in place of `count` square matrices, whose addresses are stored at a on the device; pivots 0: without row swaps."""
    _call(
        f"cublas{d.blas}getrfBatched",
        where,
        c_int(n),
        c_void_p(a),
        c_int(n),
        c_void_p(pivots),
        c_void_p(infos),
        c_int(count),
    )
