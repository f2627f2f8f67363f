"""Fourier transforms by cuFFT: plans for batches of dense arrays of one to three dimensions, cached by thread."""

from __future__ import annotations

import functools
import sys
import threading
from ctypes import byref, c_int, c_longlong, c_size_t, c_void_p
from typing import Any

from ...core.caching import remember
from ...core.raw_memory import first_address
from .. import nvidia

_LIMIT = 1024
_KINDS = {
    ("complex64", "complex64"): (41, "cufftExecC2C"), ("float32", "complex64"): (42, "cufftExecR2C"),
    ("complex64", "float32"): (44, "cufftExecC2R"), ("complex128", "complex128"): (105, "cufftExecZ2Z"),
    ("float64", "complex128"): (106, "cufftExecD2Z"), ("complex128", "float64"): (108, "cufftExecZ2D"),
}  # fmt: skip
_ERRORS = {
    1: "CUFFT_INVALID_PLAN", 2: "CUFFT_ALLOC_FAILED", 3: "CUFFT_INVALID_TYPE", 4: "CUFFT_INVALID_VALUE",
    5: "CUFFT_INTERNAL_ERROR", 6: "CUFFT_EXEC_FAILED", 7: "CUFFT_SETUP_FAILED", 8: "CUFFT_INVALID_SIZE", 11: "CUFFT_INVALID_DEVICE",
    16: "CUFFT_NOT_SUPPORTED",
}  # fmt: skip


class _Local(threading.local):
    def __init__(self) -> None:
        self.plans: dict[tuple[Any, ...], _Plan] = {}


@functools.cache
def _library() -> Any:
    return nvidia.library("cufft")


def _check(status: int) -> None:
    if status:
        raise nvidia.CudaError(f"cuFFT error: {_ERRORS.get(status, f'error {status}')}")


class _Plan:
    """Transforms of one size. Its workspace comes from the allocator at every run."""

    __slots__ = ("handle", "nbytes", "execute", "where", "turns")

    def __init__(self, sizes: tuple[int, ...], batch: int, kinds: tuple[str, str], where: Any) -> None:
        library = _library()
        number, name = _KINDS[kinds]
        self.where, self.execute = where, getattr(library, name)
        self.turns = kinds[0] == kinds[1]
        self.handle, nbytes = c_int(), c_size_t()
        _check(library.cufftCreate(byref(self.handle)))
        _check(library.cufftSetAutoAllocation(self.handle, c_int(0)))
        n = (c_longlong * len(sizes))(*sizes)
        one, none = c_longlong(1), c_longlong(0)
        _check(
            library.cufftMakePlanMany64(
                self.handle,
                c_int(len(sizes)),
                n,
                None,
                one,
                none,
                None,
                one,
                none,
                c_int(number),
                c_longlong(batch),
                byref(nbytes),
            )
        )
        self.nbytes = nbytes.value

    def run(self, out: int, x: int, forward: bool) -> None:
        library = _library()
        space = nvidia.workspace(self.nbytes, self.where) if self.nbytes else None
        _check(library.cufftSetStream(self.handle, c_void_p(nvidia.current_stream(self.where))))
        if space is not None:
            _check(library.cufftSetWorkArea(self.handle, c_void_p(space.ptr)))
        direction = (c_int(-1 if forward else 1),) if self.turns else ()
        _check(self.execute(self.handle, c_void_p(x), c_void_p(out), *direction))

    def __del__(self, finalizing: Any = sys.is_finalizing) -> None:
        if not finalizing():  # later, the driver may be gone
            _library().cufftDestroy(self.handle)


_local = _Local()


def transform(out: Any, x: Any, sizes: tuple[int, ...], batch: int, forward: bool = True) -> None:
    """Compute `batch` transforms of arrays of `sizes` real or complex numbers (in the time domain), one after the other in memory; complex
    ones may be in place. Half of the coefficients are read if the result is real, and x is changed then."""
    nvidia.activate(x.device)
    key = (sizes, batch, x.dtype, out.dtype, x.device)
    plan = _local.plans.get(key)
    if plan is None:
        plan = remember(_local.plans, key, _Plan(sizes, batch, (x.dtype.name, out.dtype.name), x.device), _LIMIT)
    out_place, place = (first_address(t) for t in (out, x))
    plan.run(out_place, place, forward)
