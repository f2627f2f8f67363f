"""The CPU allocator: 64-byte aligned blocks, with freed blocks cached for reuse.

Fresh pages from the kernel cost ten times what writing them costs, so a freed block goes to a list of its size class
and the next tensor of that size takes it from there.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
from collections.abc import Iterator

from .locks import new_lock

_libc = ctypes.CDLL(None)
_aligned_alloc = _libc.aligned_alloc
_aligned_alloc.restype = ctypes.c_void_p
_aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
free = _libc.free
free.restype = None
free.argtypes = [ctypes.c_void_p]

_trim = getattr(_libc, "malloc_trim", None)
_madvise = getattr(_libc, "madvise", None)
if _madvise is not None:
    _madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

ALIGNMENT = 64
_HUGE_PAGE, _MADV_HUGEPAGE = 1 << 21, 14
_ADDRESS_SPACE = 1 << 48
# Blocks of this size and more are counted one by one and freed when too many are cached; smaller ones are only
# ever moved between the lists of free blocks and their tensors, which costs next to nothing.
LARGE = 1 << 17
# They are mapped by themselves, and gone when they are given back. The C library would put them into one area with everything else
# once some were freed, of which small ones that come later keep whole pages.
MAPPED = LARGE if sys.platform == "linux" and _madvise is not None else _ADDRESS_SPACE
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
unmap = _libc.munmap
unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_NOT_MAPPED = ctypes.c_void_p(-1).value


def _default_cache_limit() -> int:
    """Return the limit of cached bytes: a quarter of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (ValueError, OSError):
        return 1 << 30


def round_size(nbytes: int) -> int:
    """Return the size class: multiples of 64, then at most an eighth more than requested."""
    shift = nbytes.bit_length() - 4
    if shift < 6:
        shift = 6
    return ((nbytes - 1 >> shift) + 1) << shift if nbytes else ALIGNMENT


def _fresh_block(size: int) -> int | None:
    """Allocate memory from the system, in huge pages if the block is large enough for them.

    They cost one fault instead of 512 to fill, need far fewer entries of the TLB, and their contents spread evenly over the caches: with
    small pages, the time of a kernel depends on the physical addresses of its pages.
    """
    if size >= _ADDRESS_SPACE:
        return None  # it would wrap around in C and come back as a tiny block
    if size < MAPPED:
        return _aligned_alloc(ALIGNMENT, size)
    access, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    spare = _HUGE_PAGE if size >= _HUGE_PAGE else 0
    start = _mmap(None, size + spare, access, kind, -1, 0)
    if start is None or start == _NOT_MAPPED:
        return None
    if not spare:
        return start
    pointer = -(-start // _HUGE_PAGE) * _HUGE_PAGE
    for first, last in ((start, pointer), (pointer + size, start + size + _HUGE_PAGE)):  # what is too much
        if last > first:
            unmap(first, last - first)
    assert _madvise is not None
    _madvise(pointer, size, _MADV_HUGEPAGE)  # advice: where there are no huge pages, small ones do
    return pointer


def _return_to_system(pointer: int, size: int) -> None:
    """Return a block to the operating system."""
    if size < MAPPED:
        free(pointer)
    else:
        unmap(pointer, size)


def make_sure_of(size: int, purpose: str) -> None:
    """Raise an error unless the process can allocate this much memory now: for libraries that abort the process if they cannot."""
    for last in (False, True):
        try:
            mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
            return
        except (OSError, MemoryError):
            if last:
                raise RuntimeError(
                    f"DefaultCPUAllocator: can't allocate memory: {size} bytes {purpose} ({allocator.allocated()} bytes are in use"
                    " by tensors). Buy new RAM or use smaller tensors!"
                ) from None
            allocator.empty_cache()


class CachingAllocator:
    """Cached blocks by size class, with the statistics that `flambeau.cpu.memory_stats()` shows."""

    def __init__(self) -> None:
        self.free_blocks: dict[int, list[int]] = {}
        self.small_reserved = 0  # bytes taken from the system in small blocks
        self.large_allocated = 0
        self.large_cached = 0
        self.peak = 0
        self.system_calls = 0
        self.cache_limit = self._usual_limit = _default_cache_limit()
        self._sparing, self._lock = 0, new_lock()  # `sparing` contexts that are open, in any thread

    def allocate(self, size: int) -> int:
        """Return the address of a block of exactly `size` bytes, which must be a size class (see round_size)."""
        blocks = self.free_blocks.get(size)
        if blocks:
            pointer = blocks.pop()
            if size >= LARGE:
                self.large_cached -= size
        else:
            pointer = self._from_system(size)
            if blocks is None:
                self.free_blocks[size] = []
            if size < LARGE:
                self.small_reserved += size
        if size >= LARGE:
            self.large_allocated += size
        total = self.large_allocated + self.small_reserved
        if total > self.peak:
            self.peak = total
        return pointer

    def _from_system(self, size: int) -> int:
        if size >= 1 << 63:
            raise RuntimeError(f"Storage size calculation overflowed: {size} bytes are more than an address can count")
        self.system_calls += 1
        pointer = _fresh_block(size)
        if not pointer:
            self.empty_cache()
            pointer = _fresh_block(size)
        if not pointer:
            raise RuntimeError(
                f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {size} bytes"
                f" ({self.allocated()} bytes are in use by tensors). Buy new RAM or use smaller tensors!"
            )
        return pointer

    def release(self, pointer: int, size: int) -> None:
        if size >= LARGE:
            self.large_allocated -= size
            if self.large_cached + size > self.cache_limit:
                _return_to_system(pointer, size)
                return
            self.large_cached += size
        self.free_blocks[size].append(pointer)

    def cached(self) -> int:
        """Return the number of bytes in cached free blocks."""
        return sum(size * len(blocks) for size, blocks in self.free_blocks.items())

    def allocated(self) -> int:
        """Return the bytes in blocks that tensors use."""
        return self.large_allocated + self.small_reserved - (self.cached() - self.large_cached)

    def empty_cache(self) -> None:
        """Return every cached block to the system."""
        for size, blocks in list(self.free_blocks.items()):
            while blocks:
                _return_to_system(blocks.pop(), size)
                if size >= LARGE:
                    self.large_cached -= size
                else:
                    self.small_reserved -= size
        if _trim is not None:
            _trim(ctypes.c_size_t(0))  # the C library would keep them, too

    @contextlib.contextmanager
    def sparing(self) -> Iterator[None]:
        """Context manager: empty the cache, and return large blocks to the system as soon as they are freed, small ones on exit. For work
        that is done once, while something else needs the memory."""
        self.empty_cache()
        with self._lock:
            if not self._sparing:
                self._usual_limit, self.cache_limit = self.cache_limit, 0
            self._sparing += 1
        try:
            yield
        finally:
            with self._lock:
                self._sparing -= 1
                if not self._sparing:
                    self.cache_limit = self._usual_limit
            self.empty_cache()

    def stats(self) -> dict[str, int]:
        """Return statistics. The peak counts large blocks in use; small ones count from their first allocation, for good."""
        allocated, cached = self.allocated(), self.cached()
        return {
            "allocated_bytes.current": allocated,
            "allocated_bytes.peak": max(self.peak, allocated),
            "reserved_bytes.current": allocated + cached,
            "cached_bytes.current": cached,
            "system_allocations": self.system_calls,
        }


allocator = CachingAllocator()
