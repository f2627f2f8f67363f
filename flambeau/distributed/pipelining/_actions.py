"""What ranks do in a pipeline, step by step: actions, their notation ("2F0": forward of microbatch 0 in stage 2), and what must hold
for lists of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple


class _ComputationType(str, Enum):
    FORWARD = "F"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"
    UNSHARD = "UNSHARD"
    RESHARD = "RESHARD"
    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"
    FULL_BACKWARD = "B"
    OVERLAP_F_B = "OVERLAP_F_B"
    REDUCE_GRAD = "REDUCE_GRAD"

    @staticmethod
    def from_str(action: str) -> _ComputationType:
        try:
            return _ComputationType(action)
        except ValueError as problem:
            raise RuntimeError(f"Invalid computation type {action}") from problem


FORWARD = F = _ComputationType.FORWARD
BACKWARD_INPUT = I = _ComputationType.BACKWARD_INPUT  # noqa: E741 - the name in schedules
BACKWARD_WEIGHT = W = _ComputationType.BACKWARD_WEIGHT
FULL_BACKWARD = B = _ComputationType.FULL_BACKWARD
UNSHARD, RESHARD = _ComputationType.UNSHARD, _ComputationType.RESHARD
SEND_F, RECV_F = _ComputationType.SEND_F, _ComputationType.RECV_F
SEND_B, RECV_B = _ComputationType.SEND_B, _ComputationType.RECV_B
OVERLAP_F_B, REDUCE_GRAD = _ComputationType.OVERLAP_F_B, _ComputationType.REDUCE_GRAD

_COMPUTES = (F, B, I, W, OVERLAP_F_B)
_ACTION = re.compile(r"(\d+)(F|I|B|W|UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)(\d*)")


class _Action(NamedTuple):
    """One thing that a rank does."""

    stage_index: int
    computation_type: _ComputationType
    microbatch_index: int | None = None
    sub_actions: tuple[_Action, ...] | None = None

    def __repr__(self) -> str:
        if self.sub_actions is not None:
            return f"({';'.join(map(repr, self.sub_actions))}){self.computation_type.value}"
        microbatch = "" if self.microbatch_index is None else self.microbatch_index
        return f"{self.stage_index}{self.computation_type.value}{microbatch}"

    def __str__(self) -> str:
        return repr(self)

    @property
    def is_compute_op(self) -> bool:
        return self.computation_type in _COMPUTES

    @staticmethod
    def from_str(action_string: str) -> _Action | None:
        """The action that this is the notation of."""
        text = action_string.strip()
        if not text:
            return None
        if text.startswith("(") and ")" in text:
            inner, _, kind = text[1:].partition(")")
            parts = [_Action.from_str(part) for part in inner.split(";") if part.strip()]
            return _Action(-1, _ComputationType.from_str(kind), None, tuple(p for p in parts if p is not None) or None)
        found = _ACTION.match(text)
        if found is None:
            raise RuntimeError(
                f"Invalid action string: {action_string}, should be formatted as [stage][action type][(microbatch)] e.g. 2F0"
            )
        stage, kind, microbatch = found.groups()
        return _Action(int(stage), _ComputationType.from_str(kind), int(microbatch) if microbatch else None)


Order = dict[int, list[_Action | None]]


def _format_pipeline_order(pipeline_order: Order, error_step_number: int | None = None) -> str:
    """A table: a row for each step, a column for each rank."""
    columns = [["" if a is None else str(a) for a in pipeline_order[rank]] for rank in sorted(pipeline_order)]
    steps = max(len(column) for column in columns)
    labels = [f"Step {str(i).zfill(len(str(steps - 1)))}" for i in range(steps)]
    rows = list(itertools.zip_longest(*columns, fillvalue=""))
    widths = [max(len(str(item)) for item in column) for column in zip(labels, *rows)]
    heads = " ".join(f"{f'Rank {rank}':<{widths[rank]}}" for rank in range(len(columns)))
    lines = [" " * (len(labels[0]) + 2) + heads]
    for label, row in zip(labels, rows, strict=True):
        wrong = error_step_number is not None and int(label.split()[1]) == error_step_number
        cells = " ".join(f"{item:<{widths[i]}}" for i, item in enumerate(row))
        lines.append(f"{label}: {cells}{' <-- ERROR HERE' if wrong else ''}")
    return "\n".join(lines) + "\n"


def needed_before(action: _Action, num_stages: int) -> list[tuple[_Action, ...]]:
    """What must have been done before an action: one of each tuple."""
    stage, kind, mb = action.stage_index, action.computation_type, action.microbatch_index
    if kind is F:
        return [] if stage == 0 else [(_Action(stage - 1, F, mb),)]
    if kind in (B, I):
        earlier: list[tuple[_Action, ...]] = [(_Action(stage, F, mb),)]
        if stage != num_stages - 1:
            earlier.append((_Action(stage + 1, B, mb), _Action(stage + 1, I, mb)))
        return earlier
    if kind is W:
        return [(_Action(stage, I, mb),)]
    if kind is OVERLAP_F_B:
        return [need for sub in action.sub_actions or () for need in needed_before(sub, num_stages)]
    return []


def parts_of(action: _Action) -> tuple[_Action, ...]:
    return action.sub_actions or (action,)


def with_bubbles(order: dict[int, list[_Action]], num_stages: int) -> Order:
    """The same actions at the earliest steps at which they can run if each takes one; None where a rank waits."""
    waiting = {rank: list(actions) for rank, actions in order.items()}
    done: set[_Action] = set()
    timed: Order = {rank: [] for rank in order}
    while any(waiting.values()):
        ran = []
        for rank, actions in waiting.items():
            if not actions:
                continue
            ready = all(any(a in done for a in options) for options in needed_before(actions[0], num_stages))
            timed[rank].append(actions[0] if ready else None)
            if ready:
                ran.append(actions.pop(0))
        if not ran:
            stuck = {rank: actions[0] for rank, actions in waiting.items() if actions}
            raise RuntimeError(f"no rank can go on: {stuck} wait for each other\n{_format_pipeline_order(timed)}")
        for action in ran:
            done.update(parts_of(action))
    return timed


def _merge_bw(compute_actions: list[_Action | None]) -> list[_Action]:
    """Gradients of inputs followed at once by those of weights are a full backward pass."""
    merged: list[_Action] = []
    actions = [a for a in compute_actions if a is not None]
    position = 0
    while position < len(actions):
        action = actions[position]
        following = actions[position + 1] if position + 1 < len(actions) else None
        if action.computation_type is I and following == action._replace(computation_type=W):
            merged.append(action._replace(computation_type=B))
            position += 2
        else:
            merged.append(action)
            position += 1
    return merged


def _validate_schedule(actions: Order, pp_group_size: int, num_stages: int, num_microbatches: int) -> dict[int, int]:
    """Raise unless every stage has, on one rank, each microbatch forwards and then backwards once; returns the rank of each stage."""
    if len(actions) != pp_group_size:
        raise AssertionError(
            f"Schedule has incorrect number of ranks - expected {pp_group_size}, actual {len(actions)}"
        )
    if any(rank not in actions for rank in range(pp_group_size)):
        raise AssertionError("Schedule is missing actions for some rank")
    ranks: dict[int, int] = {}
    seen: dict[tuple[int, _ComputationType], list[int]] = {}
    for rank, listed in actions.items():
        for action in (part for a in listed if a is not None for part in parts_of(a)):
            stage, kind, mb = action.stage_index, action.computation_type, action.microbatch_index
            if kind not in (F, B, I, W):
                continue
            assert mb is not None
            if ranks.setdefault(stage, rank) != rank:
                raise AssertionError(f"Stage {stage} is assigned to both rank {rank} and rank {ranks[stage]}")
            needed = {F: None, B: F, I: F, W: I}[kind]
            if needed is not None and mb not in seen.get((stage, needed), []):
                raise AssertionError(f"Running {kind.value} for stage {stage}, microbatch {mb} before {needed.value}")
            seen.setdefault((stage, kind), []).append(mb)
    for stage in range(num_stages):
        forwards = seen.get((stage, F), [])
        backwards = seen.get((stage, B), []) + seen.get((stage, I), [])
        weights = seen.get((stage, B), []) + seen.get((stage, W), [])
        for name, found in (("F", forwards), ("B", backwards), ("W", weights)):
            if sorted(found) != list(range(num_microbatches)):
                raise AssertionError(
                    f"Got {len(found)} {name} microbatches for stage {stage}, expected {num_microbatches}"
                )
    return ranks


# -- with communication ---------------------------------------------------------------------------------------------------------


def _message(action: _Action, stage_to_rank: Callable[[int], int], num_stages: int) -> tuple[_Action, _Action] | None:
    """The send and the receive that follow an action, where its neighbour is on another rank."""
    stage, kind, mb = action.stage_index, action.computation_type, action.microbatch_index
    to = stage + 1 if kind is F else stage - 1
    if kind not in (F, B, I) or not 0 <= to < num_stages or stage_to_rank(to) == stage_to_rank(stage):
        return None
    return (_Action(stage, SEND_F, mb), _Action(to, RECV_F, mb)) if kind is F else (
        _Action(stage, SEND_B, mb),
        _Action(to, RECV_B, mb),
    )  # fmt: skip


def _ready(action: _Action, done: set[_Action], stage_to_rank: Callable[[int], int], num_stages: int) -> bool:
    """Whether a rank that has done these can do the action: what it needs has been received, or made here."""
    for part in parts_of(action):
        stage, kind, mb = part.stage_index, part.computation_type, part.microbatch_index
        if kind is F and stage > 0:
            options: tuple = (_Action(stage, RECV_F, mb), _Action(stage - 1, F, mb))
        elif kind in (B, I) and stage < num_stages - 1:
            options = (_Action(stage, RECV_B, mb), _Action(stage + 1, B, mb), _Action(stage + 1, I, mb))
        elif kind in (B, I):
            options = (_Action(stage, F, mb),)
        else:
            continue
        if not any(option in done for option in options):
            return False
    return True


def _add_send_recv(
    compute_actions: Any, stage_to_rank: Callable[[int], int], num_stages: int
) -> dict[int, list[_Action]]:
    """The same with sends and receives between: a receive stands where its message can be on its way."""
    waiting = {rank: list(actions) for rank, actions in compute_actions.items()}
    made: dict[int, list[_Action]] = {rank: [] for rank in waiting}
    done: dict[int, set[_Action]] = {rank: set() for rank in waiting}

    def note(rank: int, action: _Action) -> None:
        made[rank].append(action)
        done[rank].update((action, *parts_of(action)))

    while any(waiting.values()):
        progress = False
        for rank in sorted(waiting):
            if not waiting[rank]:
                continue
            action = waiting[rank][0]
            if action is not None and not _ready(action, done[rank], stage_to_rank, num_stages):
                continue
            del waiting[rank][0]
            progress = True
            if action is None:  # a rank that waits lets messages come first
                continue
            note(rank, action)
            for part in parts_of(action):
                message = _message(part, stage_to_rank, num_stages)
                if message is not None:
                    note(rank, message[0])
                    note(stage_to_rank(message[1].stage_index), message[1])
        if not progress:
            raise AssertionError(f"Malformed compute schedule, can't schedule sends/recvs: {waiting}")
    return made


def _simulate_comms_compute(pipeline_order: Any, stage_to_rank: Callable[[int], int], num_stages: int) -> Order:
    """The steps at which ranks do their actions, sends and receives included, if each takes one; None where a rank waits."""
    waiting = {rank: [a for a in actions if a is not None] for rank, actions in pipeline_order.items()}
    timed: Order = {rank: [] for rank in sorted(waiting)}
    done: dict[int, set[_Action]] = {rank: set() for rank in waiting}
    while any(waiting.values()):
        ran: list[tuple[int, _Action]] = []
        for rank in sorted(waiting):
            if not waiting[rank]:
                continue
            action = waiting[rank][0]
            kind = action.computation_type
            if kind in (RECV_F, RECV_B):
                source = action.stage_index + (-1 if kind is RECV_F else 1)
                sent = _Action(source, SEND_F if kind is RECV_F else SEND_B, action.microbatch_index)
                ready = sent in done[stage_to_rank(source)] or (stage_to_rank(source), sent) in ran
            elif kind in _COMPUTES:
                ready = _ready(action, done[rank], stage_to_rank, num_stages)
            else:
                ready = True
            if ready:
                ran.append((rank, waiting[rank].pop(0)))
                timed[rank].append(action)
            else:
                timed[rank].append(None)
        if not ran:
            raise ValueError(f"Schedule is not progressing\n{_format_pipeline_order(timed)}")
        for rank, action in ran:
            done[rank].update((action, *parts_of(action)))
    return timed


def _add_reduce_grad(actions: list[_Action | None], n_microbatches: int) -> list[_Action | None]:
    """Behind a stage's last gradient of weights: the gradients are complete."""
    made: list[_Action | None] = []
    counts: dict[int, int] = {}
    for action in actions:
        made.append(action)
        for part in parts_of(action) if action is not None else ():
            if part.computation_type in (B, W):
                counts[part.stage_index] = counts.get(part.stage_index, 0) + 1
                if counts[part.stage_index] == n_microbatches:
                    made.append(_Action(part.stage_index, REDUCE_GRAD, None))
    return made


def _add_unshard_reshard(compute_actions: list[_Action | None], max_active_stages: int = 3) -> list[_Action]:
    """Before a stage's actions its parameters are gathered, and let go when `max_active_stages` others come first."""
    actions = [a for a in compute_actions if a is not None]
    made: list[_Action] = []
    held: list[int] = []
    for position, action in enumerate(actions):
        following: list[int] = []
        for later in actions[position:]:
            for part in parts_of(later):
                if part.stage_index not in following:
                    following.append(part.stage_index)
            if len(following) >= max_active_stages:
                break
        following = following[:max_active_stages]
        for stage in [s for s in held if s not in following]:
            made.append(_Action(stage, RESHARD, None))
            held.remove(stage)
        for stage in following:
            if stage not in held:
                made.append(_Action(stage, UNSHARD, None))
                held.append(stage)
        made.append(action)
    made += [_Action(stage, RESHARD, None) for stage in held]
    return made
