"""The CPU allocator: size classes, reuse, statistics, and large blocks in huge pages."""

from __future__ import annotations

import ctypes
import sys

import pytest

import flambeau
from flambeau.core.allocator import ALIGNMENT, CachingAllocator, allocator, round_size


def test_size_classes_waste_at_most_an_eighth():
    for size in (1, 63, 64, 65, 1000, 4097, 1 << 20, (1 << 20) + 1, 10**9 + 7):
        rounded = round_size(size)
        assert rounded >= size and rounded % ALIGNMENT == 0 and round_size(rounded) == rounded
        assert rounded <= max(size * 9 / 8 + ALIGNMENT, ALIGNMENT)
    assert round_size(0) == ALIGNMENT


@pytest.mark.parametrize("size", [64, 4096, 1 << 20, 1 << 21, 5 << 20])
def test_blocks_are_aligned_writable_and_reused(size):
    memory = CachingAllocator()
    block = memory.allocate(size)
    assert block % ALIGNMENT == 0
    ctypes.memset(block, 1, size)
    memory.release(block, size)
    assert memory.cached() == size and memory.allocate(size) == block and memory.system_calls == 1
    memory.release(block, size)
    memory.empty_cache()
    assert memory.cached() == memory.allocated() == 0 and memory.stats()["allocated_bytes.peak"] >= size


@pytest.mark.skipif(sys.platform != "linux", reason="huge pages are asked for on Linux only")
def test_large_blocks_begin_with_a_huge_page():
    memory = CachingAllocator()
    for size in (1 << 21, 3 << 20, 1 << 24):
        assert memory.allocate(size) % (1 << 21) == 0
    small = [memory.allocate(1 << 16) for _ in range(4)]
    assert any(block % (1 << 21) for block in small)


def test_more_than_the_address_space_is_refused():
    memory = CachingAllocator()
    with pytest.raises(RuntimeError, match=r"can't allocate memory: you tried to allocate \d+ bytes"):
        memory.allocate(1 << 50)
    assert memory.allocated() == 0


def test_a_storage_that_could_not_be_had_leaves_nothing_behind(monkeypatch):
    problems: list = []
    monkeypatch.setattr(sys, "unraisablehook", lambda problem: problems.append(problem.exc_value))
    before = allocator.allocated()
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        flambeau.UntypedStorage(1 << 47)
    assert problems == [] and allocator.allocated() == before


def test_large_blocks_go_back_at_once_where_that_is_wanted():
    size = round_size(5 << 20)
    flambeau.empty(5 << 20, dtype=flambeau.uint8)  # one that is kept
    assert allocator.free_blocks[size]
    with allocator.sparing():
        assert not allocator.cached()
        flambeau.empty(5 << 20, dtype=flambeau.uint8).fill_(1)
        assert not allocator.free_blocks[size]
    flambeau.empty(5 << 20, dtype=flambeau.uint8)
    assert allocator.free_blocks[size]


def test_blocks_are_kept_again_when_the_last_who_wanted_none_is_done():
    usual = allocator.cache_limit
    first, second = allocator.sparing(), allocator.sparing()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert allocator.cache_limit == 0
    second.__exit__(None, None, None)
    assert allocator.cache_limit == usual
