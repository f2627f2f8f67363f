"""Blocking of signals in the threads of libgomp's pool before a product of oneDNN runs in them; `signals.py` says why.

Threads that oneDNN or our own loops start block signals from the start; this is for those that other libraries have started in the pool."""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

from flambeau.backends.cpu import jit, native_call, signals, threads
from flambeau.kernels.llvm_text import Function


class _Sheltered(threading.local):
    threads = 1  # of the calling thread's pool, itself included


_sheltered = _Sheltered()


def shelter_pool() -> None:
    """Block signals in the threads that run parallel loops for the calling thread. After the first call this is one comparison."""
    count = ctypes.c_int64.from_address(threads.count_address()).value
    if count != _sheltered.threads:
        _sheltered.threads = count
        if count > 1 and jit.available() and native_call.supported():
            _native()(count)


@functools.cache
def _native() -> Any:
    return jit.support_function(_pool, signature="i", brief=False)


def _pool() -> Function:
    f = Function("define void @shelter_pool(i32 %count)")
    f.call("void", "@GOMP_parallel", f"ptr {f.bring(_member())}", "ptr null", "i32 %count", "i32 0")
    return f


def _member() -> Function:
    f = Function("define internal void @member(ptr %unused)")
    with f.when(f.compare("ne", "i32", f.call("i32", "@omp_get_thread_num"), 0)):
        signals.hide(f)
    return f
