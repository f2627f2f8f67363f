"""Marks for NVIDIA's profilers: through the package `nvtx`, or the library that CUDA had before version 13."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import threading
from collections.abc import Iterator
from typing import Any

from ..backends.nvidia.libraries import MissingLibrary, library

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


class _Package(threading.local):
    """The package `nvtx` with the functions of the library; it does not count nesting levels."""

    def __init__(self) -> None:
        import nvtx  # noqa: PLC0415  optional

        self.package: Any = nvtx
        self.depth = 0

    def nvtxRangePushA(self, text: bytes) -> int:  # noqa: N802  the library's name
        self.package.push_range(text.decode())
        self.depth += 1
        return self.depth - 1

    def nvtxRangePop(self) -> int:  # noqa: N802
        if not self.depth:
            return -1
        self.package.pop_range()
        self.depth -= 1
        return self.depth

    def nvtxRangeStartA(self, text: bytes) -> Any:  # noqa: N802
        return self.package.start_range(text.decode())

    def nvtxRangeEnd(self, number: Any) -> None:  # noqa: N802
        self.package.end_range(number)

    def nvtxMarkA(self, text: bytes) -> None:  # noqa: N802
        self.package.mark(text.decode())


@functools.cache
def _nvtx() -> Any:
    if importlib.util.find_spec("nvtx") is not None:
        return _Package()
    try:
        found: Any = library("nvToolsExt")
    except MissingLibrary:
        raise RuntimeError("NVTX functions not installed: `pip install nvtx` (or flambeau[cuda]) brings them") from None
    found.nvtxRangeStartA.restype = ctypes.c_uint64
    found.nvtxRangeEnd.argtypes = [ctypes.c_uint64]
    return found


def range_push(msg: str) -> int:
    """Begin a range that `range_pop` ends; return its nesting level."""
    return _nvtx().nvtxRangePushA(msg.encode())


def range_pop() -> int:
    """End the innermost range."""
    return _nvtx().nvtxRangePop()


def range_start(msg: str) -> int:
    """Begin a range that may end on another thread; returns its number for `range_end`."""
    return _nvtx().nvtxRangeStartA(msg.encode())


def range_end(range_id: int) -> None:
    """End a range begun by `range_start`."""
    _nvtx().nvtxRangeEnd(range_id)


def mark(msg: str) -> None:
    """Mark a moment with a message in NVIDIA's profilers."""
    _nvtx().nvtxMarkA(msg.encode())


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:  # noqa: A001 - PyTorch's name
    """Context manager: an NVTX range around a block."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
