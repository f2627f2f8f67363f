"""Blocking of signals while native code runs that a signal would corrupt.

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

import functools
import signal

from ...kernels.llvm_text import Function

LONGEST_ON_STACK = 64  # the inner size up to which the product's workspace is certainly on the stack

_FAULTS = ("SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV")
_SET = "[128 x i8]"  # a set of signals


def hide(f: Function) -> str:
    """Emit code that blocks signals; return the address of the previous mask, for `show`. No effect on systems without such signals
    (Windows)."""
    before = f.slot(_SET)
    f.call("void", _hide_function(), f"ptr {before}")
    return before


def show(f: Function, before: str) -> None:
    """Emit code that restores the signal mask."""
    f.call("void", _show_function(), f"ptr {before}")


@functools.cache
def _hide_function() -> Function:
    f = Function("define internal void @hide_signals(ptr %before) noinline nounwind")
    if hasattr(signal, "pthread_sigmask"):
        faults = sum(1 << (getattr(signal, name) - 1) for name in _FAULTS)
        hidden = f.slot(_SET)
        f.call("void", "@llvm.memset.p0.i64", f"ptr {hidden}", "i8 -1", "i64 128", "i1 false")
        f.write("i64", ~faults, hidden)
        f.call("i32", "@pthread_sigmask", f"i32 {int(signal.SIG_BLOCK)}", f"ptr {hidden}", "ptr %before")
    return f


@functools.cache
def _show_function() -> Function:
    f = Function("define internal void @show_signals(ptr %before) noinline nounwind")
    if hasattr(signal, "pthread_sigmask"):
        f.call("i32", "@pthread_sigmask", f"i32 {int(signal.SIG_SETMASK)}", "ptr %before", "ptr null")
    return f
