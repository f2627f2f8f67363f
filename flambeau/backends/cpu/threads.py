"""Number of threads that native kernels use, and the libgomp that runs them.

Kernels read the count from a fixed address, so changing it needs no recompilation. libgomp is shared with oneDNN.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core.uninterrupted import uninterrupted
from . import team

# Waiting threads of libgomp spin by default, which starves other processes on the same cores. A few microseconds of
# spinning covers the gap between two kernels; after that a thread sleeps.
_SPIN_COUNT = "4000"

_native = ctypes.c_int64(1)  # what kernels read
_requested: int | None = None
_side_by_side = 1
_library: ctypes.CDLL | None = None
_library_tried = False
_forked = False
_listeners: list[Callable[[], None]] = []


def available_cores() -> int:
    """Return the number of cores this process may use: its affinity mask, limited by the container's CPU quota."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this platform
        cores = os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(cores, math.ceil(quota)) if quota else cores)


def _cgroup_quota() -> float | None:
    """Return the CPUs granted by cgroup v2 or v1, or None if there is no limit."""
    v2 = _read("/sys/fs/cgroup/cpu.max")
    if v2:
        quota, _, period = v2.partition(" ")
    else:
        quota = _read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") or "max"
        period = _read("/sys/fs/cgroup/cpu/cpu.cfs_period_us") or "100000"
    try:
        limit = int(quota) / int(period or 100000)
    except (ValueError, ZeroDivisionError):  # "max": unlimited
        return None
    return limit if limit > 0 else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _default() -> int:
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdigit() and int(first) > 0 else available_cores()


def get_num_threads() -> int:
    """Return the number of threads that CPU kernels use."""
    global _requested
    if _requested is None:
        _requested = 1 if _forked else _default()
    return _requested


def _check_count(name: str, count: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise RuntimeError(f"{name} expects an int, but got {type(count).__name__}")
    if count >= 1 << 31:
        raise ValueError(f"{name}: {count} threads are more than an int holds")
    if count <= 0:
        raise RuntimeError(f"{name} expects a positive integer, but got {count}")


def set_num_threads(count: int) -> None:
    """Use `count` threads in CPU kernels from now on."""
    global _requested
    _check_count("set_num_threads", count)
    _requested = count
    _apply()
    for callback in _listeners:
        callback()


def get_num_interop_threads() -> int:
    """Return the number set by `set_num_interop_threads`. It has no effect: one operator runs at a time, on several threads."""
    return _side_by_side


def set_num_interop_threads(count: int) -> None:
    """Set the number that `get_num_interop_threads` returns; it has no other effect."""
    global _side_by_side
    _check_count("set_num_interop_threads", count)
    _side_by_side = count


def on_change(callback: Callable[[], None]) -> None:
    """Call `callback` whenever the number of threads is set, for code prepared for a certain number."""
    _listeners.append(callback)


def library() -> ctypes.CDLL | None:
    """Return libgomp, or None if it is not installed (then kernels run on one thread)."""
    global _library, _library_tried
    if not _library_tried:
        _library_tried = True
        _library = _open()
        _apply()
    return _library


class _OneThread:
    def __enter__(self) -> None:
        assert _library is not None
        _library.omp_set_num_threads(1)

    @uninterrupted
    def __exit__(self, *problem: object) -> None:
        assert _library is not None
        _library.omp_set_num_threads(_native.value)


_one_thread, _as_it_is = _OneThread(), contextlib.nullcontext()


def one_in_libgomp(wanted: bool = True) -> contextlib.AbstractContextManager[None]:
    """Context manager: if `wanted`, make and run oneDNN primitives of the calling thread for one thread."""
    return _one_thread if wanted and _library is not None else _as_it_is


def _open() -> ctypes.CDLL | None:
    quiet = "GOMP_SPINCOUNT" not in os.environ and "OMP_WAIT_POLICY" not in os.environ
    if not team.supported():
        return None
    if quiet:
        os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT
    try:
        found = ctypes.CDLL("libgomp.so.1")  # reads its settings from the environment while loading
        found.omp_set_num_threads.argtypes = [ctypes.c_int]
        return found
    except OSError:
        return None
    finally:
        if quiet:
            del os.environ["GOMP_SPINCOUNT"]


def _apply() -> None:
    count = get_num_threads()
    # In a forked child the threads of libgomp's pool do not exist, and waiting for them would hang.
    _native.value = count if _library is not None and not _forked else 1
    if _library is not None:
        _library.omp_set_num_threads(_native.value)


def _after_fork() -> None:
    global _forked, _requested
    _forked = True
    _requested = 1
    _native.value = 1
    team.forget()
    if _library is not None:
        _library.omp_set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def count_address() -> int:
    """Return the address at which native code finds the number of threads (an int64)."""
    return ctypes.addressof(_native)


def setter_address() -> int:
    """Return the address of libgomp's `omp_set_num_threads(int)` for native code, or 0 without libgomp."""
    found = library()
    return 0 if found is None else ctypes.cast(found.omp_set_num_threads, ctypes.c_void_p).value or 0
