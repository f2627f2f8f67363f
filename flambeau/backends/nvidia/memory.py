"""Device memory: blocks are split from large segments, cached when they are freed, and merged again when a larger one is needed.

A freed block first goes to a bin of its requested size, where the next tensor of that size finds it in one step. It may be reused at once by
work on the same stream, because that work runs after all pending reads of it; uses on other streams are noted by `record_stream`. So every
stream has a pool of its own, and a CUDA graph has a private one."""

from __future__ import annotations

import bisect
import collections
import ctypes
import math
from typing import Any

from ...core.backend import backend_of
from ...core.device import device
from ...core.errors import OutOfMemoryError
from ...core.locks import new_lock
from . import driver, threads

ROUND = 512  # every block is a multiple of this
SMALL, SMALL_SEGMENT = 1 << 20, 2 << 20  # blocks up to the one size share segments of the other
MEDIUM, MEDIUM_SEGMENT = 10 << 20, 20 << 20
LARGE_ROUND = 2 << 20
_LARGE_REST = 1 << 20  # of a large segment, less than this is not worth a block of its own
_LASTING = 4  # what stays is not cut out of a block that is larger by more than this: it would be missing in one piece from then on
# Bytes of small segments up to which a stream gets another one rather than joining freed small blocks.
_SMALL_KEPT = 64 << 20
# Of the bytes that were in use at most, those that are reserved before larger freed blocks are joined.
_SPARE = 1.5
_mine = threads.mine
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: memory may be allocated while a graph is captured


def memories() -> list[DeviceMemory]:
    """Return the memory of every GPU, from the backend of this process."""
    backend: Any = backend_of(device("cuda"))
    return backend.memories


def rounded(nbytes: int) -> int:
    """Return the size of the block for `nbytes` bytes."""
    return (nbytes + ROUND - 1) // ROUND * ROUND if nbytes > ROUND else ROUND


def segment_size(size: int) -> int:
    """Return the number of bytes to request from the driver for a block of this size."""
    if size <= SMALL:
        return SMALL_SEGMENT
    return MEDIUM_SEGMENT if size < MEDIUM else (size + LARGE_ROUND - 1) // LARGE_ROUND * LARGE_ROUND


def in_words(nbytes: int) -> str:
    """Format a number of bytes: 1536 becomes "1.50 KiB"."""
    size, unit = float(nbytes), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{nbytes} bytes" if unit == "bytes" else f"{size:.2f} {unit}"


class Block:
    """A piece of a segment: `free` to be split and merged, or in use, or in a bin to be reused."""

    __slots__ = ("address", "size", "pool", "small", "before", "after", "free", "streams", "bin")

    def __init__(self, address: int, size: int, pool: Pool, small: bool):
        self.address, self.size, self.pool, self.small = address, size, pool, small
        self.before: Block | None = None  # neighbours in the segment
        self.after: Block | None = None
        self.free = False
        self.streams: set[int] | None = None  # other streams that work on it
        self.bin: Any = None  # where it waits for the next tensor of the size it was found for, which may be a little less than its own

    def entry(self) -> tuple[int, int, Block]:
        """Return the block's entry in a sorted list of free blocks; addresses differ, so blocks themselves are never compared."""
        return self.size, self.address, self


class Pool:
    """Segments whose blocks are used in one stream's order, or belong to graphs."""

    def __init__(self, stream: int, private: bool = False):
        self.stream, self.private = stream, private
        self.bins: Any = collections.defaultdict(list)  # blocks by the size they were found for
        # Of small and of other segments, sorted.
        self.free: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}
        self.segments: dict[int, int] = {}  # address -> size
        self.small_bytes = 0  # of the segments that small blocks share
        self.graphs = 1 if private else 0  # graphs that use it

    def put(self, block: Block) -> None:
        """Make a block free, merged with its free neighbours."""
        left, right = block.before, block.after
        if left is not None and left.free:
            self._remove(left)
            self._join(left, block)
            block = left
        if right is not None and right.free:
            self._remove(right)
            self._join(block, right)
        block.free = True
        bisect.insort(self.free[block.small], block.entry())

    @staticmethod
    def _join(block: Block, next_one: Block) -> None:
        block.size += next_one.size
        block.after = next_one.after
        if block.after is not None:
            block.after.before = block

    def _remove(self, block: Block) -> None:
        blocks = self.free[block.small]
        del blocks[bisect.bisect_left(blocks, (block.size, block.address))]
        block.free = False

    def best(self, size: int, most: float = math.inf) -> Block | None:
        """Return the smallest free block of at least `size` and at most `most` bytes, split if the rest is worth keeping."""
        small = size <= SMALL
        blocks = self.free[small]
        at = bisect.bisect_left(blocks, (size, 0))
        if at == len(blocks) or blocks[at][0] > most:
            return None
        block = blocks[at][2]
        self.take(block, size)
        return block

    def take(self, block: Block, size: int) -> None:
        """Use a free block, split to this size if the rest is worth keeping."""
        self._remove(block)
        rest = block.size - size
        if rest >= ROUND if block.small else rest > _LARGE_REST:
            tail = Block(block.address + size, rest, self, block.small)
            tail.before, tail.after, tail.free = block, block.after, True
            if block.after is not None:
                block.after.before = tail
            block.after, block.size = tail, size
            bisect.insort(self.free[block.small], tail.entry())

    def flush(self, small: bool | None = None) -> bool:
        """Empty the bins (only those of small or of other blocks, if `small` is given), so that neighbours merge; return whether there was
        anything."""
        found = False
        for size, blocks in list(self.bins.items()):
            if small is not None and (size <= SMALL) is not small:
                continue
            while blocks:
                self.put(blocks.pop())
                found = True
        return found

    def joins(self, size: int, memory: DeviceMemory) -> bool:
        """Merge freed blocks for one of this size, and return whether there were any. They are left in their bins while memory is plentiful:
        a program with the same sizes in each step would split and merge them in each step."""
        small = size <= SMALL
        if not self.private:
            memory.needed = max(memory.needed, memory.allocated + size)
            spare = self.small_bytes < _SMALL_KEPT if small else memory.reserved + size < _SPARE * memory.needed
            if spare:
                return False
        return self.flush(small)

    def grow(self, memory: DeviceMemory, size: int) -> None:
        """Allocate a segment for a block of this size."""
        wanted = segment_size(size)
        self.put(Block(memory.new_segment(self, wanted, size), wanted, self, size <= SMALL))
        if size <= SMALL:
            self.small_bytes += wanted

    def bytes(self) -> int:
        """Return the number of bytes in the pool's segments."""
        return sum(self.segments.values())

    def give_back(self, memory: DeviceMemory) -> bool:
        """Return unused segments to the driver, except for those of graphs; return whether none are left."""
        self.flush()
        for block in [] if self.private and self.graphs else self.whole_segments():
            self._remove(block)
            driver.call("cuMemFree_v2", block.address)
            memory.reserved -= self.segments.pop(block.address)
            if block.small:
                self.small_bytes -= block.size
        return not self.segments

    def whole_segments(self) -> list[Block]:
        """Return the free blocks that are a whole segment each."""
        return [b for blocks in self.free.values() for _, _, b in blocks if b.before is None and b.after is None]


class DeviceMemory:
    """The allocator of one device."""

    def __init__(self, index: int):
        self.index = index
        self.lock = new_lock()
        self.pools: dict[int, Pool] = {}  # by stream
        self.of_graphs: list[Pool] = []
        self.abandoned: list[Pool] = []  # of graphs that are gone, while tensors still use them
        self.blocks: dict[int, Block] = {}  # in use, by address
        self.capturing: Pool | None = None  # where memory comes from while a graph is captured
        self.capturing_streams: frozenset[int] = frozenset()
        self.waiting: collections.deque[tuple[list[int], Block]] = collections.deque()  # until events of other streams
        self.held_back: list[Block] = []  # freed while a graph is captured, with work of other streams to wait for
        self.lasting = False  # whether allocations made now are permanent
        self.needed = 0  # the most bytes in use when there was no free block
        self.limit: int | None = None
        self.allocated = self.peak = self.reserved = self.reserved_peak = 0
        self.total_freed = self.frees = 0
        self.segment_count = self.retries = self.failures = 0

    # -- the two calls that matter ----------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """Return the address of a block of at least `nbytes` bytes, for work on the thread's current stream."""
        size = (nbytes + 511) & -512
        stream = _mine.streams[self.index]
        try:
            pool = self.pools[stream] if self.capturing is None else self._pool(stream)
            block = pool.bins[size].pop()
        except (KeyError, IndexError):
            block = self._find(size, stream)
        address = block.address
        self.blocks[address] = block
        self.allocated = now = self.allocated + block.size
        self.peak = max(self.peak, now)
        return address

    def release(self, address: int) -> None:
        """Return a block to the allocator."""
        block = self.blocks.pop(address)
        self.allocated -= block.size
        self.total_freed += block.size
        self.frees += 1
        if block.streams is None:
            block.bin.append(block)
        else:
            self._release_later(block)

    # -- looking for memory -----------------------------------------------------------------------------------------

    def is_captured(self, stream: int) -> bool:
        """Return whether work on a stream is being captured into a graph."""
        return self.capturing is not None and stream in self.capturing_streams

    def _pool(self, stream: int) -> Pool:
        if self.capturing is not None and stream in self.capturing_streams:
            return self.capturing
        found = self.pools.get(stream)
        if found is None:
            found = self.pools[stream] = Pool(stream)
        return found

    def _find(self, size: int, stream: int) -> Block:
        with self.lock:
            pool = self._pool(stream)
            if self.waiting:
                self.settle()
            most = max(_LASTING * size, MEDIUM_SEGMENT) if self.lasting else math.inf
            block = pool.best(size, most)
            if block is None and pool.joins(size, self):
                block = pool.best(size, most)
            if block is None:
                try:
                    pool.grow(self, size)
                except OutOfMemoryError:
                    if not self.lasting:
                        raise
                    self.lasting = False  # the memory that was to be spared is needed now
                    return self._find(size, stream)
                block = pool.best(size)
                assert block is not None
            block.bin = pool.bins[size]
            return block

    def new_segment(self, pool: Pool, wanted: int, size: int) -> int:
        """Allocate a segment from the driver for a pool that needs a block of some size, and return its address."""
        address = self._from_driver(wanted)
        if address is None:
            self.retries += 1
            self.empty_cache()
            address = self._from_driver(wanted)
        if address is None:
            self.failures += 1
            raise OutOfMemoryError(self._complaint(size))
        pool.segments[address] = wanted
        self.segment_count += 1
        self.reserved += wanted
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        return address

    def _from_driver(self, size: int) -> int | None:
        if self.limit is not None and self.reserved + size > self.limit:
            return None
        threads.activate(self.index)
        place = ctypes.c_uint64()
        with relaxed():
            status = driver.functions().cuMemAlloc_v2(ctypes.byref(place), size)
        if status == driver.OUT_OF_MEMORY:
            return None
        driver.check(status, "cuMemAlloc")
        return place.value

    def _complaint(self, size: int) -> str:
        free, total = self.info()
        rest = self.reserved - self.allocated
        text = (
            f"CUDA out of memory. Tried to allocate {in_words(size)}. GPU {self.index} has a total capacity of {in_words(total)}"
            f" of which {in_words(free)} is free. Of the memory of this process {in_words(self.allocated)} is in use by"
            f" tensors, and {in_words(rest)} is reserved but unallocated."
        )
        if self.limit is not None:
            text += f" This process may have {in_words(self.limit)} (set_per_process_memory_fraction)."
        held = self.largest()
        return text + (f" Tensors hold: {', '.join(held)}." if held else "")

    def largest(self, count: int = 8) -> list[str]:
        """Describe the sizes that take most of the memory in use."""
        sizes = collections.Counter(block.size for block in list(self.blocks.values()))
        ranked = sorted(sizes.items(), key=lambda entry: -entry[0] * entry[1])
        words = [f"{n} x {in_words(size)}" for size, n in ranked[:count]]
        return [*words, f"{sum(n for _, n in ranked[count:])} smaller ones"] if len(ranked) > count else words

    # -- other streams ----------------------------------------------------------------------------------------------

    def record_stream(self, address: int, stream: int) -> None:
        """Note that work on another stream uses a block: it is free again only when that work is done, too."""
        block = self.blocks.get(address)
        if block is not None and stream != block.pool.stream:
            if block.streams is None:
                block.streams = set()
            block.streams.add(stream)

    def _release_later(self, block: Block) -> None:
        if self.capturing is not None:
            self.held_back.append(block)  # events cannot be asked while a graph is captured
            return
        events = []
        threads.activate(self.index)
        for stream in block.streams or ():
            event = driver.number("cuEventCreate", 2)  # without timing
            driver.call("cuEventRecord", event, stream)
            events.append(event)
        block.streams = None
        self.waiting.append((events, block))

    def settle(self) -> None:
        """Free the blocks whose work on other streams is done."""
        if self.capturing is not None:
            return
        while self.held_back:
            self._release_later(self.held_back.pop())
        functions = driver.functions()
        for _ in range(len(self.waiting)):
            events, block = self.waiting.popleft()
            while events and functions.cuEventQuery(events[-1]) != driver.NOT_READY:
                functions.cuEventDestroy_v2(events.pop())
            if events:
                self.waiting.append((events, block))
            else:
                block.bin.append(block)

    # -- giving back ------------------------------------------------------------------------------------------------

    def empty_cache(self) -> None:
        """Return unused segments to the driver."""
        with self.lock:
            if self.capturing is not None:
                return
            threads.activate(self.index)
            driver.call("cuCtxSynchronize")
            self.settle()
            self.abandoned = [pool for pool in self.abandoned if not pool.give_back(self)]
            for pool in self.pools.values():
                pool.give_back(self)

    def leave(self, pool: Pool) -> None:
        """Note that a graph which used this pool was released."""
        pool.graphs -= 1
        if not pool.graphs and pool not in self.abandoned:
            self.of_graphs.remove(pool)
            self.abandoned.append(pool)

    # -- figures ----------------------------------------------------------------------------------------------------

    def info(self) -> tuple[int, int]:
        """Return the free and total bytes of the device."""
        threads.activate(self.index)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def reset_peak(self) -> None:
        self.peak, self.reserved_peak = self.allocated, self.reserved

    def reset_totals(self) -> None:
        self.total_freed = self.frees = self.retries = self.failures = 0

    def every_pool(self) -> list[Pool]:
        return [*self.pools.values(), *self.of_graphs, *self.abandoned]

    def snapshot(self) -> list[dict[str, Any]]:
        """Return every segment with its blocks, in the form of PyTorch's memory_snapshot."""
        with self.lock:
            used = {block.address: block for block in self.blocks.values()}
            segments = []
            for pool in self.every_pool():
                for address, size in sorted(pool.segments.items()):
                    inside = [b for a, b in sorted(used.items()) if address <= a < address + size]
                    held = sum(b.size for b in inside)
                    segments.append({
                        "device": self.index, "address": address, "total_size": size, "allocated_size": held,
                        "active_size": held, "stream": pool.stream,
                        "segment_type": "small" if size == SMALL_SEGMENT else "large",
                        "blocks": [
                            {"address": b.address, "size": b.size, "state": "active_allocated"} for b in inside
                        ],
                    })  # fmt: skip
            return segments


class relaxed:
    """Context manager: allow this thread to allocate memory although some stream is captured into a graph."""

    def __enter__(self) -> None:
        self.mode = ctypes.c_int(_RELAXED)
        driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(self.mode))

    def __exit__(self, *exc: Any) -> None:
        driver.functions().cuThreadExchangeStreamCaptureMode(ctypes.byref(self.mode))
