"""Less memory in use at once: steps that free memory are moved up, and values that are quickly recomputed are not stored."""

from __future__ import annotations

from typing import Any

from ...backends import compiled
from ...core.records import replace
from ...expr.node import walk
from ...graph.loops import LONG
from ..record.steps import Buffer, Launch, StepGraph
from ..runtime.arena import Lives, in_place, lifetimes

_AHEAD = 12  # how many steps are looked at for one that frees memory
_SMALL = 1 << 16  # bytes that are not worth it
_FAR = 8  # steps without a use, after which a buffer might as well be computed again


def free_earlier(graph: StepGraph, results: set[int]) -> None:
    """Move steps that free memory before independent steps that allocate some."""
    own = {b.index for b in graph.buffers if b.source == "new"} - results
    before = peak(graph, own)
    left = dict.fromkeys(own, 0)  # how many steps are still to come that use a buffer
    for step in graph.steps:
        for b in _touched(step) & own:
            left[b] += 1
    waiting: list[Any] = list(graph.steps)
    ordered: list[Any] = []
    made: set[int] = set()
    while waiting:
        k = 0
        if _growth(graph, waiting[0], own, left, made) > _SMALL and not _prepared(graph, ordered[-1:], waiting[0]):
            k = _choose_next(graph, waiting[: _AHEAD + 1], own, left, made)
        step = waiting.pop(k)
        ordered.append(step)
        for b in _touched(step) & own:
            left[b] -= 1
            made.add(b)
    steps, graph.steps = graph.steps, ordered
    if peak(graph, own) >= before:
        graph.steps = steps


def _prepared(graph: StepGraph, before: list[Any], step: Any) -> bool:
    """Return whether a plan reads the memory that all plans share, after earlier steps wrote it: no step may come between."""
    plan = isinstance(step, Launch) and step.plan is not None
    return plan and any(graph.buffers[b].source == "workspace" for s in before for b in _touched(s) if b >= 0)


def _touched(step: Any) -> set[int]:
    return {r.buffer for r in step.refs()}


def _growth(graph: StepGraph, step: Any, own: set[int], left: dict[int, int], made: set[int]) -> int:
    """Return by how many bytes the memory in use grows with a step."""
    touched = _touched(step) & own
    size = lambda b: graph.buffers[b].size  # noqa: E731
    return sum(size(b) for b in touched if b not in made) - sum(size(b) for b in touched if left[b] == 1)


def _choose_next(graph: StepGraph, waiting: list[Any], own: set[int], left: dict[int, int], made: set[int]) -> int:
    """Choose the next step: the one that frees most, of those that depend on none before them."""
    best, found = -_SMALL, 0
    read: set[int] = set()
    written: set[int] = set()
    for k, step in enumerate(waiting):
        if not isinstance(step, Launch) or step.written is None:
            break
        writes, reads = {r.buffer for r in step.writes()}, {r.buffer for r in step.reads()}
        if k and not (writes & (read | written) or reads & written):
            grows = _growth(graph, step, own, left, made)
            if grows < best:
                best, found = grows, k
        read |= reads
        written |= writes
    return found


def peak(graph: StepGraph, own: set[int]) -> int:
    """Return the most bytes of the buffers `own` that are in use at the same time."""
    return max(_in_use(graph, lifetimes(graph, own)), default=0)


def _in_use(graph: StepGraph, lives: Lives) -> list[int]:
    """Return the number of bytes in use at each step."""
    changes = [0] * (len(graph.steps) + 1)
    places = in_place(graph, lives)
    for b, (first, last) in lives.items():
        size = graph.buffers[b].size
        changes[first + (b in places)] += size  # where it takes the place of another one, that one counts
        changes[last + 1] -= size
    found, now = [], 0
    for change in changes[:-1]:
        now += change
        found.append(now)
    return found


def recompute(graph: StepGraph, results: set[int]) -> None:
    """Recompute results of short formulas before a late use instead of storing them, if their inputs are alive and peak memory shrinks."""
    own = {b.index for b in graph.buffers if b.source == "new"} - results
    for _ in range(len(graph.steps)):
        lives = lifetimes(graph, own)
        in_use = _in_use(graph, lives)
        if not in_use or max(in_use) <= _SMALL:
            return
        worst = in_use.index(max(in_use))
        users: dict[int, list[int]] = {}
        for i, step in enumerate(graph.steps):
            for b in _touched(step):
                users.setdefault(b, []).append(i)
        at_worst = [b for b, (first, last) in lives.items() if first < worst < last and graph.buffers[b].size > _SMALL]
        for b in sorted(at_worst, key=lambda b: -graph.buffers[b].size):
            if _twice(graph, b, worst, users, lives, own):
                break
        else:
            return


def _twice(graph: StepGraph, b: int, worst: int, users: dict[int, list[int]], lives: Lives, own: set[int]) -> bool:
    """Compute buffer `b` a second time, after the step `worst` of peak memory; return whether that is possible."""
    made, *uses = users[b]
    step = graph.steps[made]
    later = [i for i in uses if i > worst]
    early = [i for i in uses if i <= worst]
    if not later or later[0] - max(early, default=made) < _FAR or not _is_short(step, b, graph):
        return False
    if any(_changes(graph.steps[i], b) for i in uses):
        return False
    for ref in step.reads():
        if ref.buffer in own and lives[ref.buffer][1] < later[0]:
            return False  # it would have to be kept instead
        if any(made < i < later[0] and _changes(graph.steps[i], ref.buffer) for i in users[ref.buffer]):
            return False
    new = Buffer(len(graph.buffers), 0, graph.buffers[b].size)
    graph.buffers.append(new)
    own.add(new.index)
    if b in graph.maps:
        graph.maps[new.index] = graph.maps[b]
    for i in later:
        graph.steps[i] = graph.steps[i].exchanged(b, new.index)
    again = replace(step.exchanged(b, new.index), name=f"{step.name} again")
    graph.steps.insert(later[0], again)
    graph.recomputed.append((step.name, new.size))
    return True


def _is_short(step: Any, b: int, graph: StepGraph) -> bool:
    """Return whether a step is a formula of few instructions that makes this buffer and nothing else."""
    if not isinstance(step, Launch) or step.address not in compiled.maps or [r.buffer for r in step.writes()] != [b]:
        return False
    if any(r.buffer == b for r in step.reads()):
        return False
    return graph.recomputes or not any(x.op in LONG for x in walk(compiled.maps[step.address][0]))


def _changes(step: Any, buffer: int) -> bool:
    return not isinstance(step, Launch) or any(r.buffer == buffer for r in step.writes())
