"""Streams, the queues of work on a device, and events, the marks between pieces of work."""

from __future__ import annotations

import ctypes
from typing import Any

from ...core.device import device
from ...core.locks import new_lock
from . import driver, kernel_errors, threads

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the default stream
_BLOCKING_SYNC, _NO_TIMING, _INTERPROCESS = 1, 2, 4
_POOL = 32  # streams of a priority that are made; then they are used again, in turn
_lock = new_lock()
_known: dict[tuple[int, int], Stream] = {}
_made: dict[tuple[int, int], list[int]] = {}
_next: dict[tuple[int, int], int] = {}


def _new_handle(index: int, priority: int) -> int:
    """Return a stream of the pool. Streams are never destroyed, because memory refers to those it was used on."""
    threads.activate(index)
    lowest, highest = ctypes.c_int(), ctypes.c_int()
    driver.call("cuCtxGetStreamPriorityRange", ctypes.byref(lowest), ctypes.byref(highest))
    priority = max(min(priority, lowest.value), highest.value)
    with _lock:
        handles = _made.setdefault((index, priority), [])
        at = _next.get((index, priority), 0)
        _next[index, priority] = (at + 1) % _POOL
        if at == len(handles):
            handles.append(driver.number("cuStreamCreateWithPriority", _NON_BLOCKING, priority))
        return handles[at]


class Stream:
    """A queue of kernels and copies; work of different streams may run at the same time."""

    def __init__(self, device: Any = None, priority: int = 0, *, handle: int | None = None, **_: Any):
        index = _index(device)
        self.device = _device(index)
        self.device_index = index
        self.cuda_stream = _new_handle(index, priority) if handle is None else handle
        self._entered: list[StreamContext] = []
        _known[index, self.cuda_stream] = self

    def __enter__(self) -> Stream:
        self._entered.append(StreamContext(self))
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._entered.pop().__exit__(*exc)

    device_type = 1  # PyTorch's number of CUDA

    @property
    def stream_id(self) -> int:
        return self.cuda_stream

    @property
    def _as_parameter_(self) -> Any:
        return ctypes.c_void_p(self.cuda_stream)

    @property
    def priority(self) -> int:
        """Return the stream's priority: work of smaller ones is started sooner."""
        threads.activate(self.device_index)
        result = ctypes.c_int()
        driver.call("cuStreamGetPriority", self.cuda_stream, ctypes.byref(result))
        return result.value

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority, which is the smaller number."""
        threads.activate(threads.mine.chosen)
        lowest, highest = ctypes.c_int(), ctypes.c_int()
        driver.call("cuCtxGetStreamPriorityRange", ctypes.byref(lowest), ctypes.byref(highest))
        return lowest.value, highest.value

    def wait_event(self, event: Event) -> None:
        """Make later work of this stream wait for the event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Make later work of this stream wait for everything that is in the other one now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event after everything that is in the stream now."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Return whether everything in the stream is done."""
        threads.activate(self.device_index)
        status = driver.functions().cuStreamQuery(self.cuda_stream)
        if status == driver.NOT_READY:
            return False
        driver.check(status, "cuStreamQuery")
        return True

    def synchronize(self) -> None:
        """Wait until everything in the stream is done."""
        threads.activate(self.device_index)
        driver.call("cuStreamSynchronize", self.cuda_stream)
        kernel_errors.look()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device_index, self.cuda_stream) == (
            other.device_index,
            other.cuda_stream,
        )

    def __hash__(self) -> int:
        return hash((self.device_index, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library has made."""

    def __init__(self, stream_ptr: int, device: Any = None, **_: Any):
        super().__init__(device, handle=stream_ptr)


class Event:
    """A mark in a stream: to wait for, to query whether it has passed, and with enable_timing to measure time."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ):
        self.flags = (
            (0 if enable_timing else _NO_TIMING)
            | (_BLOCKING_SYNC if blocking else 0)
            | (_INTERPROCESS if interprocess else 0)
        )
        self.external = external
        self.cuda_event = 0  # made with the first record, on that stream's device
        self.device: device | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Record the event after everything that is in the stream (by default the current one)."""
        stream = current_stream() if stream is None else stream
        threads.activate(stream.device_index)
        if not self.cuda_event:
            self.device = stream.device
            self.cuda_event = driver.number("cuEventCreate", self.flags)
        driver.call("cuEventRecordWithFlags", self.cuda_event, stream.cuda_stream, int(self.external))

    def wait(self, stream: Stream | None = None) -> None:
        """Make later work of the stream (by default the current one) wait for the event."""
        stream = current_stream() if stream is None else stream
        if self.cuda_event:
            threads.activate(stream.device_index)
            driver.call("cuStreamWaitEvent", stream.cuda_stream, self.cuda_event, int(self.external))

    def query(self) -> bool:
        """Return whether everything before the event is done."""
        if not self.cuda_event:
            return True
        status = driver.functions().cuEventQuery(self.cuda_event)
        if status == driver.NOT_READY:
            return False
        driver.check(status, "cuEventQuery")
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds between two events that have passed."""
        if self.flags & _NO_TIMING or end_event.flags & _NO_TIMING:
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not self.cuda_event or not end_event.cuda_event:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return driver.number("cuEventElapsedTime", self.cuda_event, end_event.cuda_event, kind=ctypes.c_float)

    def synchronize(self) -> None:
        """Wait for everything before the event."""
        if self.cuda_event:
            driver.call("cuEventSynchronize", self.cuda_event)
        kernel_errors.look()

    def __del__(self) -> None:
        if getattr(self, "cuda_event", 0) and driver.loaded() is not None:
            driver.loaded().cuEventDestroy_v2(self.cuda_event)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self.cuda_event else "<torch.cuda.Event uninitialized>"


def _index(where: Any) -> int:
    if where is None:
        return threads.mine.chosen
    found = device(where)
    return threads.mine.chosen if found.index is None else found.index


def _device(index: int) -> device:
    return device("cuda", index)


def current_stream(where: Any = None) -> Stream:
    """Return the calling thread's current stream on a device."""
    index = _index(where)
    return stream_of(index, threads.mine.streams[index])


def default_stream(where: Any = None) -> Stream:
    """Return the stream that work goes to unless another is chosen."""
    return stream_of(_index(where), 0)


def stream_of(index: int, handle: int) -> Stream:
    found = _known.get((index, handle))
    return Stream(_device(index), handle=handle) if found is None else found


def set_stream(stream: Stream | None) -> None:
    """Choose this thread's stream, on the stream's device, which is chosen as well."""
    if stream is not None:
        threads.set_stream(stream.device_index, stream.cuda_stream)
        threads.choose(stream.device_index)


class StreamContext:
    """Context manager: send this thread's work to a stream (and make its device "cuda"); with None nothing changes."""

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> Stream | None:
        if self.stream is not None:
            index = self.stream.device_index
            self.chosen = threads.choose(index)
            self.before = threads.set_stream(index, self.stream.cuda_stream)
        return self.stream

    def __exit__(self, *exc: Any) -> None:
        if self.stream is not None:
            threads.set_stream(self.stream.device_index, self.before)
            threads.choose(self.chosen)
