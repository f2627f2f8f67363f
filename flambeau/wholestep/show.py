"""What became of a compiled function, as text."""

from __future__ import annotations

from typing import Any

from .graph import Call, Graph, Launch


def explain(compiled: Any) -> str:
    """Graphs, passes, memory, guards, reasons."""
    lines = [f"{compiled.name}"]
    recorded = [r for entry in compiled.found.values() if type(entry) is list for r in entry]
    for number, one in enumerate(recorded):
        lines += [f"\nrecording {number}", *(f"  {line}" for line in _recording(one))]
    if compiled.causes:
        lines += ["\nrecorded again because", *(f"  {cause}" for cause in compiled.causes)]
    if compiled.reasons:
        lines += ["\nruns as it is because", *(f"  {reason}" for reason in compiled.reasons)]
    if not recorded and not compiled.reasons:
        lines.append("  not recorded yet: that needs a second call with arguments of the same kind")
    return "\n".join(lines)


def _recording(one: Any) -> list[str]:
    program = one.program
    graph: Graph = program.graph
    launches = sum(isinstance(s, Launch) for s in graph.steps)
    calls = [s for s in graph.steps if isinstance(s, Call)]
    lines = [
        f"{launches} native calls in {sum(s.call is None for s in program.segments)} runs, {len(calls)} calls through Python",
        f"arena {program.arena_size} bytes; {one.guard.count} words guard it, {len(one.guard.slow)} objects are compared in Python",
        f"recorded in {one.seconds * 1e3:.1f} ms, called {one.calls} times since",
    ]
    lines += [f"through Python: {c.name}, because {c.why}" for c in calls]
    for name, text in one.trail:
        lines += [f"after {name}:", *(f"  {line}" for line in text.splitlines())]
    lines += ["it depends on", *(f"  {item.what}" for item in one.guard.items)]
    return lines


__all__ = ["explain"]
