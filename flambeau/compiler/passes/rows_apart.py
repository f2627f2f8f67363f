"""Gradients of weights and their updates, side by side: each thread multiplies some rows, and updates these.

Otherwise threads meet between the two, and read what is in the cache of another core: beside short sums over a batch, that takes
longer than the update itself."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...backends.cpu import threads
from ...backends.cpu.onednn.direct import DirectProduct, RowsOfProduct
from ..record.steps import Graph, Launch, Ref, operands

_FEWEST_ROWS = 32  # for each thread
_LONGEST_SUM = 256  # beyond which the update takes little time beside the product
_FIRST_GROUP = 1 << 20  # numbers of groups that no recurrent layer has


def rows_apart(graph: Graph, results: set[int]) -> None:
    """Let each thread go on with its rows of a product with a transposed matrix, where a loop follows over all elements."""
    count = threads.get_num_threads()
    if threads.library() is None or count < 2:
        return
    products = [s for s in graph.steps if isinstance(s, Launch) and type(s.plan) is DirectProduct]
    for number, step in enumerate(products):
        rows, _, inner = step.plan.sizes
        if not step.plan.sums_rows or rows < count * _FEWEST_ROWS or inner > _LONGEST_SUM:
            continue
        first = graph.steps.index(step)
        second = next((k for k in range(first + 1, len(graph.steps)) if _follows(graph.steps[k], step)), first)
        place = _meeting(graph.steps, first, second)
        if place is not None:
            loop = graph.steps[second]
            parts = _parts(step, loop, count, _FIRST_GROUP + number)
            steps = [*graph.steps[: place + 1], *parts, *graph.steps[place + 1 :]]
            graph.steps = [s for s in steps if s is not step and s is not loop]
            graph.rounded_otherwise = True


def _follows(loop: Any, step: Launch) -> bool:
    """Return whether a step is a loop over all elements of a product's result, in the order of memory."""
    rows, columns, _ = step.plan.sizes
    known = operands(loop) if isinstance(loop, Launch) and loop.lane is None else None
    if known is None or loop.arguments[0] != rows * columns:
        return False
    places = [place for side in known for place, _ in side if type(place) is tuple]
    return (step.arguments[1], (1,)) in places and all(strides == (1,) for _, strides in places)


def _meeting(steps: list[Any], first: int, second: int) -> int | None:
    """The position behind which two steps can follow each other: the first one moves down to it, the second one up. None if steps
    between them stand in the way."""
    place = second - 1
    while place > first and _independent(steps[place], steps[second]):
        place -= 1
    fits = first < second and all(_independent(step, steps[first]) for step in steps[first + 1 : place + 1])
    return place if fits else None


def _independent(step: Any, moved: Launch) -> bool:
    """Return whether it does not matter which of two steps comes first. Tests come before what follows them."""
    if not isinstance(step, Launch) or step.written is None or step.lane is not None:
        return False
    writes, reads = ({r.buffer for r in refs} for refs in (step.writes(), step.reads()))
    changed, needed = ({r.buffer for r in refs} for refs in (moved.writes(), moved.reads()))
    return not (writes & (changed | needed) or reads & changed)


def _parts(step: Launch, loop: Launch, count: int, group: int) -> list[Launch]:
    """The product and the loop for each thread."""
    rows, columns, _ = step.plan.sizes
    known = operands(loop)
    assert known is not None
    widths = [width if type(place) is tuple else 0 for side in known for place, width in side]
    made = []
    for lane in range(count):
        begin, end = rows * lane // count, rows * (lane + 1) // count
        plan = RowsOfProduct(step.plan, begin, end)
        out, left, *rest = step.arguments[1:]
        given = [
            plan.address,
            out._replace(offset=out.offset + 4 * begin * columns),
            left._replace(offset=left.offset + 4 * begin),
        ]
        made.append(dataclasses.replace(step, arguments=[*given, *rest], plan=plan, lane=(group, lane)))
        walked = [
            a._replace(offset=a.offset + begin * columns * width) if type(a) is Ref else a
            for a, width in zip(loop.arguments[1:], widths)
        ]
        given = [(end - begin) * columns, *walked, *loop.arguments[1 + len(widths) :]]
        made.append(dataclasses.replace(loop, arguments=given, lane=(group, lane)))
    return made


__all__ = ["rows_apart"]
