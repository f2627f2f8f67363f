"""Memory of graphs by plan."""

from __future__ import annotations

import random

import pytest

from flambeau.backends.nvidia.memory import LARGE_ROUND, SMALL_SEGMENT, DeviceMemory
from flambeau.backends.nvidia.planned import Planned, Sketch, plan

MB = 1 << 20
STREAM = 7  # where graphs are captured


@pytest.fixture
def memory(fake):
    return DeviceMemory(0)


def captured(memory, pool, program):
    """Run a program of allocations in a pool: +n makes n bytes, -i frees what was made i-th."""
    from flambeau.backends.nvidia import threads

    memory.capturing, memory.capturing_streams = pool, frozenset((STREAM,))
    memory.of_graphs.append(pool)
    before = threads.set_stream(0, STREAM)
    try:
        made = []
        for kind, value in program:
            if kind == "+":
                made.append(memory.allocate(value))
            else:
                memory.release(made[value])
        return made
    finally:
        threads.set_stream(0, before)
        memory.capturing = None


def sketched(memory, program):
    sketch = Sketch(STREAM)
    assert sketch.begin(memory)
    captured(memory, sketch, program)
    return sketch


def some_program(seed):
    chance = random.Random(seed)
    program, alive, count = [], [], 0
    for _ in range(200):
        if alive and chance.random() < 0.45:
            program.append(("-", alive.pop(chance.randrange(len(alive)))))
        else:
            program.append(("+", chance.choice((512, 5000, 70_000, 300_000, 2 * MB))))
            alive.append(count)
            count += 1
    return program


@pytest.mark.parametrize("seed", range(5))
def test_blocks_that_live_together_do_not_overlap(seed):
    chance = random.Random(seed)
    spans = [[5120 * chance.randint(1, 60), i, i + chance.randint(1, 30)] for i in range(150)]
    holes = [5120 * chance.randint(1, 80) for _ in range(6)]
    found = plan(spans, holes)
    for (size, room, at), (_, first, last) in zip(found.places, spans):
        assert at + size <= [*holes, found.rest][room]
        for (other_size, other_room, other_at), (_, other_first, other_last) in zip(found.places, spans):
            if (
                room == other_room
                and (first, last, at) != (other_first, other_last, other_at)
                and other_first < last
                and first < other_last
            ):
                assert at + size <= other_at or other_at + other_size <= at
    live = max(sum(s for s, first, last in spans if first <= t < last) for t in range(200))
    assert live <= plan(spans, []).rest <= live * 1.3 + LARGE_ROUND


@pytest.mark.parametrize("seed", range(3))
def test_a_graph_gets_its_blocks_where_the_plan_says(memory, fake, seed):
    held = [memory.allocate(n * 1000) for n in (100, 700, 300, 900, 200, 400)]
    for address in held[::2]:
        memory.release(address)
    program = some_program(seed)
    reserved = memory.reserved
    sketch = sketched(memory, program)
    assert memory.reserved == reserved  # addresses cost nothing
    pool = Planned.make(memory, sketch, 0)
    assert pool.holes
    assert Planned.make(memory, sketch, 0, memory.reserved) is None
    assert memory.reserved == reserved + pool.own.size
    made = captured(memory, pool, program)
    assert pool.next == len(pool.script) == len(made)
    assert made == [address for _, address in pool.script]
    assert memory.reserved == reserved + pool.own.size
    inside = [(b.address, b.address + b.size) for b in [*pool.holes, pool.own]]
    assert all(any(start <= a < end for start, end in inside) for a in made)
    others = {memory.allocate(50_000) for _ in range(40)}  # nobody else gets memory of the graph
    assert not any(start <= a < end for start, end in inside for a in others)


def test_a_graph_that_differs_from_its_sketch_has_more_memory(memory):
    program = [("+", 3 * MB), ("+", 2 * MB), ("-", 0), ("+", MB)]
    sketch = sketched(memory, program)
    pool = Planned.make(memory, sketch, 0)
    small = memory.reserved
    made = captured(
        memory, pool, [("+", 3 * MB), ("+", 2 * MB), ("+", MB)]
    )  # the third would lie where the first still is
    spans = sorted(zip(made, (3 * MB, 2 * MB, MB)))
    assert all(a + size <= b for (a, size), (b, _) in zip(spans, spans[1:]))
    assert memory.reserved == small + SMALL_SEGMENT
    other = Planned.make(memory, sketch, 0)
    made = captured(memory, other, [("+", 3 * MB), ("+", 512), ("+", 2 * MB)])
    assert len(set(made)) == 3


def test_what_a_graph_had_goes_back_when_it_is_gone(memory, fake):
    held = [memory.allocate(600_000) for _ in range(3)]
    memory.release(held[1])
    reserved = memory.reserved
    sketch = sketched(memory, [("+", 500_000), ("+", 5 * MB)])
    pool = Planned.make(memory, sketch, 0)
    pool.graphs = 1
    first, second = captured(memory, pool, [("+", 500_000), ("+", 5 * MB)])
    assert first == held[1]
    assert pool.bytes() == 500_224 + 6 * MB
    assert pool.bytes() % LARGE_ROUND
    memory.leave(pool)
    memory.empty_cache()
    assert memory.reserved == reserved + 6 * MB  # tensors still use it
    memory.release(first)
    memory.release(second)
    memory.empty_cache()
    assert memory.reserved == reserved
    assert memory.allocate(600_000) == held[1]


def test_addresses_of_a_sketch_go_back(memory, fake):
    sketch = Sketch(STREAM)
    sketch.begin(memory)
    assert fake.managed
    (made,) = captured(memory, sketch, [("+", 4096)])
    sketch.graphs = 1
    memory.leave(sketch)
    memory.empty_cache()
    assert fake.managed  # somebody holds one of them
    memory.release(made)
    memory.empty_cache()
    assert not fake.managed


def test_without_such_addresses_there_is_no_sketch(memory, fake):
    fake.refuse["cuMemAllocManaged"] = 801
    assert not Sketch(STREAM).begin(memory)


def test_what_stays_is_not_cut_out_of_large_blocks(memory):
    memory.release(memory.allocate(40 * MB))
    memory.lasting = True
    kept = memory.allocate(2 * MB)
    memory.lasting = False
    assert memory.reserved == 60 * MB
    large = memory.allocate(40 * MB)
    assert memory.reserved == 60 * MB
    memory.release(large)
    memory.lasting = True
    memory.limit = 60 * MB
    memory.release(memory.allocate(30 * MB))  # unless there is no other
    assert memory.reserved <= 60 * MB
    memory.release(kept)
