"""Visualization of schedules: the actions of all ranks, spaced by their durations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ._actions import OVERLAP_F_B, B, F, I, W, _Action, parts_of
from ._schedule_base import PipelineScheduleMulti, PipelineScheduleSingle, _PipelineSchedule
from .schedules import _PipelineScheduleRuntime, get_schedule_class

_DURATIONS = {F: 1, I: 1, W: 1, B: 2, OVERLAP_F_B: 3}


def get_schedule_ops(
    schedule: str | type[_PipelineSchedule],
    pp_degree: int,
    num_microbatches: int,
    num_stages_per_rank: int | None = None,
    add_spacing: bool = False,
    with_comms: bool = False,
    defer_pp_recv: bool = False,
) -> list[list[_Action | None]]:
    """Return the actions of each rank: as the schedule lists them, spaced by how long each takes (`add_spacing`), or with all communication
    (`with_comms`)."""
    if add_spacing and with_comms:
        raise ValueError("Cannot add spacing and view comms at the same time")
    kind = get_schedule_class(schedule) if isinstance(schedule, str) else schedule
    if not issubclass(kind, (PipelineScheduleSingle, PipelineScheduleMulti)):
        raise ValueError(f"Invalid schedule: {schedule}")
    several = issubclass(kind, PipelineScheduleMulti)
    count = num_stages_per_rank or (2 if several else 1)
    if several != (count >= 2):
        raise AssertionError(f"Expected num_stages_per_rank {'>= 2' if several else 'to be 1'}, got {count}")
    stage: Any = SimpleNamespace(
        submod=None, num_stages=count * pp_degree, group_size=pp_degree, group_rank=0, group=None
    )
    made: Any = kind([stage] * count if several else stage, num_microbatches)  # type: ignore[arg-type]
    order = made.pipeline_order
    if order is None:
        raise AssertionError("Expected pipeline_order to not be None")
    if with_comms:
        runtime = _PipelineScheduleRuntime([stage] * count, num_microbatches, defer_pp_recv=defer_pp_recv)
        runtime._prepare_schedule_with_comms(order)
        order = runtime.pipeline_order_with_comms
    listed = [list(order[rank]) for rank in range(pp_degree)]
    return add_schedule_op_spacing(listed) if add_spacing else listed


def _prerequisites(action: _Action, last: int) -> list[_Action]:
    """Return the actions of which one must be complete before this one begins."""
    stage, kind = action.stage_index, action.computation_type
    if kind is W:
        return [action._replace(computation_type=I)]
    if kind is F or stage == last:
        return [] if stage == 0 and kind is F else [_Action(stage - 1, F, action.microbatch_index)]
    return [_Action(stage + 1, half, action.microbatch_index) for half in (B, I)]


def add_schedule_op_spacing(schedule: list[list[_Action | None]]) -> list[list[_Action | None]]:
    """Return the actions, with None for each moment in which a rank waits for others."""
    waiting = [[a for a in actions if a is not None] for actions in schedule]
    if not any(waiting):
        return schedule
    last = max(part.stage_index for actions in waiting for a in actions for part in parts_of(a))
    spaced: list[list[_Action | None]] = [[] for _ in schedule]
    over: dict[_Action, int] = {}  # when actions are over
    free = [0] * len(schedule)  # when ranks are
    now = idle = 0
    while any(waiting):
        idle += 1
        for rank, actions in enumerate(waiting):
            if actions and now >= free[rank] and all(_is_ready(p, over, now, last) for p in parts_of(actions[0])):
                action, end, idle = actions.pop(0), now, 0
                for part in parts_of(action):
                    end += _DURATIONS[part.computation_type]
                    over[part] = end
                free[rank] = end
                spaced[rank].append(action)
        for rank, end in enumerate(free):
            if now >= end:
                spaced[rank].append(None)
        now += 1
        if idle > 3:
            raise RuntimeError("No progress made in scheduling - possible deadlock")
    return spaced


def _is_ready(action: _Action, over: dict[_Action, int], now: int, last: int) -> bool:
    needs = _prerequisites(action, last)
    return not needs or any(over.get(need, now + 1) <= now for need in needs)
