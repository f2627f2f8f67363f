"""Activities of GPUs with their times: kernels and copies, as NVIDIA's CUPTI records them."""

from __future__ import annotations

import ctypes
import functools
import struct
import time
from typing import Any, NamedTuple

from ...core.aliases import Values
from .libraries import library

# Kinds of records, and how each begins. Later versions of CUPTI add to the ends of records only.
_MEMCPY, _MEMSET, _DRIVER, _RUNTIME, _KERNEL = 1, 2, 4, 5, 10
_KERNEL_RECORD = struct.Struct("<IBBHIIQQQIII3i3iiiIIIqQ")
_COPY_RECORD = struct.Struct("<IBBBBQQQIIII")
_SET_RECORD = struct.Struct("<IIQQQIIII")
_CALL_RECORD = struct.Struct("<IIQQIIII")
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
_BUFFER = 1 << 20
_ALIGNMENT = 8


class Activity(NamedTuple):
    """A kernel, a copy or a fill. Times are those of `time.perf_counter_ns`; `called` is when the host asked for it."""

    name: str
    kind: str
    start: int
    end: int
    called: int | None
    device: int
    context: int
    stream: int
    correlation: int
    details: dict[str, Any]


@functools.cache
def _demangler() -> Any:
    try:
        found = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return None
    found.restype = ctypes.c_void_p
    return found


def demangled(name: str) -> str:
    """Return the C++ name in its source form."""
    demangle = _demangler()
    if not name.startswith("_Z") or demangle is None:
        return name
    status = ctypes.c_int()
    text = demangle(name.encode(), None, None, ctypes.byref(status))
    if not text:
        return name
    found = ctypes.string_at(text).decode()
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(text)
    return found


_Requested = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_Completed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class _Library:
    """CUPTI with this process's buffers: its callbacks can be registered only once."""

    def __init__(self) -> None:
        self.cupti: Any = library("cupti")
        self.buffers: dict[int, Any] = {}
        self.listener: Recording | None = None
        self._callbacks = (_Requested(self._request), _Completed(self._complete))
        self.call("cuptiActivityRegisterCallbacks", *self._callbacks)

    def call(self, name: str, *args: Any) -> None:
        status = getattr(self.cupti, name)(*args)
        if status:
            text = ctypes.c_char_p()
            self.cupti.cuptiGetResultString(status, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'').decode()} ({status})")

    def _request(self, buffer: Any, size: Any, most: Any) -> None:
        held = ctypes.create_string_buffer(_BUFFER + _ALIGNMENT)
        address = -(-ctypes.addressof(held) // _ALIGNMENT) * _ALIGNMENT
        self.buffers[address] = held
        buffer[0], size[0], most[0] = address, _BUFFER, 0

    def _complete(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        held = self.buffers.pop(buffer, None)
        if held is not None and self.listener is not None and valid:
            self._read(buffer, valid, self.listener)

    def _read(self, buffer: int, valid: int, listener: Recording) -> None:
        record = ctypes.c_void_p()
        while not self.cupti.cuptiActivityGetNextRecord(
            ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)
        ):
            assert record.value is not None
            listener.take(record.value)

    def now(self) -> int:
        moment = ctypes.c_uint64()
        self.call("cuptiGetTimestamp", ctypes.byref(moment))
        return moment.value


_loaded = functools.cache(_Library)


class Recording:
    """Recording of the activities of GPUs between `start` and `stop`."""

    def __init__(self) -> None:
        self.cupti = _loaded()  # an error of its own where the library is missing
        self._found: list[tuple[Any, ...]] = []
        self._calls: dict[int, int] = {}
        self._offset = 0

    def start(self) -> None:
        self.cupti.listener = self
        self._offset = time.perf_counter_ns() - self.cupti.now()
        for kind in (_KERNEL, _MEMCPY, _MEMSET, _DRIVER, _RUNTIME):
            self.cupti.call("cuptiActivityEnable", kind)

    def stop(self) -> list[Activity]:
        """Return all recorded activities, in the order they began. The device must have finished."""
        self.cupti.call("cuptiActivityFlushAll", 1)
        for kind in (_KERNEL, _MEMCPY, _MEMSET, _DRIVER, _RUNTIME):
            self.cupti.call("cuptiActivityDisable", kind)
        self.cupti.listener = None
        found = [self._activity(*entry) for entry in self._found]
        return sorted(found, key=lambda a: a.start)

    def _activity(
        self, name: str, kind: str, start: int, end: int, place: Values, correlation: int, details: dict[str, Any]
    ) -> Activity:
        called = self._calls.get(correlation)
        shift = self._offset
        device, context, stream = place
        asked = None if called is None else called + shift
        return Activity(name, kind, start + shift, end + shift, asked, device, context, stream, correlation, details)

    def take(self, address: int) -> None:
        """Store one activity record."""
        kind = ctypes.c_uint32.from_address(address).value
        if kind == _KERNEL:
            self._take_kernel(address)
        elif kind == _MEMCPY:
            fields = _COPY_RECORD.unpack(ctypes.string_at(address, _COPY_RECORD.size))
            _, way, _, _, _, nbytes, start, end, device, context, stream, number = fields
            name = f"Memcpy {_COPY_KINDS.get(way, 'other')}"
            self._found.append((name, "gpu_memcpy", start, end, (device, context, stream), number, {"bytes": nbytes}))
        elif kind == _MEMSET:
            fields = _SET_RECORD.unpack(ctypes.string_at(address, _SET_RECORD.size))
            _, _, nbytes, start, end, device, context, stream, number = fields
            self._found.append(
                ("Memset", "gpu_memset", start, end, (device, context, stream), number, {"bytes": nbytes})
            )
        elif kind in (_DRIVER, _RUNTIME):
            _, _, start, _, _, _, number, _ = _CALL_RECORD.unpack(ctypes.string_at(address, _CALL_RECORD.size))
            self._calls.setdefault(number, start)

    def _take_kernel(self, address: int) -> None:
        fields = _KERNEL_RECORD.unpack(ctypes.string_at(address, _KERNEL_RECORD.size))
        registers, start, end, device, context, stream = fields[3], fields[6], fields[7], *fields[9:12]
        grid, block, static, dynamic = list(fields[12:15]), list(fields[15:18]), fields[18], fields[19]
        number, text = fields[22], fields[24]
        name = demangled(ctypes.string_at(text).decode()) if text else "kernel"
        details = {"registers per thread": registers, "shared memory": static + dynamic, "grid": grid, "block": block}
        self._found.append((name, "kernel", start, end, (device, context, stream), number, details))
