"""Passes over a graph: each a small function that makes it cheaper and changes no result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from ...core import naming
from ...core.records import replace
from ...graph import program as operators
from ...graph.channels import spread_norms
from ...graph.fusion import drop_dead as operators_drop_dead
from ...graph.fusion import fuse
from ...graph.pieces import split_copies
from ...graph.placement import place
from ...graph.reductions import fuse_into_reductions
from ...graph.sharing import share
from ..record.planning import Planner, lowered, program_of
from ..record.steps import Launch, StepGraph, used
from .constants import fold
from .epilogues import join_epilogues, prefer_primitives
from .ordering import free_earlier, recompute

convolutions, layouts = naming.late("compiler.passes.convolutions"), naming.late("compiler.passes.layouts")
convolution_epilogues = naming.late("compiler.passes.convolution_epilogues")
printer = naming.late("graph.printer")
repeated_rows, lanes = naming.late("compiler.passes.repeated_rows"), naming.late("compiler.passes.lanes")


class Stage(NamedTuple):
    """State of a graph after a pass: a program of its calls, or its native calls. They are shown when somebody asks."""

    name: str
    program: StepGraph | operators.Program
    steps: int

    @property
    def text(self) -> str:
        return self.program.text() if isinstance(self.program, StepGraph) else printer.text(self.program)

    @property
    def bytes(self) -> int:
        """Return how many bytes the steps read and write."""
        each = (
            map(used, self.program.steps)
            if isinstance(self.program, StepGraph)
            else (c.touches() for c in self.program)
        )
        return sum(self.program.buffers[b].size for buffers in each for b in buffers if b >= 0)


OverCalls: TypeAlias = Callable[[operators.Program], None]
OverSteps: TypeAlias = Callable[[StepGraph, set[int]], None]


def run(graph: StepGraph, results: set[int]) -> list[Stage]:
    """Run all passes in order, and return the stages: the graph after each pass that changed something."""
    work = _Work(graph, results)
    work.over_calls(
        ("sharing", share),
        ("keeping layouts", lambda program: keep_layouts(graph, program)),
        ("splitting copies", split_copies),
        ("evaluating norms in loops", spread_norms),
    )
    work.over_steps(("convolving with fewer products", fewer_products))
    work.over_calls(
        ("placing results", place),
        ("fusing loops", fuse),
        ("fusing reductions", fuse_into_reductions),
        ("dropping dead calls", operators_drop_dead),
    )
    work.over_steps(
        ("dropping dead steps", drop_dead),
        ("folding constants", fold),
        ("joining what follows", join_followers),
        ("joining epilogues", join_epilogues),
        ("preferring primitives", prefer_primitives),
        ("multiplying rows once", multiply_once),
        ("freeing earlier", free_earlier),
        ("computing again", recompute),
        ("running side by side", side_by_side),
    )
    return work.trail


class _Work:
    """A graph during the passes, with the stages so far."""

    def __init__(self, graph: StepGraph, results: set[int]):
        self.graph, self.results = graph, results
        self.trail = [_stage("recording", graph)]

    def over_calls(self, *passes: tuple[str, OverCalls]) -> None:
        """Run passes that rewrite operator calls; the calls that they change are planned again."""
        program, before = program_of(self.graph, self.results), len(self.trail)
        for name, rewrite in passes:
            known = list(program.calls)
            rewrite(program)
            if program.calls != known:
                self.trail.append(_stage_of_calls(name, program))
        if len(self.trail) > before:
            self.graph.steps = lowered(program, Planner(self.graph))
            self.trail[-1] = _stage(self.trail[-1].name, self.graph)

    def over_steps(self, *passes: tuple[str, OverSteps]) -> None:
        """Run the passes over native calls."""
        graph = self.graph
        for name, rewrite in passes:
            rounds = rewrite in (join_epilogues, prefer_primitives, multiply_once)
            bound = rewrite in (fewer_products, multiply_once, side_by_side)
            sized = rounds or bound or rewrite in (fold, free_earlier, recompute)
            if (graph.exact and rounds) or (graph.portable and bound) or (graph.resizable and sized):
                continue
            before = [id(step) for step in graph.steps]
            rewrite(graph, self.results)
            if [id(step) for step in graph.steps] != before:
                self.trail.append(_stage(name, graph))


def drop_dead(graph: StepGraph, results: set[int]) -> None:
    """Drop native calls whose results are not read."""
    needed = set(results)
    kept: list[Any] = []
    for step in reversed(graph.steps):
        if isinstance(step, Launch) and step.written is not None:
            targets = {r.buffer for r in step.writes()}
            if targets and all(graph.buffers[b].source == "new" and b not in needed for b in targets):
                continue
        needed |= used(step)
        kept.append(step)
    graph.steps = kept[::-1]


def keep_layouts(graph: StepGraph, program: operators.Program) -> None:
    """Keep activations channels-last between convolutions; no effect without convolutions."""
    if graph.layouts is not False and not graph.exact and any(call.op.convolution for call in program.calls):
        layouts.keep_layouts(graph, program)


def fewer_products(graph: StepGraph, results: set[int]) -> None:
    """Compute convolutions by Winograd's algorithm; no effect without convolutions."""
    if any(step.call is not None and step.call.op.convolution for step in graph.steps):
        convolutions.fewer_products(graph, results)


def multiply_once(graph: StepGraph, results: set[int]) -> None:
    """Compute products of table rows once for each distinct row; no effect where no table is read."""
    if any(step.call is not None and step.call.op.table_rows for step in graph.steps):
        repeated_rows.multiply_once(graph, results)


def side_by_side(graph: StepGraph, results: set[int]) -> None:
    """Run the rows of a batch through the time steps of a recurrent layer on separate threads; no effect without such a layer."""
    if any(step.call is not None and step.call.op.states for step in graph.steps):
        lanes.side_by_side(graph, results)


def join_followers(graph: StepGraph, results: set[int]) -> None:
    """Fuse steps into the heavy steps whose results they read."""
    if any(isinstance(s, Launch) and s.other is not None for s in graph.steps):
        convolution_epilogues.join_followers(graph, results)


def _stage_of_calls(name: str, program: operators.Program) -> Stage:
    steps = sum(1 if call.steps is None else len(call.steps) for call in program.calls)
    return Stage(name, replace(program, calls=list(program.calls)), steps)


def _stage(name: str, graph: StepGraph) -> Stage:
    return Stage(name, StepGraph(list(graph.steps), graph.buffers), len(graph.steps))
