"""Memory of a function's own buffers: one arena, in which buffers with disjoint lifetimes share memory. The programs of a thread share their
arena, which is returned to the system while none runs."""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from typing import Any

from ...core.storage import UntypedStorage
from ..record.steps import Launch, Ref, StepGraph, operands

_ALIGNMENT = 64
_LARGE = 1 << 20  # an arena of more bytes than this is worth giving back
_PAGE = mmap.PAGESIZE
_HUGE_PAGE = 1 << 21
_DONTNEED, _NOHUGEPAGE = getattr(mmap, "MADV_DONTNEED", 4), getattr(mmap, "MADV_NOHUGEPAGE", 15)
_LIBC = ctypes.CDLL(None)
Lives = dict[int, tuple[int, int]]


def lifetimes(graph: StepGraph, wanted: set[int]) -> Lives:
    """Return the first and the last step in which each buffer of the function's own is used."""
    found: Lives = {}
    ends: dict[int, int] = {}  # of steps that run side by side, the last
    for i, step in enumerate(graph.steps):
        if isinstance(step, Launch) and step.lane is not None:
            ends[step.lane[0]] = i
    starts: dict[int, int] = {}
    for i, step in enumerate(graph.steps):
        lane = step.lane if isinstance(step, Launch) else None
        first, last = (i, i) if lane is None else (starts.setdefault(lane[0], i), ends[lane[0]])
        for ref in step.refs():
            if ref.buffer in wanted:
                found[ref.buffer] = (found.get(ref.buffer, (first, i))[0], last)
    return found


def arrange(graph: StepGraph, wanted: set[int]) -> tuple[dict[int, int], int, dict[int, int]]:
    """Place buffers in one arena: return their offsets, its size, and which buffers share the place of which others. Large buffers are
    placed first, each at the lowest offset free during its lifetime."""
    lives = lifetimes(graph, wanted)
    instead = in_place(graph, lives)
    spans = dict(lives)
    for index, place in instead.items():
        del spans[index]
        spans[place] = (spans[place][0], max(spans[place][1], lives[index][1]))
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    offsets: dict[int, int] = {}
    total = 0
    for index in sorted(spans, key=lambda b: -graph.buffers[b].size):
        first, last = spans[index]
        size = -(-max(graph.buffers[index].size, 1) // _ALIGNMENT) * _ALIGNMENT
        at = 0
        for start, end, other_first, other_last in placed:  # in order of their offsets
            if other_first <= last and first <= other_last and start < at + size and at < end:
                at = end
        offsets[index] = at
        placed.append((at, at + size, first, last))
        placed.sort()
        total = max(total, at + size)
    offsets.update({index: offsets[place] for index, place in instead.items()})
    return offsets, total, instead


def in_place(graph: StepGraph, lives: Lives) -> dict[int, int]:
    """Find results of loops that can overwrite an operand that nothing reads later: by buffer, the first operand whose place it takes."""
    found: dict[int, int] = {}
    for i, step in enumerate(graph.steps):
        places = operands(step) if isinstance(step, Launch) else None
        if places is None:
            continue
        outputs, inputs = places
        dying = [p for p in inputs if type(p[0]) is tuple and _is_last(p[0][0], i, lives)]
        for (ref, strides), width in outputs:
            if lives.get(ref.buffer, (-1, -1))[0] != i or sum(q[0].buffer == ref.buffer for q, _ in outputs) > 1:
                continue
            for (old, walked), size in dying:
                same = [p for p, _ in inputs if type(p) is tuple and p[0].buffer == old.buffer]
                if (
                    walked == strides
                    and size == width
                    and graph.buffers[old.buffer].size == graph.buffers[ref.buffer].size
                    and old.offset == ref.offset
                    and all(p == (old, walked) for p in same)
                ):
                    found[ref.buffer] = found.get(old.buffer, old.buffer)
                    dying = [p for p in dying if p[0][0].buffer != old.buffer]
                    break
    return found


def _is_last(ref: Ref, step: int, lives: Lives) -> bool:
    """Return whether a step is the last to use a buffer, and not the one that made it."""
    first, last = lives.get(ref.buffer, (step, -1))
    return last == step and first < step


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
