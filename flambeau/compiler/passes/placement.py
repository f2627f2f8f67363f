"""Kernels that can put their results anywhere write them where they would be copied to."""

from __future__ import annotations

import dataclasses

from ...backends.cpu import jit
from ..record.steps import Graph, Launch, Ref
from .loops import parsed, used

# Kernels whose results have steps among their arguments: the result's name, and how the names of its steps begin.
_MOVABLE = {
    "flash_forward": {"out": "out"},
    "flash_backward": {"grad_q": "gq", "grad_k": "gk", "grad_v": "gv"},
}
_STEPS = ("batch", "head", "row")


def place(graph: Graph, results: set[int]) -> None:
    """Leave out copies of what attention has made for nobody else, such as gradients of queries, keys and values that become one
    matrix again: it writes to where they are copied."""
    users: dict[int, list[int]] = {}
    for i, step in enumerate(graph.steps):
        for buffer in used(step):
            users.setdefault(buffer, []).append(i)
    gone: set[int] = set()
    for i, step in enumerate(graph.steps):
        copy = _copy(step) if isinstance(step, Launch) else None
        if copy is None:
            continue
        source, target, row, distance = copy
        mine, theirs = (graph.buffers[r.buffer] for r in (source, target))
        if mine.source != "new" or theirs.source != "new" or mine.index in results or len(users[mine.index]) != 2:
            continue
        at = users[mine.index][0]
        maker = graph.steps[at]
        first = all(u in gone for u in users[theirs.index] if u < i)  # nobody fills the place in between
        if at < i and isinstance(maker, Launch) and first:
            moved = _moved(maker, source, target, row, distance)
            if moved is not None:
                graph.steps[at] = moved
                gone.add(i)
    graph.steps = [step for i, step in enumerate(graph.steps) if i not in gone]


def _copy(step: Launch) -> tuple[Ref, Ref, int, int] | None:
    """From where a step copies dense rows, to where, how long they are and how far apart they will be; None if it does not."""
    loop = parsed(step, 0)
    if loop is None or len(loop.results) != 1 or len(loop.reads) != 1 or len(loop.sizes) != 2:
        return None
    (target, (root, kind)), (source, read) = next(iter(loop.results.items())), loop.reads[0]
    row = loop.sizes[1]
    if type(source) is not tuple or root.op != "arg" or read is not kind:
        return None
    if source[1] != (row, 1) or source[0].offset or target[1][1] != 1 or target[1][0] < row:
        return None
    return source[0], target[0], row, target[1][0]


def _moved(maker: Launch, source: Ref, target: Ref, row: int, distance: int) -> Launch | None:
    """The same kernel writing its result `source` to `target`, where rows are farther apart."""
    known = jit.facts.get(maker.address)
    if known is None or len(known.parameters) != len(maker.arguments):
        return None
    given = dict(zip(known.parameters, maker.arguments))
    name = next((n for n in _MOVABLE.get(known.name, ()) if given[n] == source), None)
    if name is None:
        return None
    keys = [f"{_MOVABLE[known.name][name]}_{step}" for step in _STEPS]
    batch, head, line = (given[key] for key in keys)
    beside = line == row and head < row  # the heads of a query lie side by side in a row
    if batch % row or not (beside or (min(head, line) == row and head % row == line % row == 0)):
        return None
    given[name] = target
    given.update({key: given[key] // row * distance for key in keys if given[key] % row == 0})
    return dataclasses.replace(maker, arguments=list(given.values()))


__all__ = ["place"]
