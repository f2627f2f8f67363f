"""Steps over feature maps in another layout, with the recorded steps that they replace."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ...graph.program import Call
from .steps import Launch, StepGraph

if TYPE_CHECKING:
    from ...graph.feature_maps import FeatureMap


class Relaid(NamedTuple):
    """Consecutive steps and their recorded equivalent: the calls, their native calls, and, by the buffers of these, the feature maps that the
    steps have in other buffers. In the first run both are made, and must agree."""

    made: list[Launch]
    origins: tuple[Call, ...]
    steps: list[Launch]
    maps: dict[int, tuple[int, FeatureMap]]

    def writes(self) -> set[int]:
        return {r.buffer for step in self.made for r in step.writes()}


def relaid_of(graph: StepGraph, *made: Launch) -> Relaid | None:
    """Return the recorded equivalent of steps of one call that use feature maps in another layout. None if there is no such map, if all steps
    are loops, whose elements stay the same, or if something that the recorded calls read no longer exists."""
    call = made[0].call
    if call is None or not graph.maps or all(step.is_loop for step in made):
        return None
    there = {r.buffer for step in made for r in step.refs()}
    maps = {graph.maps[b][0]: (b, graph.maps[b][1]) for b in there if b in graph.maps}
    steps = [s for origin in call.origins() for s in (origin.steps or [None])]
    if not maps or not all(isinstance(s, Launch) for s in steps):
        return None
    there |= maps.keys()
    for s in steps:
        written = {r.buffer for r in s.writes()}
        if any(graph.buffers[r.buffer].source == "new" and r.buffer not in there | written for r in s.refs()):
            return None
        there |= written
    return Relaid(list(made), call.origins(), steps, maps)


def relaid_steps(graph: StepGraph) -> list[Relaid]:
    """Return the recorded equivalents of all relaid steps: for each step, if no other step of its call writes its results, else for all steps
    of the call together, if no other step is between them."""
    places: dict[Call, list[int]] = {}
    for i, step in enumerate(graph.steps):
        if isinstance(step, Launch) and step.call is not None:
            places.setdefault(step.call, []).append(i)
    found: list[Relaid | None] = []
    for at in places.values():
        steps = [graph.steps[i] for i in at]
        alone = [relaid_of(graph, step) for step in steps]
        writers = Counter(b for step in steps for b in {r.buffer for r in step.writes()})
        if None not in alone and max(writers.values()) == 1:
            found += alone
        elif at[-1] - at[0] < len(at):
            found.append(relaid_of(graph, *steps))
    return [each for each in found if each is not None]
