"""NVIDIA GPUs: the driver, NVRTC, memory, streams, graphs, random numbers and libraries.

Importing this package does not load CUDA. `start()` does, at the first use of a GPU."""

from __future__ import annotations

import functools

from ...core.device import device
from ...core.storage import UntypedStorage
from . import driver, threads
from .driver import CudaError, NoDevice, check
from .gpu import CudaBackend
from .gpu import host_value as _host_value
from .kernel_errors import error_code, error_flag
from .libraries import library
from .modules import Module, load_source


def start() -> CudaBackend:
    """Return the backend of "cuda"; raise NoDevice with the reason if there is none."""
    if not driver.functions() or not driver.device_count():
        raise NoDevice("the NVIDIA driver shows no GPU")
    library("nvrtc")  # without a compiler there are no kernels: better said now
    return backend()


@functools.cache
def backend() -> CudaBackend:
    """Return the one backend of this process."""
    return CudaBackend()


def activate(where: device) -> None:
    """Make the device's context current in this thread, as libraries need it."""
    threads.activate(where.index or 0)


def current_stream(where: device) -> int:
    """Make a device's context current, and return the handle (CUstream) of this thread's stream on it; 0 is the default one."""
    return threads.activate(where.index or 0)


def workspace(nbytes: int, where: device) -> UntypedStorage:
    """Allocate device memory for one library call: use its `ptr`, then drop it. Later work on the same stream may reuse it."""
    return UntypedStorage(nbytes, where)


def scratch(nbytes: int, where: device) -> int:
    """Return the address of the stream's scratch memory; the next call returns the same memory."""
    return backend().scratch(nbytes, where)


def processors(where: device) -> int:
    """Return the number of a device's multiprocessors."""
    return driver.attribute("multi_processor_count", where.index or 0)


def capability(where: device) -> tuple[int, int]:
    """Return the compute capability of a device: (9, 0) for Hopper."""
    return driver.capability(where.index or 0)


def host_value(address: int, nbytes: int, where: device) -> bytes:
    """Return bytes of device memory, after everything on the current stream is done."""
    return _host_value(backend(), address, nbytes, where)


__all__ = [
    "CudaBackend", "CudaError", "Module", "NoDevice", "activate", "backend", "capability", "check", "current_stream", "error_code",
    "error_flag", "host_value", "library", "load_source", "processors", "scratch", "start", "workspace",
]  # fmt: skip
