"""What became of a compiled function, as text."""

from __future__ import annotations

import collections
from typing import Any

from .graph import Call, Graph, Launch

_MOST = 12  # kernels that are listed with their times, and kinds of things that are guarded


def explain(compiled: Any) -> str:
    """Graphs before and after each pass, kernels and their times, memory, guards, and why it was recorded again or is not recorded."""
    lines = [f"{compiled.name}"]
    recorded = [r for entry in compiled.found.values() if type(entry) is list for r in entry]
    for number, one in enumerate(recorded):
        lines += [f"\nrecording {number}", *(f"  {line}" for line in _recording(one))]
    if compiled.causes:
        lines += ["\nrecorded again because", *(f"  {cause}" for cause in dict.fromkeys(compiled.causes))]
    if compiled.reasons:
        lines += ["\nruns as it is because", *(f"  {reason}" for reason in compiled.reasons)]
    if not recorded and not compiled.reasons:
        lines.append("  not recorded yet: that needs a second call with arguments of the same kind")
    return "\n".join(lines)


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
    graph: Graph = program.graph
    launches = [s for s in graph.steps if isinstance(s, Launch)]
    calls = [s for s in graph.steps if isinstance(s, Call)]
    joined = sum(s.weight for s in launches if s.weight > 1)
    fused = f"; {joined} of them became {sum(s.weight > 1 for s in launches)}" if joined else ""
    own = sum(b.size for b in graph.buffers if b.index in program.offsets)
    return [
        f"{len(launches)} native calls in {sum(s.call is None for s in program.segments)} runs, {len(calls)} calls through Python{fused}",
        f"arena {program.arena_size} bytes for {own} bytes of buffers; {program.bytes} bytes are touched",
        *(f"through Python: {c.name}, because {c.why}" for c in calls),
    ]


def _derivative(derivative: Any) -> list[str]:
    if derivative.program is None:
        return [derivative.problem or "not recorded yet: that needs a backward pass"]
    return [*_program(derivative.program), *_trail(derivative.trail)]


def _trail(trail: list[tuple[str, str]]) -> list[str]:
    lines = []
    for name, text in trail:
        lines += [f"after {name}:", *(f"  {line}" for line in text.splitlines())]
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
    """What is guarded, by the first word of its name."""
    kinds: collections.Counter = collections.Counter(item.what.split(".")[0].split("[")[0] for item in items)
    told = [f"  {name}" + (f" and {n - 1} parts of it" if n > 1 else "") for name, n in kinds.most_common(_MOST)]
    return ["it depends on the arguments and on", *told] if told else ["it depends on nothing but its arguments"]


__all__ = ["explain"]
