"""Page-locked host memory: it is copied at full speed and asynchronously.

Blocks are cached when they are freed. One that a copy still uses is reused only after that copy."""

from __future__ import annotations

import bisect
import ctypes
from typing import Any

from ...core.locks import new_lock
from ...core.storage import UntypedStorage
from . import driver, threads

_PORTABLE = 1
_free: dict[int, list[PinnedBlock]] = {}
_addresses: list[int] = []  # starts of all blocks, in order
_blocks: dict[int, PinnedBlock] = {}
_lock = new_lock()


class PinnedBlock:
    """A locked block and the events of copies that use it."""

    __slots__ = ("address", "size", "events")

    def __init__(self, size: int):
        threads.activate(threads.mine.chosen)
        self.size = size
        self.address = driver.number("cuMemHostAlloc", size, _PORTABLE, kind=ctypes.c_void_p)
        self.events: list[int] = []

    def is_idle(self) -> bool:
        functions = driver.functions()
        while self.events and functions.cuEventQuery(self.events[-1]) != driver.NOT_READY:
            functions.cuEventDestroy_v2(self.events.pop())
        return not self.events


class Lease:
    """Ownership of a block by a storage."""

    __slots__ = ("block",)
    is_pinned = True

    def __init__(self, block: PinnedBlock):
        self.block = block

    def __del__(self) -> None:
        _free.setdefault(self.block.size, []).append(self.block)


def storage(nbytes: int) -> UntypedStorage:
    """Return a storage on the CPU whose memory is page-locked."""
    if not nbytes:
        return UntypedStorage(0)
    size = 1 << max(9, (nbytes - 1).bit_length())
    block = _reusable(size)
    if block is None:
        block = PinnedBlock(size)
        with _lock:
            bisect.insort(_addresses, block.address)
            _blocks[block.address] = block
    return UntypedStorage.borrow(block.address, nbytes, Lease(block))


def _reusable(size: int) -> PinnedBlock | None:
    blocks = _free.get(size, [])
    for _ in range(len(blocks)):
        block = blocks.pop(0)
        if block.is_idle():
            return block
        blocks.append(block)
    return None


def _block_at(host: int) -> PinnedBlock | None:
    at = bisect.bisect_right(_addresses, host) - 1
    if at < 0:
        return None
    block = _blocks[_addresses[at]]
    return block if host < block.address + block.size else None


def holds(host: int) -> bool:
    """Return whether an address is in page-locked memory."""
    return bool(_addresses) and _block_at(host) is not None


def used(host: int, stream: int) -> None:
    """Note that a copy in a stream uses this memory."""
    block = _block_at(host) if _addresses else None
    if block is not None:
        event: Any = driver.number("cuEventCreate", 2)
        driver.call("cuEventRecord", event, stream)
        block.events.append(event)


def empty_cache() -> None:
    """Return free blocks to the system."""
    with _lock:
        for blocks in _free.values():
            for block in [b for b in blocks if b.is_idle()]:
                blocks.remove(block)
                _addresses.remove(block.address)
                del _blocks[block.address]
                driver.call("cuMemFreeHost", block.address)


def stats() -> dict[str, int]:
    """Return statistics of page-locked host memory: bytes allocated, bytes in use, number of segments."""
    reserved = sum(block.size for block in _blocks.values())
    free = sum(block.size for blocks in _free.values() for block in blocks)
    return {
        "allocated_bytes.current": reserved,
        "active_bytes.current": reserved - free,
        "segment.current": len(_blocks),
    }
