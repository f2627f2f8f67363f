"""Planned memory of a graph: a first capture, which is not run, shows the lifetimes of buffers; a second one has each in its place.

The first uses addresses without memory (a `Sketch`). Buffers with disjoint lifetimes then share memory: free memory in the segments of other
work, as far as that suffices, and one segment for the rest (a `Planned` pool)."""

from __future__ import annotations

import bisect
import ctypes
import math
from typing import Any, NamedTuple

import numpy as np

from . import driver, threads
from .memory import LARGE_ROUND, SMALL, Block, DeviceMemory, Pool, relaxed, segment_size

_FOR_GOOD = 1 << 62  # the end of blocks that still exist when the capture is over
_CHUNK = 1 << 30  # of addresses
_ATTACHED = 1  # CU_MEM_ATTACH_GLOBAL
_LEAST_HOLE = 4096


class _Straight:
    """Replacement of the bins of a pool that places every block itself."""

    def __init__(self, pool: Sketch | Planned):
        self.pool = pool

    def __getitem__(self, size: int) -> _Straight:
        return self

    def pop(self) -> Block:
        raise IndexError

    def append(self, block: Block) -> None:
        self.pool.freed(block)

    def items(self) -> tuple[Any, ...]:
        return ()


class Sketch(Pool):
    """Addresses for a capture that is not run. Managed memory is allocated when it is first touched, which never happens."""

    def __init__(self, stream: int):
        super().__init__(stream, private=True)
        self.bins = _Straight(self)
        self.graphs = 0
        self.spans: list[list[int]] = []  # of each block: size, when it is made, when it is freed
        self.alive: dict[int, int] = {}  # address -> position in spans

    def begin(self, memory: DeviceMemory) -> bool:
        """Reserve the first addresses; return whether the driver provides any."""
        self.peak = memory.peak  # of what is allocated: addresses take no memory
        try:
            self.grow(memory, SMALL)
            self.grow(memory, SMALL + 1)
        except driver.CudaError:
            return False
        return True

    def best(self, size: int, most: float = math.inf) -> Block | None:
        block = super().best(size, most)
        if block is not None:
            self.alive[block.address] = len(self.spans)
            self.spans.append([size, len(self.spans), _FOR_GOOD])
        return block

    def freed(self, block: Block) -> None:
        self.spans[self.alive.pop(block.address)][2] = len(self.spans)
        self.put(block)

    def grow(self, memory: DeviceMemory, size: int) -> None:
        wanted = max(segment_size(size), _CHUNK)
        threads.activate(memory.index)
        place = ctypes.c_uint64()
        with relaxed():
            driver.check(
                driver.functions().cuMemAllocManaged(ctypes.byref(place), wanted, _ATTACHED), "cuMemAllocManaged"
            )
        self.segments[place.value] = wanted
        self.put(Block(place.value, wanted, self, size <= SMALL))

    def give_back(self, memory: DeviceMemory) -> bool:
        if self.graphs or self.alive:
            return False
        for address in self.segments:
            driver.call("cuMemFree_v2", address)
        self.segments.clear()
        return True


class MemoryPlan(NamedTuple):
    """For each block in turn its size, the index of its hole (the last is memory of its own), and its offset in that; how much of each hole
    is used, and the size of the memory of its own, as the driver allocates it."""

    places: list[tuple[int, int, int]]
    used: list[int]
    rest: int


class _Room:
    """A stretch of memory for blocks with disjoint lifetimes."""

    def __init__(self, size: int, count: int):
        self.size, self.used, self.count = size, 0, 0
        self.first, self.last, self.start, self.end = (np.empty(count, np.int64) for _ in range(4))

    def place(self, size: int, first: int, last: int) -> int | None:
        """Return the lowest offset with `size` bytes free between two times, or None."""
        n = self.count
        together = np.flatnonzero((self.first[:n] < last) & (self.last[:n] > first))
        at = 0
        if len(together):
            starts = self.start[:n][together]
            order = np.argsort(starts)
            starts = starts[order]
            tops = np.maximum.accumulate(self.end[:n][together][order])
            gaps = np.flatnonzero(starts - np.concatenate(([0], tops[:-1])) >= size)
            at = int(tops[-1]) if not len(gaps) else int(tops[gaps[0] - 1]) if gaps[0] else 0
        if at + size > self.size:
            return None
        self.first[n], self.last[n], self.start[n], self.end[n] = first, last, at, at + size
        self.count, self.used = n + 1, max(self.used, at + size)
        return at


def plan(spans: list[list[int]], holes: list[int]) -> MemoryPlan:
    """Place blocks by size and lifetime in shared memory: large ones first, each in the first hole with room for it."""
    rooms = [_Room(size, len(spans)) for size in (*holes, _FOR_GOOD)]
    places: list[Any] = [None] * len(spans)
    for i in sorted(range(len(spans)), key=lambda i: -spans[i][0]):
        size, first, last = spans[i]
        for number, room in enumerate(rooms):
            if size <= room.size:
                at = room.place(size, first, last)
                if at is not None:
                    places[i] = size, number, at
                    break
    return MemoryPlan(places, [room.used for room in rooms[:-1]], -(-rooms[-1].used // LARGE_ROUND) * LARGE_ROUND)


class Planned(Pool):
    """The memory of a graph whose blocks are requested as in the sketch. If they differ, more memory is allocated, as in other pools."""

    def __init__(self, stream: int, memory: DeviceMemory, lender: Pool, free: list[Block], found: MemoryPlan):
        super().__init__(stream, private=True)
        self.bins = _Straight(self)
        self.graphs = 0
        self.lender = lender
        self.holes = [b for b, used in zip(free, found.used) if used]
        for block, used in zip(free, found.used):
            if used:
                lender.take(block, used)
        starts = [b.address for b in free]
        self.own: Block | None = None
        if found.rest:
            self.own = Block(memory.new_segment(self, found.rest, found.rest), found.rest, self, False)
            starts.append(self.own.address)
        self.script = [(size, starts[number] + at) for size, number, at in found.places]
        self.next = 0  # in the script
        self.alive: list[tuple[int, int]] = []  # from, to: stretches that are placed as planned

    @staticmethod
    def make(memory: DeviceMemory, sketch: Sketch, outside: int, limit: float = math.inf) -> Planned | None:
        """Allocate memory for a sketch, part of which may be free memory of the stream `outside`; None if more would have to be reserved than
        the limit allows."""
        with memory.lock:
            lender = memory.pools.get(outside) or Pool(outside)
            lender.flush()
            free = [b for blocks in lender.free.values() for _, _, b in blocks if b.size >= _LEAST_HOLE]
            found = plan(sketch.spans, [b.size for b in free])
            if memory.reserved + found.rest > limit:
                return None
            return Planned(sketch.stream, memory, lender, free, found)

    def best(self, size: int, most: float = math.inf) -> Block | None:
        if self.next < len(self.script):
            wanted, address = self.script[self.next]
            self.next = self.next + 1 if wanted == size else len(self.script)
            if wanted == size and self._is_free(address, address + size):
                bisect.insort(self.alive, (address, address + size))
                return Block(address, size, self, False)
        return super().best(size, most)

    def _is_free(self, start: int, end: int) -> bool:
        at = bisect.bisect_left(self.alive, (start, 0))
        return (at == 0 or self.alive[at - 1][1] <= start) and (at == len(self.alive) or self.alive[at][0] >= end)

    def freed(self, block: Block) -> None:
        span = block.address, block.address + block.size
        at = bisect.bisect_left(self.alive, span)
        if at < len(self.alive) and self.alive[at] == span:
            del self.alive[at]
        else:
            self.put(block)

    def bytes(self) -> int:
        return super().bytes() + sum(block.size for block in self.holes)

    def give_back(self, memory: DeviceMemory) -> bool:
        if self.graphs or self.alive:
            return False
        for block in self.holes:
            self.lender.put(block)
        if self.own is not None:
            self.put(self.own)
        self.holes, self.script, self.own = [], [], None
        return super().give_back(memory)
