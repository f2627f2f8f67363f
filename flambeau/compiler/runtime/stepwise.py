"""Runs of a program one native step at a time, in rehearsals: each step is timed, and compared with the calls that it replaces."""

from __future__ import annotations

import time
from typing import Any

from ..record.comparison import Print
from ..record.operator_call import call_operator
from ..record.steps import Launch
from .first_run import PIECE, Rehearsal
from .program import Program, layout_check


def run_stepwise(program: Program, rehearsal: Rehearsal) -> None:
    """Run a program one native step at a time: each is reported to the rehearsal, timed, and compared with the calls it replaces."""
    program.runner(program.steps_at, 0, program.patches_at, program.patch_count, program.values_at, program.status_at)
    beside: Any = None  # the comparison to make after the last of its steps has run
    for first, count, call in program.segments:
        if call is not None:
            rehearsal.before(call)
            if call.sends:
                rehearsal.answers.give(program, call)
            else:
                call_operator(program, call)
            rehearsal.after(call)
        for i in range(first, first + count):
            if i in program._forks:  # the steps themselves follow
                continue
            widths = rehearsal.widths(program.origins[i])
            rehearsal.before(program.origins[i], widths is not None, i in program._relaid)
            if i in program._relaid:
                beside = layout_check.AsRecorded(program, program._relaid[i])
            started = time.perf_counter()
            if widths is None:
                program.runner(
                    program.steps_at + 24 * i, 1, program.patches_at, 0, program.values_at, program.status_at
                )
            else:
                _run_in_pieces(program, i, widths, rehearsal)
            rehearsal.times.append((program.step_names[i], time.perf_counter() - started))
            if program.status.value:
                program._fail(i)
            if i in program._others:
                _compare(program, i, *program._others[i])
            if beside is not None and program.origins[i] is beside.relaid.made[-1]:
                beside.finish()
                beside = None
            rehearsal.after(program.origins[i])


def _run_in_pieces(program: Program, i: int, widths: list[int], rehearsal: Rehearsal) -> None:
    """Run a loop some elements at a time, so that less memory has to be copied at once."""
    at = program.instructions[i][2]
    usual = program.block[at : at + 1 + len(widths)]
    whole = usual[0]
    try:
        for first in range(0, whole, PIECE):
            count = program.block[at] = min(PIECE, whole - first)
            for k, width in enumerate(widths, 1):
                program.block[at + k] = usual[k] + first * width
            rehearsal.piece(program.origins[i], first, count, whole)
            program.runner(program.steps_at + 24 * i, 1, program.patches_at, 0, program.values_at, program.status_at)
            rehearsal.after(program.origins[i])
    finally:
        program.block[at : at + len(usual)] = usual


def _compare(program: Program, i: int, step: Launch, k: int) -> None:
    """Make the calls that a step replaces, and keep their results, so that later steps read what they would in an eager call; if the step's
    own results differed, use only these calls from now on."""
    assert step.other is not None
    places = [(program.address(step.arguments[p]), size) for p, size in step.other.results]
    ours = [(Print(place, size), place) for place, size in places]
    count = len(step.other.calls)
    if i in program._flags:
        program._flags[i].value = 0  # whatever it met, the other calls are made now
    program.runner(program.steps_at + 24 * k, count, program.patches_at, 0, program.values_at, program.status_at)
    if not all(mine.matches(place) for mine, place in ours):
        program.steps[3 * i : 3 * (i + count)] = program.steps[3 * k : 3 * (k + count)]
        program.scratch += [call.plan for call in step.other.calls if call.plan is not None]
