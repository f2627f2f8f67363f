"""The host as a device: its memory, and kernels that the JIT compiles for its cores."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ...core import watching
from ...core.allocator import allocator, round_size
from ...core.backend import BACKENDS, Backend
from ...core.device import cpu, device
from ...core.dtype import FLOAT8
from ...core.generator import Generator, default_generator
from ...core.raw_memory import is_zero, set_bytes
from . import jit


class CpuBackend(Backend):
    """Backend of the CPU. Addresses are the host's own. Without a compiler, formulas are interpreted by NumPy."""

    compiles = True
    on_host = True

    def computes(self, dtypes: tuple[Any, ...]) -> bool:
        return jit.available() and FLOAT8.isdisjoint(dtypes)

    def indexed(self, where: device) -> device:
        return cpu  # "cpu:1" is a name for the same memory

    def allocate(self, nbytes: int, where: device) -> int:
        return allocator.allocate(round_size(nbytes))

    def release(self, address: int, nbytes: int, where: device) -> None:
        allocator.release(address, round_size(nbytes))

    def copy(self, destination: int, source: int, nbytes: int, where: device) -> None:
        if watching.active:
            watching.tell_looked()
        ctypes.memmove(destination, source, nbytes)

    def read(self, host: int, address: int, nbytes: int, where: device) -> None:
        self.copy(host, address, nbytes, where)

    def write(self, address: int, host: int, nbytes: int, where: device) -> None:
        self.copy(address, host, nbytes, where)

    def fetch(self, address: int, nbytes: int, where: device) -> int:
        if watching.active:
            watching.tell_converted(address, nbytes)
        return address

    def is_zero(self, address: int, nbytes: int, where: device, error: Exception) -> bool:
        return is_zero(address, nbytes, error)

    def fill(self, address: int, byte: int, nbytes: int, where: device) -> None:
        set_bytes(address, byte, nbytes)

    def compile(self, build: Callable[[], Any], key: str) -> Callable[..., Any]:
        return jit.compile(build, key)

    def generator(self, where: device) -> Generator:
        return default_generator

    def new_generator(self, where: device) -> Generator:
        return Generator(where)


BACKENDS["cpu"] = CpuBackend()
