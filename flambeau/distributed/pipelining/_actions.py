"""Actions of the ranks of a pipeline, their notation ("2F0": forward of microbatch 0 in stage 2), and validation of lists of them."""

from __future__ import annotations

import itertools
import re
from enum import Enum
from typing import NamedTuple


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
    """An entry of a schedule: a stage, a computation and a microbatch."""

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
        """Parse the notation of an action."""
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
    """Return the schedule as a table: a row for each step, a column for each rank."""
    columns = [["" if a is None else str(a) for a in pipeline_order[rank]] for rank in sorted(pipeline_order)]
    steps = max(len(column) for column in columns)
    labels = [f"Step {str(i).zfill(len(str(steps - 1)))}" for i in range(steps)]
    rows = list(itertools.zip_longest(*columns, fillvalue=""))
    widths = [max(len(labels[0]), *map(len, column)) for column in columns]
    heads = " ".join(f"{f'Rank {rank}':<{widths[rank]}}" for rank in range(len(columns)))
    lines = [" " * (len(labels[0]) + 2) + heads]
    for label, row in zip(labels, rows, strict=True):
        wrong = error_step_number is not None and int(label.split()[1]) == error_step_number
        cells = " ".join(f"{item:<{widths[i]}}" for i, item in enumerate(row))
        lines.append(f"{label}: {cells}{' <-- ERROR HERE' if wrong else ''}")
    return "\n".join(lines) + "\n"


def parts_of(action: _Action) -> tuple[_Action, ...]:
    return action.sub_actions or (action,)


_NAMES = {F: "Forward", B: "Full Backward", I: "Backward Input", W: "Backward Weight"}
_FIRST = {B: F, I: F, W: I}  # what must have run before


def _validate_schedule(actions: Order, pp_group_size: int, num_stages: int, num_microbatches: int) -> dict[int, int]:
    """Raise unless every stage runs, on one rank, each microbatch forward and then backward once; return the rank of each stage."""
    if len(actions) != pp_group_size:
        raise AssertionError(
            f"Schedule has incorrect number of ranks - expected {pp_group_size}, actual {len(actions)}"
        )
    for rank in range(pp_group_size):
        if rank not in actions:
            raise AssertionError(f"Schedule is missing actions for rank {rank}")
    ranks: dict[int, int] = {}
    seen: dict[tuple[int, _ComputationType], set[int | None]] = {}
    for rank, listed in actions.items():
        for step, action in enumerate(listed):
            if action is None:
                continue
            if not isinstance(action, _Action):
                raise AssertionError(
                    f"Rank {rank}, step {step}: Got an invalid action: {action}, expected instance of _Action"
                )
            for part in parts_of(action):
                stage, kind, mb = part.stage_index, part.computation_type, part.microbatch_index
                needed = _FIRST.get(kind)
                if needed is not None and mb not in seen.get((stage, needed), ()):
                    raise AssertionError(
                        f"Rank {rank}, step {step}: Running {_NAMES[kind]} for stage {stage}, microbatch {mb} without first"
                        f" running {_NAMES[needed]}\n\nFull pipeline schedule:\n{_format_pipeline_order(actions, step)}"
                    )
                seen.setdefault((stage, kind), set()).add(mb)
                if ranks.setdefault(stage, rank) != rank:
                    raise AssertionError(
                        f"Rank {rank}, step {step}: Stage {stage} is assigned to both rank {rank} and rank {ranks[stage]}"
                    )
    for stage in range(num_stages):
        _validate_counts(stage, {kind: len(seen.get((stage, kind), ())) for kind in _NAMES}, num_microbatches)
    return ranks


def _validate_counts(stage: int, found: dict[_ComputationType, int], expected: int) -> None:
    if found[F] != expected:
        raise AssertionError(f"Got {found[F]} {F} microbatches for stage {stage}, expected {expected}")
    if found[I] != found[W]:
        raise AssertionError(
            f"Invalid backward microbatches for stage {stage}: I and W must have equal counts, but got I={found[I]}, W={found[W]}"
        )
    if found[B] + found[I] != expected:
        raise AssertionError(
            f"Invalid backward microbatches for stage {stage}: expected {expected} total backwards, but got B={found[B]},"
            f" I={found[I]}, W={found[W]}"
        )
