"""Counts signals that arrive while the stack pointer is outside of the thread's stack: their frames overwrite memory of others.

The handler is machine code, runs on a stack of its own and only counts, so that a process in which this happens lives to tell.
"""

from __future__ import annotations

import ctypes
import mmap
import resource
import signal
from pathlib import Path

from flambeau.backends.cpu import image, jit

_FLAGS = 0x08000000 | 0x4 | 0x10000000  # on the alternate stack, with the interrupted registers, system calls go on
_ALTERNATE_BYTES = 1 << 17
_libc = ctypes.CDLL(None, use_errno=True)
_counts = (
    ctypes.c_int64 * 5
)()  # signals, strays; the main thread's stack from, to; bytes of the other threads' stacks
_alternate: list[mmap.mmap] = []  # stacks are never freed: their threads may end later than this module

# The interrupted stack pointer lies 160 bytes into the context. A thread's stack ends at the thread's own address.
_HANDLER = """
@counts = external global i64
declare i64 @pthread_self() nounwind nonlazybind
define void @handle(i32 %signal, ptr %information, ptr %context) {
  %pointer.at = getelementptr i8, ptr %context, i64 160
  %pointer = load i64, ptr %pointer.at
  %all = atomicrmw add ptr @counts, i64 1 seq_cst
  %low = load i64, ptr getelementptr (i64, ptr @counts, i64 2)
  %high = load i64, ptr getelementptr (i64, ptr @counts, i64 3)
  %size = load i64, ptr getelementptr (i64, ptr @counts, i64 4)
  %above = icmp uge i64 %pointer, %low
  %below = icmp ult i64 %pointer, %high
  %main = and i1 %above, %below
  %self = call i64 @pthread_self()
  %distance = sub i64 %self, %pointer
  %near = icmp ult i64 %distance, %size
  %fine = or i1 %main, %near
  br i1 %fine, label %end, label %stray
stray:
  %strays = atomicrmw add ptr getelementptr (i64, ptr @counts, i64 1), i64 1 seq_cst
  br label %end
end:
  ret void
}
"""


class _Action(ctypes.Structure):
    """glibc's struct sigaction"""

    _fields_ = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


class _Stack(ctypes.Structure):
    """stack_t"""

    _fields_ = [("base", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


def count_strays_of(number: int) -> None:
    """Handle this signal by counting."""
    told = resource.getrlimit(resource.RLIMIT_STACK)[0]
    size = 8 << 20 if told == resource.RLIM_INFINITY else told
    line = next(line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("[stack]"))
    high = int(line.split()[0].split("-")[1], 16)
    _counts[2:5] = [high - size, high, size]
    code = image.link([jit.object_code(_HANDLER)], "handle")
    known = {
        "counts": ctypes.addressof(_counts),
        "pthread_self": ctypes.cast(_libc.pthread_self, ctypes.c_void_p).value,
    }
    action = _Action(handler=image.load(code, {name: known[name] or 0 for _, name in code.slots}), flags=_FLAGS)
    if _libc.sigaction(int(number), ctypes.byref(action), None):
        raise OSError(ctypes.get_errno(), f"cannot handle {signal.Signals(number).name}")


def use_alternate_stack() -> None:
    """Let the calling thread run handlers on a stack of their own."""
    memory = mmap.mmap(-1, _ALTERNATE_BYTES)
    _alternate.append(memory)
    place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if _libc.sigaltstack(ctypes.byref(_Stack(place, 0, _ALTERNATE_BYTES)), None):
        raise OSError(ctypes.get_errno(), "cannot use another stack for signals")


def counted() -> tuple[int, int]:
    """How many signals there were since the last look, and how many of them were astray."""
    result = _counts[0], _counts[1]
    _counts[0:2] = [0, 0]
    return result


def open_threads(number: int, known: set[int | None]) -> list[int]:
    """Threads other than the known ones that would take this signal, by their numbers in the system."""
    bit = 1 << (number - 1)
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if int(task.name) not in known and not int(status["SigBlk"], 16) & bit:
            found.append(int(task.name))
    return found
