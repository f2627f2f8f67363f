"""The allocator of device memory, over a driver that counts."""

from __future__ import annotations

import pytest

from flambeau.backends.nvidia import threads
from flambeau.backends.nvidia.memory import (
    MEDIUM_SEGMENT,
    SMALL_SEGMENT,
    DeviceMemory,
    Pool,
    in_words,
    rounded,
    segment_size,
)
from flambeau.core.errors import OutOfMemoryError

MB = 1 << 20


@pytest.fixture
def memory(fake):
    return DeviceMemory(0)


@pytest.mark.parametrize(("asked", "got"), [(1, 512), (512, 512), (513, 1024), (5 * MB + 1, 5 * MB + 512)])
def test_blocks_are_multiples_of_512(asked, got):
    assert rounded(asked) == got


@pytest.mark.parametrize(
    ("size", "segment"), [(512, SMALL_SEGMENT), (MB, SMALL_SEGMENT), (2 * MB, MEDIUM_SEGMENT), (11 * MB, 12 * MB)]
)
def test_small_blocks_share_a_segment(size, segment):
    assert segment_size(size) == segment


def test_a_freed_block_is_used_again_without_asking_the_driver(memory, fake):
    a = memory.allocate(1000)
    memory.release(a)
    assert memory.allocate(1024) == a
    assert fake.calls["cuMemAlloc"] == 1
    assert (memory.allocated, memory.reserved) == (1024, SMALL_SEGMENT)


def test_blocks_do_not_overlap(memory):
    spans = sorted(
        (memory.allocate(n), rounded(n)) for n in (1, 600, 512, 5000, 3 * MB, 1, 700_000, 4 * MB) for _ in range(3)
    )
    assert all(a + size <= b for (a, size), (b, _) in zip(spans, spans[1:]))


def test_free_neighbours_are_joined_for_a_larger_block(memory, fake):
    parts = [memory.allocate(5 * MB) for _ in range(4)]  # a whole segment of medium blocks
    assert fake.calls["cuMemAlloc"] == 1
    for part in parts:
        memory.release(part)
    assert memory.allocate(9 * MB) in parts
    assert fake.calls["cuMemAlloc"] == 1


def test_small_blocks_stay_in_their_bins_while_they_take_little_memory(memory, fake):
    steps = [512 * n for n in (1, 3, 7, 2, 9, 4)]
    for _ in range(3):  # each step asks for the same sizes, and in between for one that is not there
        for place in [memory.allocate(n) for n in steps]:
            memory.release(place)
    pool = next(iter(memory.pools.values()))
    kept = {size: len(blocks) for size, blocks in pool.bins.items() if blocks}
    memory.release(memory.allocate(512 * 4000 // 2))  # a small block that no bin has
    assert {size: len(blocks) for size, blocks in pool.bins.items() if size in kept} == kept
    assert pool.flush(small=False) is False and pool.flush(small=True) is True


def test_the_peak_is_remembered_and_can_be_reset(memory):
    a, b = memory.allocate(MB), memory.allocate(MB)
    memory.release(a)
    assert (memory.allocated, memory.peak) == (MB, 2 * MB)
    memory.reset_peak()
    assert memory.peak == MB
    memory.release(b)
    assert memory.allocated == 0


def test_streams_do_not_share_blocks(memory):
    a = memory.allocate(512)
    memory.release(a)
    before = threads.set_stream(0, 77)
    try:
        assert memory.allocate(512) != a
    finally:
        threads.set_stream(0, before)
    assert memory.allocate(512) == a


def test_memory_used_on_another_stream_waits_for_it(memory, fake):
    a = memory.allocate(512)
    memory.record_stream(a, 99)
    memory.release(a)
    (event,) = (entry[0][0] for entry in memory.waiting)
    fake.pending.add(event)
    assert memory.allocate(512) != a
    fake.pending.clear()
    memory.settle()
    assert memory.allocate(512) == a


def test_unused_segments_go_back_to_the_driver(memory, fake):
    a, b = memory.allocate(30 * MB), memory.allocate(512)
    memory.release(a)
    memory.empty_cache()
    assert memory.reserved == SMALL_SEGMENT
    assert len(fake.blocks) == 1
    memory.release(b)
    memory.empty_cache()
    assert memory.reserved == 0
    assert not fake.blocks


def test_memory_that_is_kept_is_given_back_before_there_is_none(memory):
    memory.release(memory.allocate(40 * MB))
    memory.allocate(50 * MB)  # of 64
    assert memory.retries == 1


def test_the_error_tells_what_is_held(memory):
    held = [memory.allocate(20 * MB) for _ in range(2)]
    with pytest.raises(
        OutOfMemoryError, match=r"Tried to allocate 40.00 MiB. GPU 0 has a total capacity of 64.00 MiB"
    ) as error:
        memory.allocate(40 * MB)
    assert "2 x 20.00 MiB" in str(error.value)
    memory.release(held.pop())
    assert memory.allocate(15 * MB)


def test_a_process_can_be_limited(memory):
    memory.limit = 4 * MB
    with pytest.raises(OutOfMemoryError, match="may have 4.00 MiB"):
        memory.allocate(20 * MB)


def test_a_graph_has_memory_of_its_own(memory):
    a = memory.allocate(512)
    memory.release(a)
    memory.capturing, memory.capturing_streams = Pool(0, private=True), frozenset((0,))
    memory.of_graphs.append(memory.capturing)
    inside = memory.allocate(512)
    memory.release(inside)
    assert memory.allocate(512) == inside != a
    pool, memory.capturing = memory.capturing, None
    assert memory.allocate(512) == a
    memory.leave(pool)
    memory.release(inside)
    memory.empty_cache()
    assert inside not in {segment["address"] for segment in memory.snapshot()}


@pytest.mark.parametrize(
    ("n", "text"), [(5, "5 bytes"), (1536, "1.50 KiB"), (3 << 30, "3.00 GiB"), (5 << 40, "5120.00 GiB")]
)
def test_sizes_in_words(n, text):
    assert in_words(n) == text
