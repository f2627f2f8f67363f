"""Signals wait while native code runs that cannot bear one.

oneDNN's general matrix product lets the stack pointer point into a block of the heap while it runs (where the inner size is above 84
with AVX-512: `mov rsp, workspace`). The frame of a signal that arrives then is written below that block, over whatever is there. An
alternate stack would help against handlers that ask for one, as Python's do, but not against those of other libraries. So signals are
blocked in the calling thread for the length of such a call, and for good in the threads of libgomp's pool: a thread that is started
inherits what its creator blocks, and those that were started otherwise block them when they first take part in a loop of ours
(`team.py`) or before the first product (`onednn/shelter.py`). Signals to the process are taken by any other thread, or when the call is
over; Python would not run its handlers earlier either. Signals that a thread's own faults raise are never blocked.

`python -m tests.backends.signal_storm` counts the signals that arrive while the stack pointer is outside of the thread's stack.
"""

from __future__ import annotations

import signal

LONGEST_ON_STACK = 64  # the inner size up to which the product's workspace is certainly on the stack

_FAULTS = ("SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV")


def text() -> str:
    """LLVM functions `@hide_signals(ptr before)`, which blocks signals and stores what was blocked before (128 bytes), and
    `@show_signals(ptr before)`, which restores it. Without effect where there are no such signals (Windows)."""
    if not hasattr(signal, "pthread_sigmask"):
        return _NOTHING
    faults = sum(1 << (getattr(signal, name) - 1) for name in _FAULTS)
    return _MASKING % {"all": ~faults, "block": int(signal.SIG_BLOCK), "set": int(signal.SIG_SETMASK)}


_MASKING = """
declare i32 @pthread_sigmask(i32, ptr, ptr) nounwind nonlazybind
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal void @hide_signals(ptr %%before) noinline nounwind {
  %%all = alloca [128 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %%all, i8 -1, i64 128, i1 false)
  store i64 %(all)d, ptr %%all
  %%hidden = call i32 @pthread_sigmask(i32 %(block)d, ptr %%all, ptr %%before)
  ret void
}

define internal void @show_signals(ptr %%before) noinline nounwind {
  %%shown = call i32 @pthread_sigmask(i32 %(set)d, ptr %%before, ptr null)
  ret void
}
"""

_NOTHING = """
define internal void @hide_signals(ptr %before) { ret void }
define internal void @show_signals(ptr %before) { ret void }
"""

__all__ = ["LONGEST_ON_STACK", "text"]
