"""Recorder of a profiler: records operators, ranges, memory and Python's stack as notes, which are converted to events afterwards."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..backends.cpu.onednn.plan import tell_observers
from ..core import modes, watching
from ..core.device import cpu
from ..core.held import HeldTensor
from ..core.layout import strided
from ..core.sharded import SpreadTensor
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor
from ..core.user_frames import is_own

_now = time.perf_counter_ns
_new = object.__new__
_PREFIXES = {"linalg": "linalg_", "fft": "fft_", "special": "special_"}


class Note:
    """A recorded operator or range. Times are of `time.perf_counter_ns`; `memory` is the bytes allocated less those freed, on the host and
    on devices, without those of calls inside."""

    # Fields that most do not need have their values here: noting an event must take little time.
    what: Any
    parent: Note | None
    thread: int
    scope = modes.FUNCTION
    start = end = 0
    sequence = -1
    inputs: Any = None
    stack: Any = None
    marks: Any = None
    extra: Any = None
    python: Any = None  # of a call of a Python function: "call" or "c_call", the function's place, the caller's
    module: Any = None  # of a call of a module: its class's name, its number and its parameters
    result: Any = None
    keywords: dict[str, Any] | None = None  # values to be shown by name
    memory = device_memory = 0
    end_thread: int | None = None  # if it is another one

    @property
    def name(self) -> str:
        return self.what if type(self.what) is str else operator_name(self.what)

    @property
    def operator(self) -> Any:
        """The operator's record; None for a range."""
        return None if type(self.what) is str else self.what


def operator_name(op: Any) -> str:
    """Return the name of an operator in PyTorch's profiler; one that PyTorch does not have is `flambeau::name`."""
    name = op.name
    if "::" in name:
        return name
    if not op.aten and not op.namespaces and op.method is None:
        return f"flambeau::{name}"
    return f"aten::{op.aten_name}"


class MemoryNote:
    """Bytes that were allocated (or, if negative, freed) at `time`; `total` are those in use since the profiler began."""

    __slots__ = ("time", "address", "nbytes", "total", "device", "thread", "note", "storage")

    def __init__(self, address: int, nbytes: int, total: int, device: Any, thread: int, note: Note | None, number: int):
        self.time = _now()
        self.address, self.nbytes, self.total, self.device = address, nbytes, total, device
        self.thread, self.note, self.storage = thread, note, number


class Described:
    """A tensor argument without its values."""

    __slots__ = ("shape", "strides", "dtype", "device", "storage", "version", "requires_grad", "layout", "impl")

    def __init__(self, tensor: Tensor):
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device
        self.layout, self.impl = tensor.layout, id(tensor)
        dense = tensor.layout is strided and not isinstance(tensor, (SpreadTensor, HeldTensor))
        self.strides = tensor._strides if dense else None
        held = tensor._storage if dense else None
        self.storage = 0 if held is None or not hasattr(held, "ptr") else held.ptr
        self.version = 0 if held is None else held.version
        self.requires_grad = tensor._autograd is not None and tensor._autograd.requires_grad


def described(value: Any) -> Any:
    """Return arguments of a call with tensors replaced by descriptions without memory."""
    if isinstance(value, Tensor):
        return Described(value)
    if type(value) in (list, tuple):
        return [described(v) for v in value]
    return value if value is None or isinstance(value, (int, float, str, complex)) else str(value)


def user_stack() -> list[tuple[Any, int]]:
    """Return the frames outside this package, the innermost first: code and line."""
    frame: Any = sys._getframe(2)
    found = []
    while frame is not None:
        if not is_own(frame):
            found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found


class DeviceClock:
    """Events in the current stream of an accelerator, and the microseconds between them."""

    def __init__(self, module: Any):
        self.module = module

    def mark(self) -> Any:
        event = self.module.Event(enable_timing=True)
        event.record()
        return event

    def between(self, marks: tuple[Any, Any]) -> float:
        return marks[0].elapsed_time(marks[1]) * 1000.0


class Recorder(modes.Observer, watching.Watcher):
    """Records what one thread does, between `start` and `stop`."""

    def __init__(
        self,
        *,
        shapes: bool = False,
        memory: bool = False,
        stack: bool = False,
        clock: DeviceClock | None = None,
        results: bool = False,
    ):
        self.shapes, self.memory, self.stack, self.clock, self.results = shapes, memory, stack, clock, results
        self.notes: list[Note] = []
        self.append = self.notes.append
        self.memory_notes: list[MemoryNote] = []
        self.elsewhere: list[tuple[str, list, float, float, int]] = []  # collectives, which may run in other threads
        self.current: Note | None = None
        self.newest = -1  # the greatest sequence number of a node that was recorded
        self.thread = 0
        self.began = self.ended = 0
        self.began_at = 0  # nanoseconds since 1970
        self._watch: Any = None
        self._alive: dict[int, Any] = {}
        self._totals: dict[Any, int] = {}
        self._storages = 0
        self._before: modes.Observer | None = None
        self.calls: Any = None  # notes calls of Python functions
        self.activities: list[Any] = []  # what the device did, as `gpu` has recorded it
        self.gpu: Any = None

    # -- on and off -------------------------------------------------------------------------------------------------
    def start(self) -> None:
        self.thread = threading.get_native_id()
        if self.memory:
            self._watch = watching.watch(self, everywhere=True)
            self._watch.__enter__()
        groups = sys.modules.get(f"{__name__.partition('.')[0]}.distributed.process_group")
        if groups is not None:
            groups.observers.append(self.collective)
        tell_observers(1)
        if self.gpu is not None:
            self.gpu.start()
        self._before = modes.observe(self)
        self.began_at, self.began = time.time_ns(), _now()
        if self.calls is not None:
            self.calls.start()

    def stop(self) -> None:
        self.ended = _now()
        if self.calls is not None:
            self.calls.stop()
        modes.observe(self._before)
        tell_observers(-1)
        if self.gpu is not None:
            self.activities = self.gpu.stop()
        groups = sys.modules.get(f"{__name__.partition('.')[0]}.distributed.process_group")
        if groups is not None and self.collective in groups.observers:
            groups.observers.remove(self.collective)
        if self._watch is not None:
            self._watch.__exit__(None, None, None)
            self._watch = None
        self._alive.clear()
        self._before = None

    def now(self) -> int:
        return _now()

    # -- operators and ranges -----------------------------------------------------------------------------------------
    def operator(self, op: Any, run: Callable, args: tuple, kwargs: dict) -> Any:
        parent = self.current
        note = _new(Note)
        note.what, note.parent, note.thread = op, parent, self.thread
        self.append(note)
        if self.shapes:
            note.inputs = ([described(v) for v in args], {k: described(v) for k, v in kwargs.items()})
        if self.stack:
            note.stack = user_stack()
        self.current = note
        newest = self.newest
        first = None if self.clock is None else self.clock.mark()
        note.start = _now()
        try:
            result = run(*args, **kwargs)
        finally:
            note.end = _now()
            if self.clock is not None:
                note.marks = (first, self.clock.mark())
            self.current = parent
        one = result[0] if type(result) is tuple and result else result
        if isinstance(one, Tensor) and one._autograd is not None:
            made = one._autograd.grad_fn
            if made is not None and made.sequence > newest:
                note.sequence = self.newest = made.sequence
        if self.results:
            note.result = described(result)
        return result

    def begin(self, name: str, scope: int, sequence: int = -1) -> Note:
        note = _new(Note)
        note.what, note.parent, note.thread = name, self.current, self.thread
        note.scope, note.sequence = scope, sequence
        self.append(note)
        if self.stack:
            note.stack = user_stack()
        self.current = note
        if self.clock is not None:
            note.marks = (self.clock.mark(), None)
        note.start = _now()
        return note

    def end(self, event: Note) -> None:
        event.end = _now()
        if self.current is not event:
            event.end_thread = threading.get_native_id()
        if self.clock is not None:
            event.marks = (event.marks[0], self.clock.mark())
        if self.current is event:
            self.current = event.parent

    def collective(self, name: str, shapes: list, began: float, ended: float) -> None:
        """Record an operation of a process group that has ended; the times are of `time.perf_counter`."""
        self.elsewhere.append((name, shapes, began, ended, threading.get_native_id()))

    # -- memory -------------------------------------------------------------------------------------------------------
    def made(self, new: UntypedStorage) -> None:
        nbytes = new.size_bytes
        if not nbytes or new.device.type == "meta":
            return
        self._storages += 1
        number = self._storages
        self._note_memory(new.ptr, nbytes, new.device, number)
        recorder = weakref.ref(self)

        def freed(_: Any, address: int = new.ptr, nbytes: int = nbytes, where: Any = new.device) -> None:
            found = recorder()
            if found is not None and found._alive.pop(number, None) is not None:
                found._note_memory(address, -nbytes, where, number)

        self._alive[number] = weakref.ref(new, freed)

    def _note_memory(self, address: int, nbytes: int, where: Any, number: int) -> None:
        thread = threading.get_native_id()
        note = self.current if thread == self.thread else None
        if note is not None:
            if where is cpu:
                note.memory += nbytes
            else:
                note.device_memory += nbytes
        total = self._totals[where] = self._totals.get(where, 0) + nbytes
        self.memory_notes.append(MemoryNote(address, nbytes, total, where, thread, note, number))

    # -- afterwards ---------------------------------------------------------------------------------------------------
    def finished(self) -> Iterator[Note]:
        """Iterate over the notes of calls that have ended."""
        return (note for note in self.notes if note.end)


def frame_text(entry: tuple[Any, int]) -> str:
    """Return a stack frame as PyTorch writes it."""
    code, line = entry
    return f"{code.co_filename}({line}): {code.co_name}"
