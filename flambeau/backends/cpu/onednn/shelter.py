"""The threads of libgomp's pool take no signals before a product of oneDNN runs in them; `signals.py` says why.

Threads that oneDNN or our own loops start are started or made so; this is for those that somebody else had started in the pool."""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

from flambeau.backends.cpu import jit, native_call, signals, threads


class _Sheltered(threading.local):
    threads = 1  # of the calling thread's pool, itself included


_sheltered = _Sheltered()


def shelter_pool() -> None:
    """Block signals in the threads that run parallel loops for the calling thread. After the first time it costs a look."""
    count = ctypes.c_int64.from_address(threads.count_address()).value
    if count != _sheltered.threads:
        _sheltered.threads = count
        if count > 1 and jit.available() and native_call.supported():
            _native()(count)


@functools.cache
def _native() -> Any:
    return jit.support_function(_TEXT, "shelter_pool", "i", False)


_TEXT = f"""
declare void @GOMP_parallel(ptr, ptr, i32, i32) nounwind nonlazybind
declare i32 @omp_get_thread_num() nounwind nonlazybind
{signals.text()}
define void @shelter_pool(i32 %count) {{
  call void @GOMP_parallel(ptr @member, ptr null, i32 %count, i32 0)
  ret void
}}

define internal void @member(ptr %unused) {{
  %before = alloca [128 x i8], align 16
  %rank = call i32 @omp_get_thread_num()
  %caller = icmp eq i32 %rank, 0
  br i1 %caller, label %end, label %worker
worker:
  call void @hide_signals(ptr %before)
  br label %end
end:
  ret void
}}
"""

__all__ = ["shelter_pool"]
