"""Shared memory of the ranks of one machine, with a barrier.

Every rank has a line of control words and, twice, a slot for its data. In each phase the ranks write their slots, synchronize, and read
each other's; the next phase uses the other half, so one barrier for each phase is enough: nobody writes a slot again before all have
reached the next barrier, and a rank reaches it only when it has read what it needs.

A waiting rank polls the words for a few microseconds and then sleeps in the kernel (a futex), so that waiting takes no core from those that
compute. A rank that dies is noticed through its process descriptor."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import select
import sys
import time
from collections.abc import Sequence
from datetime import timedelta

from ..core.shared_memory import SharedBlock
from .store import Store

_SYSTEM_CALL = {"x86_64": 202}.get(platform.machine())  # futex; other machines would need fences between the stores
_WAIT, _WAKE = 0, 1
_WORDS_BYTES = 512  # control words of each rank: its phase, whether it gave up, and what it does in the two halves
_GAVE_UP, _TEXT, _TEXT_SIZE = 1, 64, 192
_POLLS_BEFORE_SLEEP = 150  # at a word, before sleeping
_SLEEP_SECONDS = 0.1  # seconds of sleep between two looks at whether the others live

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
memmove = ctypes.memmove


class _Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_int64)]


_SLEEP_TIME = _Time(int(_SLEEP_SECONDS), int(_SLEEP_SECONDS % 1 * 1e9))


@functools.lru_cache(maxsize=4096)
def announcement(what: str) -> bytes:
    """Encode a rank's description of its current operation, truncated or padded to a fixed size."""
    return what.encode(errors="replace")[: _TEXT_SIZE - 1].ljust(_TEXT_SIZE, b"\0")


def supported() -> bool:
    """Return whether ranks of one machine can share memory on this system."""
    return sys.platform == "linux" and _SYSTEM_CALL is not None and hasattr(os, "pidfd_open")


def machine() -> str:
    """Return a text that is equal for processes that can see each other's memory: boot id and process namespace."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}/{os.getuid()}"


class Peers:
    """The processes of the ranks, and which of them have ended."""

    def __init__(self, pids: Sequence[int]):
        self.pids = list(pids)
        self.descriptors: dict[int, int] = {}
        self.gone: set[int] = set()
        for rank, pid in enumerate(pids):
            try:
                self.descriptors[rank] = os.pidfd_open(pid)
            except ProcessLookupError:
                self.gone.add(rank)

    def dead(self) -> list[int]:
        """Return the ranks whose process has ended."""
        poll = select.poll()
        ranks = {descriptor: rank for rank, descriptor in self.descriptors.items()}
        for descriptor in ranks:
            poll.register(descriptor, select.POLLIN)
        return sorted(self.gone | {ranks[descriptor] for descriptor, _ in poll.poll(0)})

    def close(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.popitem()[1])


class Missing(Exception):
    """Raised when ranks have timed out, or have ended."""

    def __init__(self, ranks: list[int], dead: bool):
        super().__init__(ranks)
        self.ranks, self.dead = ranks, dead


class GaveUp(Exception):
    """Raised when another rank has met an error and takes no further part."""

    def __init__(self, rank: int):
        super().__init__(rank)
        self.rank = rank


class Window:
    """Shared memory of the ranks of one group, all on one machine. `capacity` is the size of a slot."""

    def __init__(self, store: Store, name: str, rank: int, size: int, capacity: int, timeout: timedelta, peers: Peers):
        self.rank, self.size, self.capacity, self.peers = rank, size, capacity, peers
        control = (size * _WORDS_BYTES + 4095) // 4096 * 4096
        nbytes = control + 2 * size * capacity
        self.block = self._map(store, name, nbytes, timeout)
        base = self.block.ptr
        self.slots = [[base + control + (half * size + r) * capacity for r in range(size)] for half in (0, 1)]
        self._memory = memoryview((ctypes.c_char * control).from_address(base)).cast("B")
        self._words = self._memory.cast("I")
        self._addresses = [base + r * _WORDS_BYTES for r in range(size)]
        self._indices = [r * _WORDS_BYTES // 4 for r in range(size)]
        self._text_starts = [[r * _WORDS_BYTES + _TEXT + half * _TEXT_SIZE for r in range(size)] for half in (0, 1)]
        self._others = [r for r in range(size) if r != rank]
        self.phase = 0

    def _map(self, store: Store, name: str, nbytes: int, timeout: timedelta) -> SharedBlock:
        """Create the memory on rank 0, and open it on the others through its process: no name can be left behind."""
        if self.rank == 0:
            block = SharedBlock.allocate(nbytes)
            store.set(f"{name}/block", f"{os.getpid()} {block.fd}")
        else:
            self._await_keys(store, {f"{name}/block": 0}, timeout)
            pid, descriptor = store.get(f"{name}/block").split()
            block = SharedBlock(os.open(f"/proc/{int(pid)}/fd/{int(descriptor)}", os.O_RDWR), nbytes, keep_fd=False)
        store.set(f"{name}/mapped/{self.rank}", "1")
        self._await_keys(store, {f"{name}/mapped/{r}": r for r in range(self.size)}, timeout)
        block.give_up_descriptor()
        return block

    def _await_keys(self, store: Store, keys: dict[str, int], timeout: timedelta) -> None:
        """Wait for keys, each set by one rank; raises an error that names the missing ranks."""
        deadline = time.monotonic() + timeout.total_seconds()
        while True:
            try:
                store.wait(list(keys), timedelta(seconds=max(0.001, min(1.0, deadline - time.monotonic()))))
                return
            except RuntimeError:
                missing = [rank for key, rank in keys.items() if not store.check([key])]
            dead = [r for r in self.peers.dead() if r in missing]
            if dead and store.check([key for key, rank in keys.items() if rank in dead]):
                continue  # they set their keys, and ended then
            if dead or (missing and time.monotonic() >= deadline):
                raise Missing(dead or missing, bool(dead))

    @property
    def half(self) -> int:
        return self.phase & 1

    def announce(self, text: bytes) -> None:
        """Publish this rank's operation in this phase; `text` is made by `announcement`."""
        start = self._text_starts[self.phase & 1][self.rank]
        self._memory[start : start + _TEXT_SIZE] = text

    def announced(self, rank: int, half: int) -> memoryview:
        start = self._text_starts[half][rank]
        return self._memory[start : start + _TEXT_SIZE]

    def meet(self, deadline: float) -> int:
        """Wait until all ranks have reached the end of this phase; return the half it was in."""
        half = self.phase & 1
        self.phase = target = (self.phase + 1) & 0xFFFFFFFF
        words = self._words
        words[self._indices[self.rank]] = target
        _syscall(_SYSTEM_CALL, ctypes.c_void_p(self._addresses[self.rank]), _WAKE, 0x7FFFFFFF, None, None, 0)
        for other in self._others:
            index = self._indices[other]
            if (words[index] - target) & 0x80000000:
                self._wait(other, index, target, deadline)
        return half

    def _wait(self, other: int, index: int, target: int, deadline: float) -> None:
        words = self._words
        for _ in range(_POLLS_BEFORE_SLEEP):
            if not (words[index] - target) & 0x80000000:
                return
        address = ctypes.c_void_p(self._addresses[other])
        while (words[index] - target) & 0x80000000:
            seen = words[index]
            if not (seen - target) & 0x80000000:
                return
            _syscall(_SYSTEM_CALL, address, _WAIT, ctypes.c_uint32(seen), ctypes.byref(_SLEEP_TIME), None, 0)
            if (words[index] - target) & 0x80000000:
                self._check_missing(target, deadline)

    def _check_missing(self, target: int, deadline: float) -> None:
        missing = [r for r in self._others if (self._words[self._indices[r]] - target) & 0x80000000]
        dead = [r for r in self.peers.dead() if r in missing]
        dead = [r for r in dead if (self._words[self._indices[r]] - target) & 0x80000000]  # some came, and ended then
        if dead:
            self.give_up()
            raise Missing(dead, True)
        for r in missing:
            if self._words[self._indices[r] + _GAVE_UP]:
                self.give_up()
                raise GaveUp(r)
        if time.monotonic() > deadline:
            self.give_up()
            raise Missing(missing, False)

    def give_up(self) -> None:
        """Notify the others that this rank will take no further part."""
        self._words[self._indices[self.rank] + _GAVE_UP] = 1

    def close(self) -> None:
        if self.block is not None:
            self.give_up()
            self._words.release()
            self._memory.release()
            self.block = None  # type: ignore[assignment]
