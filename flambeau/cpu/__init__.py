"""`torch.cpu`: the CPU as a device. Kernels have finished when a call returns, so there is nothing to wait for."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..backends.cpu.features import host_features
from ..core.uninterrupted import uninterrupted
from . import amp as amp

__all__ = [
    "Event", "Stream", "StreamContext", "current_device", "current_stream", "device_count", "get_capabilities",
    "is_available", "is_initialized", "set_device", "stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Return True: there is always a CPU."""
    return True


def is_initialized() -> bool:
    """Return True: the CPU needs no initialization."""
    return True


def device_count() -> int:
    """Return the number of CPU devices: 1, whatever the number of cores."""
    return 1


def current_device() -> str:
    """Return "cpu", the name of the only device."""
    return "cpu"


def set_device(device: Any) -> None:
    """Do nothing: there is one CPU device."""


def synchronize(device: Any = None) -> None:
    """Do nothing: no work is pending on the CPU."""


class Stream:
    """The order in which kernels run: on a CPU, the order of the calls."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: all earlier work has finished."""

    def record_event(self) -> None:
        """Do nothing: CPU streams record no events."""

    def wait_event(self, event: Any) -> None:
        """Do nothing: the event has happened."""


class Event:
    """A moment between kernels; it has always passed."""

    def query(self) -> bool:
        return True

    def record(self, stream: Any = None) -> None:
        """Do nothing: CPU events are not recorded."""

    def synchronize(self) -> None:
        """Do nothing: no work is pending on the CPU."""

    def wait(self, stream: Any = None) -> None:
        """Do nothing: the event has happened."""


_default_stream = Stream()


class _Current:
    stream = _default_stream


class StreamContext:
    """Context manager: make `current_stream()` return the given stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self.before = _Current.stream
        if self.stream is not None:
            _Current.stream = self.stream

    @uninterrupted
    def __exit__(self, *problem: Any) -> None:
        _Current.stream = self.before


def stream(stream: Any) -> StreamContext:
    """Return a context manager that selects a stream."""
    return StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    """Return the selected CPU stream."""
    return _Current.stream


_X86 = """avx avx2 avx512_bf16 avx512_bitalg avx512_bw avx512_cd avx512_dq avx512_f avx512_fp16 avx512_ifma avx512_vbmi
avx512_vbmi2 avx512_vl avx512_vnni avx512_vpopcntdq avx_vnni amx_bf16 amx_fp16 amx_int8 amx_tile bmi bmi2 f16c fma fma4 aes
clflushopt clwb lzcnt popcnt sha sse sse2 sse3 sse4_1 sse4_2 sse4a ssse3"""
_IN_LLVM = {"sse4_1": "sse4.1", "sse4_2": "sse4.2", "avx_vnni": "avxvnni"}


def get_capabilities() -> Mapping[str, Any]:
    """Return the capabilities of the CPU: its instruction sets (as `avx2`, `avx512_f`), architecture and number of cores."""
    features = host_features()
    known = {name: features.get(_llvm_name(name), False) for name in _X86.split()}
    known["fma3"] = known.pop("fma")
    return MappingProxyType({"architecture": platform.machine(), **known, "num_logical_cores": os.cpu_count()})


def _llvm_name(name: str) -> str:
    if name in _IN_LLVM:
        return _IN_LLVM[name]
    return name.replace("_", "-") if name.startswith("amx") else name.replace("_", "")
