"""Collectives through shared memory of the ranks of one machine (see `window`).

All of them consist of rounds: every rank writes into its slot, all synchronize, every rank reads what it needs. Long messages take several
rounds."""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from ..core.locks import new_lock
from .errors import DistBackendError
from .mailbox import Mailbox
from .reduce_op import RedOpType, array_at, combiner
from .store import Store
from .window import GaveUp, Missing, Peers, Window, announcement, machine, memmove

# Bytes: of a slot in the small and in the large window; of that window.
_SMALL, _LARGE, _ALL_LARGE = 16 << 10, 2 << 20, 32 << 20


class Memory(NamedTuple):
    """Contiguous bytes of a tensor; `owner` keeps them alive."""

    address: int
    nbytes: int
    owner: Any

    def read(self, start: int, count: int, to: int) -> None:
        """Copy some of the bytes to an address."""
        memmove(to, self.address + start, count)

    def write(self, start: int, count: int, source: int) -> None:
        """Copy bytes from an address into this memory."""
        memmove(self.address + start, source, count)


class Parts:
    """Memory ranges treated as one contiguous range, without a copy. A part may be shorter than its slot; the rest is neither read nor
    written."""

    __slots__ = ("nbytes", "parts")

    def __init__(self, memories: Sequence[Memory], rooms: Sequence[int]):
        self.parts, self.nbytes = [], 0
        for memory, room in zip(memories, rooms):
            self.parts.append((self.nbytes, self.nbytes + min(memory.nbytes, room), memory))
            self.nbytes += room

    def read(self, start: int, count: int, to: int) -> None:
        for low, high, memory in self.parts:
            begin, end = max(start, low), min(start + count, high)
            if begin < end:
                memmove(to + begin - start, memory.address + begin - low, end - begin)

    def write(self, start: int, count: int, source: int) -> None:
        for low, high, memory in self.parts:
            begin, end = max(start, low), min(start + count, high)
            if begin < end:
                memmove(memory.address + begin - low, source + begin - start, end - begin)


_NO_MEMORY = Memory(0, 0, None)


@functools.cache
def _reduction(name: str, op: RedOpType, dtype: Any) -> str:
    return f"{name} {op.name} of {dtype}"


class SharedEngine:
    """Engine for `size` processes of one machine. Runs one operation at a time; the caller ensures that."""

    name = "shared memory"
    takes_parts = True  # all_gather and reduce_scatter take `Parts` for `Memory`

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta, ranks: Sequence[int]):
        self.store, self.rank, self.size, self.timeout = store, rank, size, timeout
        self.ranks = list(ranks)  # what the members are called in the world, for messages
        self.mailbox = Mailbox(store, rank, size, self)
        self._peers: Peers | None = None
        self._windows: dict[bool, Window] = {}
        self._failure: str | None = None
        self._what = self.detail = ""
        self._deadline = 0.0
        self._waits = 0.0
        self._most = 0  # bytes of the longest message in the exchange that runs
        self._starting = new_lock()

    # -- who is there -------------------------------------------------------------------------------------------------

    @staticmethod
    def describe() -> str:
        """Return the description of this process that the others need."""
        return f"{machine()} {os.getpid()}"

    def peers(self) -> Peers:
        with self._starting:
            if self._peers is None:
                told = self.store.multi_get([f"process/{r}" for r in range(self.size)])
                self._peers = Peers([int(text.rpartition(b" ")[2]) for text in told])
            return self._peers

    def _window(self, large: bool) -> Window:
        window = self._windows.get(large)
        if window is None:
            capacity = max(_SMALL, min(_LARGE, _ALL_LARGE // (2 * self.size))) // 4096 * 4096 if large else _SMALL
            name = "large" if large else "small"
            left = timedelta(seconds=max(0.001, self._deadline - time.monotonic()))
            try:
                window = Window(self.store, name, self.rank, self.size, capacity, left, self.peers())
            except Missing as problem:
                raise self._missing_ranks_error(problem) from None
            self._windows[large] = window
        return window

    def _explain(self, ranks: list[int]) -> str:
        names = ", ".join(str(self.ranks[r]) for r in ranks)
        return f"[Rank {self.ranks[self.rank]}]: {self._what}: rank {names}"

    def _missing_ranks_error(self, problem: Missing) -> DistBackendError:
        """Return the error about ranks that timed out or ended."""
        who = self._explain(problem.ranks)
        if problem.dead:
            pids = ", ".join(str(self.peers().pids[r]) for r in problem.ranks)
            self._failure = f"{who} (process {pids}) has ended. Connection closed by peer"
        else:
            self._failure = f"{who} did not come. Timed out waiting {self._waits * 1000:.0f}ms for it"
        return DistBackendError(self._failure)

    def _begin_operation(self, what: str, timeout: float) -> None:
        if self._failure is not None:
            raise DistBackendError(f"{what}: this process group has failed before: {self._failure}")
        self._what, self._waits = what + self.detail, timeout
        self._deadline = time.monotonic() + timeout

    def _synchronize(self, window: Window) -> int:
        try:
            return window.meet(self._deadline)
        except Missing as problem:
            raise self._missing_ranks_error(problem) from None
        except GaveUp as problem:
            self._failure = (
                self._explain([problem.rank]) + " gave up after an error of its own. Connection closed by peer"
            )
            raise DistBackendError(self._failure) from None
        except BaseException:  # KeyboardInterrupt: the others wait in vain from now on
            self._failure = "it was interrupted"
            window.give_up()
            raise

    def _check_same_operation(self, window: Window, half: int, mine: bytes) -> None:
        """Raise unless all ranks run the same operation; `mine` is the one that this rank has announced."""
        for other in range(self.size):
            theirs = window.announced(other, half)
            if theirs != mine:
                said = bytes(theirs).rstrip(b"\0").decode(errors="replace")
                self._failure = (
                    f"Detected mismatch between collectives on ranks. Rank {self.ranks[self.rank]} is running collective:"
                    f" {mine.rstrip(bytes(1)).decode()}, but Rank {self.ranks[other]} is running collective: {said}."
                )
                for one in self._windows.values():
                    one.give_up()
                raise DistBackendError(self._failure)

    def _transfer(
        self,
        what: str,
        timeout: float,
        nbytes: int,
        unit: int,
        put: Callable[[int, int, int], None],
        take: Callable[[int, int, list[int]], None],
    ) -> None:
        """Transfer `nbytes` in pieces of whole `unit`s: put(start, count, slot), synchronize, take(start, count, slots)."""
        if self.size == 1:
            scratch = ctypes.create_string_buffer(nbytes)
            put(0, nbytes, ctypes.addressof(scratch))
            take(0, nbytes, [ctypes.addressof(scratch)])
            return
        if nbytes == 0:
            self.barrier(timeout, f"{what}, 0 bytes")
            return
        self._begin_operation(what, timeout)
        window = self._window(nbytes > _SMALL)
        piece = window.capacity // unit * unit
        text = announcement(f"{self._what}, {nbytes} bytes")
        start = 0
        while start < nbytes:
            count = min(piece, nbytes - start)
            window.announce(text)
            put(start, count, window.slots[window.half][self.rank])
            half = self._synchronize(window)
            if start == 0:
                self._check_same_operation(window, half, text)
            take(start, count, window.slots[half])
            start += count

    # -- collectives --------------------------------------------------------------------------------------------------

    def barrier(self, timeout: float, what: str = "barrier") -> None:
        if self.size > 1:
            self._begin_operation(what, timeout)
            window = self._window(False)
            text = announcement(self._what)
            window.announce(text)
            self._check_same_operation(window, self._synchronize(window), text)

    def broadcast(self, memory: Memory, root: int, timeout: float) -> None:
        mine = self.rank == root

        def put(start: int, count: int, slot: int) -> None:
            if mine:
                memmove(slot, memory.address + start, count)

        def take(start: int, count: int, slots: list[int]) -> None:
            if not mine:
                memmove(memory.address + start, slots[root], count)

        if self.size > 1:
            self._transfer(f"broadcast from {root}", timeout, memory.nbytes, 1, put, take)

    def all_gather(
        self, memory: Memory | Parts, outputs: Sequence[Memory | Parts], timeout: float, root: int | None = None
    ) -> None:
        """Copy every rank's memory to every rank, or to one root only."""

        def put(start: int, count: int, slot: int) -> None:
            memory.read(start, count, slot)

        def take(start: int, count: int, slots: list[int]) -> None:
            if root is None or root == self.rank:
                for output, slot in zip(outputs, slots):
                    output.write(start, count, slot)

        what = "all_gather" if root is None else f"gather to {root}"
        self._transfer(what, timeout, memory.nbytes, 1, put, take)

    def gather(self, memory: Memory, outputs: Sequence[Memory], root: int, timeout: float) -> None:
        self.all_gather(memory, outputs, timeout, root)

    def reduce(self, memory: Memory, dtype: Any, op: RedOpType, root: int, timeout: float) -> None:
        combine = combiner(op, dtype)

        def put(start: int, count: int, slot: int) -> None:
            memmove(slot, memory.address + start, count)

        def take(start: int, count: int, slots: list[int]) -> None:
            if self.rank == root:
                self._sum(memory.address + start, slots, count // dtype.itemsize, dtype, combine)

        if self.size > 1:
            what = f"{_reduction('reduce', op, dtype)} to {root}"
            self._transfer(what, timeout, memory.nbytes, dtype.itemsize, put, take)

    def _sum(self, target: int, sources: Sequence[int], count: int, dtype: Any, combine: Callable) -> None:
        """Set target to sources[0] + sources[1] + ..."""
        out = array_at(target, count, dtype)
        combine(array_at(sources[0], count, dtype), array_at(sources[1], count, dtype), out)
        for source in sources[2:]:
            combine(out, array_at(source, count, dtype), out)

    def all_reduce(self, memory: Memory, dtype: Any, op: RedOpType, timeout: float) -> None:
        if self.size == 1:
            combiner(op, dtype)  # what cannot be reduced is an error with one rank, too
            return
        combine = combiner(op, dtype)
        if memory.nbytes <= _SMALL:

            def put(start: int, count: int, slot: int) -> None:
                memmove(slot, memory.address + start, count)

            def take(start: int, count: int, slots: list[int]) -> None:
                self._sum(memory.address + start, slots, count // dtype.itemsize, dtype, combine)

            self._transfer(_reduction("all_reduce", op, dtype), timeout, memory.nbytes, dtype.itemsize, put, take)
        else:
            self._all_reduce_large(memory, dtype, op, combine, timeout)

    def _all_reduce_large(self, memory: Memory, dtype: Any, op: RedOpType, combine: Callable, timeout: float) -> None:
        """Let each rank reduce a share of every piece and distribute the result. Its own share of its own data is not copied."""
        self._begin_operation(_reduction("all_reduce", op, dtype), timeout)
        window, unit = self._window(True), dtype.itemsize
        text = announcement(f"{self._what}, {memory.nbytes} bytes")
        piece = window.capacity // (unit * self.size) * unit * self.size
        for start in range(0, memory.nbytes, piece):
            count = min(piece, memory.nbytes - start)
            share = -(-count // (unit * self.size)) * unit
            bounds = [min(r * share, count) for r in range(self.size + 1)]
            low, high = bounds[self.rank], bounds[self.rank + 1]
            at = memory.address + start
            slot = window.slots[window.half][self.rank]
            if low:
                memmove(slot, at, low)
            if high < count:
                memmove(slot + high, at + high, count - high)
            window.announce(text)
            half = self._synchronize(window)
            if start == 0:
                self._check_same_operation(window, half, text)
            result = window.slots[window.half][self.rank]
            if high > low:
                self._reduce_slots(at + low, window.slots[half], low, (high - low) // unit, dtype, combine)
                memmove(result, at + low, high - low)
            window.announce(text)
            half = self._synchronize(window)
            for r in range(self.size):
                if r != self.rank and bounds[r + 1] > bounds[r]:
                    memmove(at + bounds[r], window.slots[half][r], bounds[r + 1] - bounds[r])

    def _reduce_slots(self, own: int, slots: list[int], low: int, count: int, dtype: Any, combine: Callable) -> None:
        out = array_at(own, count, dtype)
        for r in range(self.size):
            if r != self.rank:
                combine(out, array_at(slots[r] + low, count, dtype), out)

    def scatter(self, memory: Memory, inputs: Sequence[Memory], root: int, timeout: float) -> None:
        outputs = [memory if r == root else _NO_MEMORY for r in range(self.size)]
        self._exchange(
            f"scatter from {root}", inputs if self.rank == root else [_NO_MEMORY] * self.size, outputs, timeout
        )

    def all_to_all(self, inputs: Sequence[Memory], outputs: Sequence[Memory], timeout: float) -> None:
        self._exchange("all_to_all", inputs, outputs, timeout)

    def reduce_scatter(
        self, memory: Memory, inputs: Sequence[Memory | Parts], dtype: Any, op: RedOpType, timeout: float
    ) -> None:
        """Set memory to the sum over all ranks of their inputs[this rank]."""
        combine = combiner(op, dtype)
        if self.size == 1:
            inputs[0].read(0, memory.nbytes, memory.address)
            return

        def take(start: int, count: int, parts: list[int]) -> None:
            self._sum(memory.address + start, parts, count // dtype.itemsize, dtype, combine)

        outputs = [memory] * self.size
        self._exchange(_reduction("reduce_scatter", op, dtype), inputs, outputs, timeout, dtype.itemsize, take)

    def _exchange(
        self,
        what: str,
        inputs: Sequence[Memory | Parts],
        outputs: Sequence[Memory],
        timeout: float,
        unit: int = 1,
        take: Callable[[int, int, list[int]], None] | None = None,
    ) -> None:
        """Send inputs[r] to rank r, receive outputs[r] from it; sizes may differ, so the ranks first agree on the number of rounds."""
        if self.size == 1:
            inputs[0].read(0, outputs[0].nbytes, outputs[0].address)
            return
        self._begin_operation(what, timeout)
        sizes = [m.nbytes for m in inputs]
        text = None
        if take is not None and set(sizes) == {outputs[0].nbytes} and sizes[0]:  # then it is so on all ranks
            self._most, text = sizes[0], announcement(f"{self._what}, {sizes[0]} bytes for each")
        else:
            self._longest_message(sizes, [m.nbytes for m in outputs])
        window = self._window(self._most * self.size > _SMALL)
        part = window.capacity // self.size // max(unit, 16) * max(unit, 16)
        for start in range(0, self._most, part):
            slot = window.slots[window.half][self.rank]
            for r, source in enumerate(inputs):
                count = min(part, source.nbytes - start)
                if count > 0:
                    source.read(start, count, slot + r * part)
            if text is not None:
                window.announce(text)
            half = self._synchronize(window)
            if text is not None and start == 0:
                self._check_same_operation(window, half, text)
            parts = [window.slots[half][r] + self.rank * part for r in range(self.size)]
            if take is not None:
                count = min(part, outputs[0].nbytes - start)
                if count > 0:
                    take(start, count, parts)
                continue
            for r, target in enumerate(outputs):
                count = min(part, target.nbytes - start)
                if count > 0:
                    memmove(target.address + start, parts[r], count)

    def _longest_message(self, sizes: list[int], expected: list[int]) -> None:
        """Publish the sizes of this rank's messages; find the longest message between any two ranks."""
        window = self._window(False)
        row = struct.pack(f"<{self.size}q", *sizes)
        text = announcement(self._what)
        window.announce(text)
        memmove(window.slots[window.half][self.rank], row, len(row))
        half = self._synchronize(window)
        self._check_same_operation(window, half, text)
        self._most = 0
        for r in range(self.size):
            theirs = struct.unpack(f"<{self.size}q", ctypes.string_at(window.slots[half][r], len(row)))
            self._most = max(self._most, *theirs)
            if theirs[self.rank] != expected[r]:
                self._failure = (
                    f"{self._what}: rank {self.ranks[r]} sends {theirs[self.rank]} bytes to rank {self.ranks[self.rank]}, which"
                    f" expects {expected[r]}"
                )
                window.give_up()
                raise DistBackendError(self._failure)

    # -- between two ranks --------------------------------------------------------------------------------------------

    def isend(self, memory: Memory, peer: int, tag: int, timeout: float) -> Any:
        return self.mailbox.send(memory, peer, tag, timeout)

    def irecv(self, memory: Memory, peer: int | None, tag: int, timeout: float) -> Any:
        return self.mailbox.receive(memory, peer, tag, timeout)

    def close(self) -> None:
        self.mailbox.close()
        for window in self._windows.values():
            window.close()
        self._windows.clear()
        if self._peers is not None:
            self._peers.close()
            self._peers = None
        self._failure = self._failure or "it was destroyed"
