"""Marks for NVIDIA's profilers, through their library where it is installed."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

from ..backends.nvidia.libraries import MissingLibrary, library

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


@functools.cache
def _nvtx() -> Any:
    try:
        found: Any = library("nvToolsExt")
    except MissingLibrary as problem:
        raise RuntimeError(f"NVTX functions not installed: {problem}") from None
    found.nvtxRangeStartA.restype = ctypes.c_uint64
    found.nvtxRangeEnd.argtypes = [ctypes.c_uint64]
    return found


def range_push(msg: str) -> int:
    """Begin a range that `range_pop` ends; returns how deep it is."""
    return _nvtx().nvtxRangePushA(msg.encode())


def range_pop() -> int:
    """End the innermost range."""
    return _nvtx().nvtxRangePop()


def range_start(msg: str) -> int:
    """Begin a range that may end on another thread; returns its number for `range_end`."""
    return _nvtx().nvtxRangeStartA(msg.encode())


def range_end(range_id: int) -> None:
    """End such a range."""
    _nvtx().nvtxRangeEnd(range_id)


def mark(msg: str) -> None:
    """Mark a moment."""
    _nvtx().nvtxMarkA(msg.encode())


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:  # noqa: A001 - PyTorch's name
    """A range for the length of a block."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
