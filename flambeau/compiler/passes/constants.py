"""Constant folding: compute once, when a program is made, what depends on nothing but the program."""

from __future__ import annotations

from ...core.storage import UntypedStorage
from ..record.steps import Launch, Number, StepGraph, Test
from ..runtime.program import Program

_MOST = 1 << 20  # bytes that one of them may take for good


def fold(graph: StepGraph, results: set[int]) -> None:
    """Run now the steps that read nothing, or only results of such steps, and make their results constants of the program."""
    writers: dict[int, list[int]] = {}
    users: dict[int, list[int]] = {}
    for i, step in enumerate(graph.steps):
        for ref in step.writes() if isinstance(step, Launch) else () if isinstance(step, Test) else step.refs():
            writers.setdefault(ref.buffer, []).append(i)
        for ref in step.refs():
            users.setdefault(ref.buffer, []).append(i)
    found = {
        b.index
        for b in graph.buffers
        if b.source == "new" and b.index not in results and b.index in writers and b.size <= _MOST
    }
    steps: set[int] = set()
    before = -1
    while len(found) != before:
        before = len(found)
        steps = {i for i, step in enumerate(graph.steps) if _is_constant(step, found)}
        found = {b for b in found if steps.issuperset(writers[b]) and _settled(writers[b], users[b], steps)}
    steps = {i for i in steps if _is_constant(graph.steps[i], found)}
    if not steps:
        return
    made = sorted(found)
    held = [UntypedStorage(graph.buffers[b].size) for b in made]
    Program(StepGraph([graph.steps[i] for i in sorted(steps)], graph.buffers), {}, made).run([], held, [])
    for b, storage in zip(made, held):
        buffer = graph.buffers[b]
        buffer.source, buffer.storage, buffer.address = "state", storage, storage.ptr
    graph.steps = [step for i, step in enumerate(graph.steps) if i not in steps]


def _is_constant(step: object, found: set[int]) -> bool:
    """Return whether a step is a native call over nothing but these buffers."""
    return (
        isinstance(step, Launch)
        and step.plan is None
        and step.written is not None
        and not any(type(a) is Number for a in step.arguments)
        and bool(step.refs())
        and all(r.buffer in found for r in step.refs())
    )


def _settled(writers: list[int], users: list[int], steps: set[int]) -> bool:
    """Return whether all steps but those of `steps` read a buffer only after its last writer."""
    return all(max(writers) < i for i in users if i not in steps)
