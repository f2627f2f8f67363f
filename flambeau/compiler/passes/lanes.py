"""Independent rows of recurrent layers, side by side on several threads.

The steps of a recurrent layer follow each other, and each is a small product and a loop over its gates. Split between threads, each step
would need a barrier, and each thread would read what the other has just written. But the rows of a batch are independent until the layer
ends: so one thread computes all steps of the first rows, another one those of the next."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...backends.cpu import jit, threads
from ...backends.cpu.onednn.packed import PackedRows
from ...core.records import replace
from ..record.steps import Launch, Ref, StepGraph

_FEWEST_ROWS, _FEWEST_STEPS = 4, 8  # for each thread, and in a row


def side_by_side(graph: StepGraph, results: set[int]) -> None:
    """Split the time steps of recurrent layers into those of some rows and those of others, as many as there are threads."""
    count = threads.get_num_threads()
    if threads.library() is None or count < 2:
        return
    steps: list[Any] = []
    run: list[_Rows] = []
    for step in [*graph.steps, None]:
        rows = _rows(step) if isinstance(step, Launch) else None
        if rows is not None and (not run or rows.batch == run[0].batch):
            run.append(rows)
            continue
        steps += _split(run, len(steps), count)
        run = [] if rows is None else [rows]
        if rows is None and step is not None:
            steps.append(step)
    graph.steps = steps


class _Rows(NamedTuple):
    """A step over rows of a batch. `states` maps places whose rows are those of the batch to their widths in bytes; `sequences` maps places
    whose rows are those of all time steps, of which `first` is this step's first, to their kinds; `shared` is only read. A product has no
    `first`, and does not distinguish rows of a state from those of a sequence."""

    step: Launch
    batch: int
    first: int | None
    states: dict[Ref, int]
    sequences: dict[Ref, str]
    shared: set[int]


def _rows(step: Launch) -> _Rows | None:
    told = getattr(step.plan, "described", None)
    if type(told) is PackedRows:
        _, out, left, *rest = step.arguments
        if type(out) is not Ref or type(left) is not Ref:
            return None
        shared = {a.buffer for a in rest if type(a) is Ref}
        return _Rows(step, told.rows, None, {out: 4 * told.steps[1], left: 4 * told.steps[0]}, {}, shared)
    known, call = jit.facts.get(step.address), step.call
    if known is None or call is None or call.op.states is None or "first" not in known.parameters:
        return None
    given, widths = dict(zip(known.parameters, step.arguments)), call.op.states(**call.op.bind(call.args, call.kwargs))
    if widths is None:
        return None
    states = {given[name]: 4 * width * given["n"] for name, width in widths.items()}
    others = {a: name for name, a in given.items() if name not in widths and type(a) is Ref}
    return _Rows(step, given["batch"], given["first"], states, others, set())


def _split(run: list[_Rows], group: int, lanes: int) -> list[Launch]:
    """Return the steps of a run divided among several threads, or unchanged if there are too few rows or steps to gain by that."""
    plain = [rows.step for rows in run]
    if len(run) < _FEWEST_STEPS or run[0].batch < lanes * _FEWEST_ROWS or not _has_independent_rows(run):
        return plain
    ends = [run[0].batch * lane // lanes for lane in range(lanes + 1)]
    plans: dict[Any, Any] = {}
    found: list[Launch] = []
    for rows in run:
        for lane, (begin, end) in enumerate(zip(ends, ends[1:])):
            made = _part(rows, begin, end - begin, plans, lane)
            if made is None:
                return plain
            found.append(replace(made, lane=(group, lane)))
    return found


def _has_independent_rows(run: list[_Rows]) -> bool:
    """Return whether the rows of the batch are independent: each piece of memory has rows of the batch and begins at the same place in all
    steps, or has rows of all time steps, or is only read."""
    firsts = sorted(rows.first for rows in run if rows.first is not None)
    if not firsts or any(b - a < run[0].batch for a, b in zip(firsts, firsts[1:])):
        return False
    sequences: dict[int, tuple[Ref, str]] = {}
    states: dict[int, tuple[Ref, int]] = {}
    for rows in run:
        for ref, name in rows.sequences.items():
            if sequences.setdefault(ref.buffer, (ref, name)) != (ref, name):
                return False
    for rows in run:
        for ref, width in rows.states.items():
            if rows.first is None and ref.buffer in sequences:
                distance = ref.offset - sequences[ref.buffer][0].offset
                if distance % width or distance // width not in firsts:
                    return False
            elif ref.buffer in sequences or states.setdefault(ref.buffer, (ref, width)) != (ref, width):
                return False
    shared = set().union(*(rows.shared for rows in run))
    return not shared & (set(sequences) | set(states))


def _part(rows: _Rows, begin: int, count: int, plans: dict[Any, Any], lane: int) -> Launch | None:
    """Return a step for `count` rows of the batch from `begin` on, or None if there is no plan for it."""
    step = rows.step
    moved = [
        Ref(a.buffer, a.offset + begin * rows.states[a]) if type(a) is Ref and a in rows.states else a
        for a in step.arguments
    ]
    if rows.first is None:
        key = id(step.plan), lane
        if key not in plans:
            plans[key] = step.plan.described._replace(rows=count).plan(alone=True)
        plan = plans[key]
        if plan is None:
            return None
        return replace(step, arguments=[plan.address, *moved[1:]], plan=plan)
    names = jit.facts[step.address].parameters
    numbers = {"first": rows.first + begin, "batch": count}
    return replace(step, arguments=[numbers.get(name, a) for name, a in zip(names, moved)])
