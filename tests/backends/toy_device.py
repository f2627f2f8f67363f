"""A device of one's own: an arena that host code cannot read. Kernels are compiled by the CPU's compiler and run with the door open."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.backends import Backend
from flambeau.backends.cpu import jit

_SIZE = 1 << 28
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class ToyBackend(Backend):
    """Memory is one mapping, closed to everybody except while a kernel or a copy runs."""

    compiles = True

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, _SIZE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.used = 0
        self.free: dict[int, list[int]] = {}
        self.opened = 0
        self.launches: list[str] = []
        self._protect(0)

    def _protect(self, rights: int) -> None:
        assert _libc.mprotect(self.start, _SIZE, rights) == 0

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        self.opened += 1
        self._protect(mmap.PROT_READ | mmap.PROT_WRITE)
        try:
            yield
        finally:
            self.opened -= 1
            if not self.opened:
                self._protect(0)

    def allocate(self, nbytes: int, where: Any) -> int:
        size = -(-nbytes // 64) * 64
        if self.free.get(size):
            return self.free[size].pop()
        if self.used + size > _SIZE:
            raise RuntimeError(f"the toy device has no {nbytes} bytes left")
        self.used += size
        return self.start + self.used - size

    def release(self, address: int, nbytes: int, where: Any) -> None:
        self.free.setdefault(-(-nbytes // 64) * 64, []).append(address)

    def read(self, host: int, address: int, nbytes: int, where: Any) -> None:
        with self.open():
            ctypes.memmove(host, address, nbytes)

    write = copy = read

    def fill(self, address: int, byte: int, nbytes: int, where: Any) -> None:
        with self.open():
            ctypes.memset(address, byte, nbytes)

    def compile(self, build: Callable[[], Any], key: str) -> Callable:
        native = jit.compile(build, key)

        def launch(*arguments: Any) -> None:
            self.launches.append(key)
            with self.open():
                native(*arguments)

        return launch
