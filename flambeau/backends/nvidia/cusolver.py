"""Factorizations by cuSOLVER, one matrix at a time (and Cholesky factors of many). Matrices are stored by columns without gaps; addresses are
numbers; `info` is the address of one int32 that says where a factorization failed."""

from __future__ import annotations

import ctypes
import functools
import threading
from ctypes import byref, c_byte, c_int, c_int64, c_size_t, c_void_p
from typing import Any

from ...core import watching
from .. import nvidia

_ERRORS = {
    1: "CUSOLVER_STATUS_NOT_INITIALIZED", 2: "CUSOLVER_STATUS_ALLOC_FAILED", 3: "CUSOLVER_STATUS_INVALID_VALUE",
    4: "CUSOLVER_STATUS_ARCH_MISMATCH", 6: "CUSOLVER_STATUS_EXECUTION_FAILED", 7: "CUSOLVER_STATUS_INTERNAL_ERROR",
    8: "CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED", 9: "CUSOLVER_STATUS_NOT_SUPPORTED",
}  # fmt: skip


class _Local(threading.local):
    def __init__(self) -> None:
        self.handles: dict[Any, list[Any]] = {}


_local = _Local()


@functools.cache
def _library() -> Any:
    return nvidia.library("cusolver")


@functools.cache
def _settings() -> c_void_p:
    made = c_void_p()
    _check(_library().cusolverDnCreateParams(byref(made)), "cusolverDnCreateParams")
    return made


def _check(status: int, what: str) -> None:
    if status:
        raise nvidia.CudaError(f"cusolver error: {_ERRORS.get(status, f'status {status}')}, when calling `{what}`")


def _handle(where: Any) -> c_void_p:
    """Return the calling thread's handle for a device, set to its current stream."""
    nvidia.activate(where)
    found = _local.handles.get(where)
    if found is None:
        made = c_void_p()
        _check(_library().cusolverDnCreate(byref(made)), "cusolverDnCreate")
        found = _local.handles[where] = [made, -1]
    stream = nvidia.current_stream(where)
    if found[1] != stream:
        _check(_library().cusolverDnSetStream(found[0], c_void_p(stream)), "cusolverDnSetStream")
        found[1] = stream
    return found[0]


def _call(name: str, where: Any, *arguments: Any) -> None:
    _check(getattr(_library(), name)(_handle(where), *arguments), name)


def _general(name: str, where: Any, described: tuple[Any, ...], info: int, has_settings: bool = True) -> None:
    """Call a function of the newer interface: `described` are its arguments up to the type of the computation; its memory on the device and
    on the host is allocated here. It cannot be captured into a CUDA graph, since the host memory would be gone when that runs."""
    outside, inside = c_size_t(), c_size_t()
    given = (_settings(), *described) if has_settings else described
    _call(f"{name}_bufferSize", where, *given, byref(outside), byref(inside))
    space = nvidia.workspace(max(outside.value, 8), where)
    host = ctypes.create_string_buffer(max(inside.value, 8))
    if inside.value or not has_settings:
        watching.tell_looked()
    _call(name, where, *given, c_void_p(space.ptr), outside, host, inside, c_void_p(info))


def _typed(d: Any) -> c_int:
    return c_int(d.cuda)


def cholesky(a: int, n: int, uplo: int, info: int, d: Any, where: Any) -> None:
    """Compute the factor in place of one triangle (uplo: 0 lower, 1 upper)."""
    _general("cusolverDnXpotrf", where, (c_int(uplo), c_int64(n), _typed(d), c_void_p(a), c_int64(n), _typed(d)), info)


def cholesky_batch(a: int, n: int, uplo: int, infos: int, count: int, d: Any, where: Any) -> None:
    """Factor `count` matrices, whose addresses are stored at a on the device."""
    _call(
        f"cusolverDn{d.blas}potrfBatched",
        where,
        c_int(uplo),
        c_int(n),
        c_void_p(a),
        c_int(n),
        c_void_p(infos),
        c_int(count),
    )


def lu(a: int, m: int, n: int, pivots: int, info: int, d: Any, where: Any) -> None:
    """Compute L and U in place, and the row swaps (int32); pivots 0: without swaps."""
    letter, count = d.blas, c_int()
    _call(f"cusolverDn{letter}getrf_bufferSize", where, c_int(m), c_int(n), c_void_p(a), c_int(max(m, 1)), byref(count))
    space = nvidia.workspace(max(count.value * d.itemsize, 8), where)
    _call(
        f"cusolverDn{letter}getrf", where, c_int(m), c_int(n), c_void_p(a), c_int(max(m, 1)), c_void_p(space.ptr),
        c_void_p(pivots), c_void_p(info),
    )  # fmt: skip


def lu_solve(a: int, n: int, pivots: int, b: int, k: int, trans: int, info: int, d: Any, where: Any) -> None:
    """Compute b (n by k) = the solution of op(A) X = b, A given by `lu`."""
    _call(
        f"cusolverDn{d.blas}getrs", where, c_int(trans), c_int(n), c_int(k), c_void_p(a), c_int(n), c_void_p(pivots), c_void_p(b),
        c_int(n), c_void_p(info),
    )  # fmt: skip


def qr(a: int, m: int, n: int, tau: int, info: int, d: Any, where: Any) -> None:
    """Compute R above the diagonal, Householder vectors below, and their factors."""
    described = (c_int64(m), c_int64(n), _typed(d), c_void_p(a), c_int64(m), _typed(d), c_void_p(tau), _typed(d))
    _general("cusolverDnXgeqrf", where, described, info)


def hermitian_eigen(a: int, n: int, values: int, vectors: bool, uplo: int, info: int, d: Any, where: Any) -> None:
    """Compute eigenvalues, and with `vectors` the eigenvectors in place of the matrix."""
    described = (
        c_int(vectors), c_int(uplo), c_int64(n), _typed(d), c_void_p(a), c_int64(n), _typed(d.to_real()), c_void_p(values), _typed(d),
    )  # fmt: skip
    _general("cusolverDnXsyevd", where, described, info)


def singular(a: int, m: int, n: int, values: int, u: int, vh: int, job: str, info: int, d: Any, where: Any) -> None:
    """Compute singular values and vectors of a matrix with m >= n, which is overwritten; job "A": all vectors, "S": the first n, "N": none."""
    letter = c_byte(ord(job))
    described = (
        letter, letter, c_int64(m), c_int64(n), _typed(d), c_void_p(a), c_int64(m), _typed(d.to_real()), c_void_p(values), _typed(d),
        c_void_p(u), c_int64(m), _typed(d), c_void_p(vh), c_int64(n), _typed(d),
    )  # fmt: skip
    _general("cusolverDnXgesvd", where, described, info)


def eigen(a: int, n: int, values: int, vectors: int, info: int, d: Any, where: Any) -> None:
    """Compute eigenvalues and, unless vectors is 0, right eigenvectors of a complex matrix, which is overwritten."""
    described = (
        c_int(0), c_int(bool(vectors)), c_int64(n), _typed(d), c_void_p(a), c_int64(n), _typed(d), c_void_p(values), _typed(d), None,
        c_int64(n), _typed(d), c_void_p(vectors), c_int64(n), _typed(d),
    )  # fmt: skip
    _general("cusolverDnXgeev", where, described, info)


def ldl(a: int, n: int, pivots: int, info: int, d: Any, where: Any) -> None:
    """Compute L and D of a symmetric matrix in place of its lower triangle, and the pivots (int32)."""
    letter, count = d.blas, c_int()
    watching.tell_looked()  # it reads from the device, which a graph that is captured cannot
    _call(f"cusolverDn{letter}sytrf_bufferSize", where, c_int(n), c_void_p(a), c_int(n), byref(count))
    space = nvidia.workspace(max(count.value * d.itemsize, 8), where)
    _call(
        f"cusolverDn{letter}sytrf", where, c_int(0), c_int(n), c_void_p(a), c_int(n), c_void_p(pivots), c_void_p(space.ptr), count,
        c_void_p(info),
    )  # fmt: skip


def ldl_solve(a: int, n: int, pivots: int, b: int, k: int, info: int, d: Any, where: Any) -> None:
    """Compute b (n by k) = the solution of A X = b, A given by `ldl`; here the pivots are int64."""
    described = (
        c_int(0), c_int64(n), c_int64(k), _typed(d), c_void_p(a), c_int64(n), c_void_p(pivots), _typed(d), c_void_p(b), c_int64(n),
    )  # fmt: skip
    _general("cusolverDnXsytrs", where, described, info, has_settings=False)
