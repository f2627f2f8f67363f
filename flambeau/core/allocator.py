"""The CPU allocator: 64-byte aligned blocks, freed blocks kept for reuse.

Fresh pages from the kernel cost ten times what writing them costs, so a freed block goes to a list of its size class
and the next tensor of that size takes it from there.
"""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None)
_aligned_alloc = _libc.aligned_alloc
_aligned_alloc.restype = ctypes.c_void_p
_aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_free = _libc.free
_free.restype = None
_free.argtypes = [ctypes.c_void_p]

ALIGNMENT = 64


def _default_cache_limit() -> int:
    """Keep at most a quarter of the machine's memory in freed blocks."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (ValueError, OSError):
        return 1 << 30


def round_size(nbytes: int) -> int:
    """The size class: multiples of 64, then at most an eighth more than asked for."""
    shift = nbytes.bit_length() - 4
    if shift < 6:
        shift = 6
    return ((nbytes - 1 >> shift) + 1) << shift if nbytes else ALIGNMENT


class CachingAllocator:
    """Blocks by size class, with the statistics `flambeau.cpu.memory_stats()` shows."""

    def __init__(self) -> None:
        self.free_blocks: dict[int, list[int]] = {}
        self.allocated = 0
        self.peak = 0
        self.cached = 0
        self.system_calls = 0
        self.cache_limit = _default_cache_limit()

    def allocate(self, size: int) -> int:
        """A block of exactly `size` bytes, which must be a size class (see round_size)."""
        blocks = self.free_blocks.get(size)
        if blocks:
            self.cached -= size
            pointer = blocks.pop()
        else:
            pointer = self._from_system(size)
        total = self.allocated = self.allocated + size
        if total > self.peak:
            self.peak = total
        return pointer

    def _from_system(self, size: int) -> int:
        self.system_calls += 1
        pointer = _aligned_alloc(ALIGNMENT, size)
        if not pointer:
            self.empty_cache()
            pointer = _aligned_alloc(ALIGNMENT, size)
        if not pointer:
            raise RuntimeError(
                f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {size} bytes"
                f" ({self.allocated} bytes are in use by tensors). Buy new RAM or use smaller tensors!"
            )
        return pointer

    def release(self, pointer: int, size: int) -> None:
        self.allocated -= size
        if self.cached + size > self.cache_limit:
            _free(pointer)
            return
        self.cached += size
        blocks = self.free_blocks.get(size)
        if blocks is None:
            self.free_blocks[size] = [pointer]
        else:
            blocks.append(pointer)

    def empty_cache(self) -> None:
        """Give every cached block back to the system."""
        for size, blocks in list(self.free_blocks.items()):
            while blocks:
                _free(blocks.pop())
                self.cached -= size

    def stats(self) -> dict[str, int]:
        return {
            "allocated_bytes.current": self.allocated,
            "allocated_bytes.peak": self.peak,
            "reserved_bytes.current": self.allocated + self.cached,
            "cached_bytes.current": self.cached,
            "system_allocations": self.system_calls,
        }

    def reset_peak(self) -> None:
        self.peak = self.allocated


allocator = CachingAllocator()
