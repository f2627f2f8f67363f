"""Start and stop of NVIDIA's profilers (nsys, ncu) from a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..backends.nvidia import driver
from . import _require_backend

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """Start recording in profilers that were started with `--capture-range=cudaProfilerApi`."""
    _require_backend("profiler.start")
    driver.call("cuProfilerStart")


def stop() -> None:
    """Stop recording in NVIDIA's profilers."""
    _require_backend("profiler.stop")
    driver.call("cuProfilerStop")


@contextmanager
def profile() -> Iterator[None]:
    """Context manager: record in NVIDIA's profilers."""
    start()
    try:
        yield
    finally:
        stop()
