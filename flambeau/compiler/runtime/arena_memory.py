"""The memory of arenas: shared by the programs of a thread, and returned to the system while none runs."""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from typing import Any

from ...core.storage import UntypedStorage

_LARGE = 1 << 20  # an arena of more bytes than this is worth giving back
_PAGE = mmap.PAGESIZE
_HUGE_PAGE = 1 << 21
_DONTNEED, _NOHUGEPAGE = getattr(mmap, "MADV_DONTNEED", 4), getattr(mmap, "MADV_NOHUGEPAGE", 15)
_LIBC = ctypes.CDLL(None)


class _Shared(threading.local):
    """The arena of this thread. Programs keep nothing in it between their runs, so they can share it."""

    held: Any = None  # a weak reference


_shared = _Shared()


def shared_arena(size: int) -> UntypedStorage:
    """Return the arena of this thread, reallocated if it has fewer than `size` bytes."""
    known = None if _shared.held is None else _shared.held()
    if known is None or known.size_bytes < size:
        # A quarter more than asked for: pages that are never touched cost nothing.
        known = UntypedStorage(max(size if known is None else size + size // 4, 1))
        _end_in_small_pages(known, size)
        _shared.held = weakref.ref(known)
    return known


def _end_in_small_pages(arena: UntypedStorage, size: int) -> None:
    """Use small pages for the end of an arena: the huge page in which its used part ends would be allocated as a whole."""
    start, stop = (arena.ptr + size) // _HUGE_PAGE * _HUGE_PAGE, (arena.ptr + arena.capacity) // _PAGE * _PAGE
    if arena.ptr <= start < stop and arena.capacity >= _HUGE_PAGE:
        _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _NOHUGEPAGE)


def give_back(arena: UntypedStorage, size: int, used: list[tuple[int, int]]) -> None:
    """Return an arena's memory to the system, except for the used parts (from, to); its addresses stay reserved."""
    if size <= _LARGE:
        return
    free = 0  # where free memory begins
    for start, end in [*sorted(used), (size, size)]:
        first = -(-(arena.ptr + free) // _PAGE) * _PAGE
        length = (arena.ptr + start - first) // _PAGE * _PAGE
        if length > 0:
            _LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), _DONTNEED)
        free = max(free, end)
