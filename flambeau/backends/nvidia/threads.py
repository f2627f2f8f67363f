"""CUDA state of each thread: its device, whose context is current, and its stream on every device.

The state is a few words of C memory under a key of pthreads, because machine code that launches kernels reads it, too."""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

from . import driver

MAX_DEVICES = 64
WORDS = 2 + MAX_DEVICES  # of a state


class State(ctypes.Structure):
    """CUDA state as machine code reads it: the current context's device plus one, and a stream for each device. Zeros at first."""

    _fields_ = [("context", ctypes.c_int64), ("unused", ctypes.c_int64), ("streams", ctypes.c_uint64 * MAX_DEVICES)]


_libc: Any = ctypes.CDLL(None)
for _name in ("pthread_getspecific", "calloc"):
    getattr(_libc, _name).restype = ctypes.c_void_p
_libc.pthread_getspecific.argtypes = [ctypes.c_uint]
_libc.pthread_setspecific.argtypes = [ctypes.c_uint, ctypes.c_void_p]
_libc.calloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]


@functools.cache
def key() -> int:
    """Return the key of pthreads under which threads keep their state, which is freed with the thread."""
    result = ctypes.c_uint()
    if _libc.pthread_key_create(ctypes.byref(result), _libc.free):
        raise MemoryError("no more keys for the data of threads")
    return result.value


class Mine(threading.local):
    """Thread-local choices for Python: streams are copied here, because reading C memory takes longer."""

    def __init__(self) -> None:
        found = _libc.pthread_getspecific(key())
        if not found:
            found = _libc.calloc(WORDS, 8)
            _libc.pthread_setspecific(key(), found)
        self.words = State.from_address(found)
        self.streams = [0] * MAX_DEVICES  # handles; 0 is the default stream
        self.chosen = 0  # the device that "cuda" without a number means


mine = Mine()


def activate(index: int) -> int:
    """Make the context of a device current in this thread; return its current stream there."""
    words = mine.words
    if words.context != index + 1:
        driver.call("cuCtxSetCurrent", driver.context(index))
        words.context = index + 1
    return mine.streams[index]


def set_stream(index: int, handle: int) -> int:
    """Set the calling thread's stream on a device; return the one before."""
    before = mine.streams[index]
    mine.streams[index] = mine.words.streams[index] = handle
    return before


def choose(index: int) -> int:
    """Choose the device that "cuda" means; return the one before."""
    before, mine.chosen = mine.chosen, index
    return before
