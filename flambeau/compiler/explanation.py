"""Descriptions of a compiled function, as text and as a drawing."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

from . import drawing
from .record.steps import Call, Launch, StepGraph

_MOST = 12  # kernels that are listed with their times, and kinds of things that are guarded


def explain(compiled: Any) -> str:
    """Describe a compiled function: its graphs before and after each pass, kernels and their times, memory, guards, and why it was
    recorded again, split, or left eager."""
    return "\n".join(_function(compiled))


def svg(compiled: Any) -> str:
    """Return a drawing of all recordings as an SVG document."""
    programs = []
    for one in _own_and_parts(compiled):
        for number, recorded in enumerate(one.recordings()):
            programs.append((f"{one.name}, recording {number}", recorded.program, recorded.trail))
            derivative = recorded.derivative
            if derivative is not None and derivative.program is not None:
                programs.append((f"{one.name}, recording {number}, derivative", derivative.program, derivative.trail))
    return drawing.draw(compiled.name, programs)


def _own_and_parts(compiled: Any) -> Iterator[Any]:
    yield compiled
    for part in compiled.parts():
        yield from _own_and_parts(part)


def _function(compiled: Any) -> list[str]:
    lines = [f"{compiled.name}"]
    recorded = compiled.recordings()
    light = [one for one in recorded if one.light and one.checked]
    for number, one in enumerate(one for one in recorded if one not in light[1:]):
        lines += [f"\nrecording {number} {one.sizes}".rstrip(), *(f"  {line}" for line in _recording(one))]
    if len(light) > 1:
        lines += [
            f"\n{len(light) - 1} further graphs like it, called {sum(one.calls for one in light[1:])} times since"
        ]
    if compiled.causes:
        lines += ["\nrecorded again because", *(f"  {cause}" for cause in dict.fromkeys(compiled.causes))]
    single = [why for alike in compiled.patterns.values() for why in alike.ranges.why]
    if single:
        lines += [
            "\nsome sizes have no program in common with others because",
            *(f"  {w}" for w in dict.fromkeys(single)),
        ]
    if compiled.reasons:
        heading = "runs as it is because" if compiled.split is None else "is split because"
        lines += [f"\n{heading}", *(f"  {reason}" for reason in compiled.reasons)]
    for part in compiled.parts():
        lines += ["", *(f"  | {line}" for text in _function(part) for line in text.splitlines())]
    if not recorded and not compiled.reasons:
        lines.append("  not recorded yet: that needs a second call with arguments of the same kind")
    return lines


def _recording(one: Any) -> list[str]:
    program = one.program
    lines = [
        *(["not captured yet: that needs another call"] if program is None else _program(program)),
        f"{one.guard.count} words of memory guard it; {len(one.guard.slow)} objects are compared in Python",
        f"recorded in {one.seconds * 1e3:.1f} ms, called {one.calls} times since",
        *_trail(one.trail),
        *_times(one.times),
    ]
    if one.derivative is not None:
        lines += ["the derivative", *(f"  {line}" for line in _derivative(one.derivative))]
    return [*lines, *_guards(one.guard.items)]


def _program(program: Any) -> list[str]:
    if hasattr(program, "told"):  # a captured graph
        return program.told()
    graph: StepGraph = program.graph
    launches = [s for s in graph.steps if isinstance(s, Launch)]
    calls = [s for s in graph.steps if isinstance(s, Call)]
    joined = sum(s.weight for s in launches if s.weight > 1)
    fused = f"; {joined} of them became {sum(s.weight > 1 for s in launches)}" if joined else ""
    own = sum(b.size for b in graph.buffers if b.index in program.offsets)
    return [
        f"{len(launches)} native calls in {sum(s.call is None for s in program.segments)} runs, {len(calls)} calls through Python{fused}",
        f"arena {program.arena_size} bytes for {own} bytes of buffers; {program.bytes} bytes are touched",
        *_memory(program),
        *([f"channels lie last in {_join_counted(graph.relaid)}"] if graph.relaid else []),
        *(f"through Python: {c.name}, because {c.why}" for c in calls),
    ]


def _join_counted(names: list[str]) -> str:
    """Join names by commas, each followed by how often it occurs."""
    return ", ".join(
        f"{name} ({count} times)" if count > 1 else name for name, count in collections.Counter(names).items()
    )


def _memory(program: Any) -> list[str]:
    """Return lines on the memory plan: results written in place, values recomputed, and the most bytes that a call needs at once."""
    graph: StepGraph = program.graph
    again = [name for name, _ in graph.recomputed]
    told = _join_counted(again)
    results = sum(graph.buffers[b].size for b in program.results if b >= 0)
    scratch = max((plan.scratch_size for plan in program.scratch), default=0)
    return [
        f"{len(program.in_place)} results are written over what they are computed from",
        *(
            [f"computed again instead of kept: {told}, {sum(size for _, size in graph.recomputed)} bytes"]
            if again
            else []
        ),
        f"at most {program.arena_size + results + scratch} bytes at once: the arena, {results} of results and gradients, {scratch} of"
        " scratch memory",
    ]


def _derivative(derivative: Any) -> list[str]:
    if derivative.program is None:
        return [derivative.problem or "not recorded yet: that needs a backward pass; until then calls run as they are"]
    return [*_program(derivative.program), *_trail(derivative.trail)]


def _trail(trail: list[Any]) -> list[str]:
    lines = []
    for stage in trail:
        lines.append(f"after {stage.name} ({stage.steps} steps, {stage.bytes} bytes moved):")
        lines += [f"  {line}" for line in stage.text.splitlines()]
    return lines


def _times(times: list[tuple[str, float]]) -> list[str]:
    if not times:
        return []
    total: Any = collections.Counter()
    count: collections.Counter = collections.Counter(name for name, _ in times)
    for name, seconds in times:
        total[name] += seconds
    return ["times:", *(f"  {s * 1e6:9.1f} us  {count[n]:4d} x  {n}" for n, s in total.most_common(_MOST))]


def _guards(items: list[Any]) -> list[str]:
    """Return lines that list what a recording is guarded on, grouped by the first word of each guard's name."""
    kinds: collections.Counter = collections.Counter(item.what.split(".")[0].split("[")[0] for item in items)
    told = [f"  {name}" + (f" and {n - 1} parts of it" if n > 1 else "") for name, n in kinds.most_common(_MOST)]
    return ["it depends on the arguments and on", *told] if told else ["it depends on nothing but its arguments"]
