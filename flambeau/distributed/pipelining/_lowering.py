"""Lowering of computations to all actions of a rank: passes that add gathers of parameters, sends, receives and reductions to lists of
actions, and a simulation of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._actions import (
    RECV_B,
    RECV_F,
    REDUCE_GRAD,
    RESHARD,
    SEND_B,
    SEND_F,
    UNSHARD,
    B,
    F,
    I,
    Order,
    W,
    _Action,
    _format_pipeline_order,
    parts_of,
)

Mapping = Callable[[int], int]


def _merge_bw(compute_actions: list[_Action | None]) -> list[_Action]:
    """Merge gradients of inputs directly followed by those of weights into a full backward pass."""
    merged: list[_Action] = []
    for action in compute_actions:
        if action is None:
            continue
        if action.computation_type is W and merged and merged[-1] == action._replace(computation_type=I):
            merged[-1] = action._replace(computation_type=B)
        else:
            merged.append(action)
    return merged


def _add_reduce_grad(actions: Any, n_microbatches: int) -> list[_Action]:
    """Add a reduction of gradients after a stage's last gradient of weights."""
    made: list[_Action] = []
    counts: dict[int, int] = {}
    for action in actions:
        if action is None:
            continue
        made.append(action)
        for part in parts_of(action):
            if part.computation_type in (B, W):
                counts[part.stage_index] = counts.get(part.stage_index, 0) + 1
                if counts[part.stage_index] == n_microbatches:
                    made.append(_Action(part.stage_index, REDUCE_GRAD, None))
    return made


def _next_stages(actions: list[_Action], most: int) -> list[int]:
    """Return the stages that are used next, the nearest first."""
    stages: list[int] = []
    for action in actions:
        stages += [part.stage_index for part in parts_of(action) if part.stage_index not in stages]
        if len(stages) >= most:
            break
    return stages


def _add_unshard_reshard(compute_actions: Any, max_active_stages: int = 3) -> list[_Action]:
    """Add gathers of the parameters of the next `max_active_stages` stages ahead of use, and releases of all others."""
    actions = [action for action in compute_actions if action is not None]
    made: list[_Action] = []
    held: set[int] = set()
    for position, action in enumerate(actions):
        following = _next_stages(actions[position:], max_active_stages)
        gone = [stage for stage in held if stage not in following]
        fresh = [stage for stage in following if stage not in held]
        made += [_Action(stage, RESHARD, None) for stage in gone]
        made += [_Action(stage, UNSHARD, None) for stage in fresh]
        held.difference_update(gone)
        held.update(fresh)
        made.append(action)
    return made + [_Action(stage, RESHARD, None) for stage in held]


# -- messages ---------------------------------------------------------------------------------------------------------------------


def _input_providers(action: _Action, num_stages: int) -> tuple[_Action, ...]:
    """Return the actions that can provide the input of this one on its rank; one of them must come before it."""
    stage, kind, mb = action.stage_index, action.computation_type, action.microbatch_index
    if kind is F and stage > 0:
        return _Action(stage, RECV_F, mb), _Action(stage - 1, F, mb)
    if kind in (B, I) and stage < num_stages - 1:
        return _Action(stage, RECV_B, mb), _Action(stage + 1, I, mb), _Action(stage + 1, B, mb)
    return ()


def _can_run(action: _Action, done: set[_Action], num_stages: int) -> bool:
    needs = (_input_providers(part, num_stages) for part in parts_of(action))
    return all(not options or any(option in done for option in options) for options in needs)


def _message(action: _Action, stage_to_rank: Mapping, num_stages: int) -> tuple[_Action, _Action] | None:
    """Return the send and the receive that follow an action if the neighbouring stage is on another rank, else None."""
    stage, kind, mb = action.stage_index, action.computation_type, action.microbatch_index
    to = stage + 1 if kind is F else stage - 1
    if kind not in (F, B, I) or not 0 <= to < num_stages or stage_to_rank(to) == stage_to_rank(stage):
        return None
    if kind is F:
        return _Action(stage, SEND_F, mb), _Action(to, RECV_F, mb)
    return _Action(stage, SEND_B, mb), _Action(to, RECV_B, mb)


def _add_send_recv(compute_actions: Any, stage_to_rank: Mapping, num_stages: int) -> dict[int, list[_Action]]:
    """Add sends and receives to actions. Ranks take turns, one action each; a message is added to both lists when it is sent, so that sends
    and receives of two ranks have the same order. None means that a rank passes."""
    waiting = {rank: list(actions) for rank, actions in compute_actions.items()}
    made: dict[int, list[_Action]] = {rank: [] for rank in waiting}
    done: dict[int, set[_Action]] = {rank: set() for rank in waiting}

    def note(rank: int, *actions: _Action) -> None:
        made[rank].append(actions[0])
        done[rank].update(actions)

    while any(waiting.values()):
        stuck = True
        for rank in sorted(rank for rank, actions in waiting.items() if actions):
            action = waiting[rank][0]
            if action is not None and not _can_run(action, done[rank], num_stages):
                continue
            stuck = False
            del waiting[rank][0]
            if action is None:
                continue
            note(rank, action, *parts_of(action))
            for part in parts_of(action):
                message = _message(part, stage_to_rank, num_stages)
                if message is not None:
                    note(rank, message[0])
                    note(stage_to_rank(message[1].stage_index), message[1])
        if stuck:
            raise AssertionError("Malformed compute schedule, can't schedule sends/recvs")
    return made


_PEER_OFFSET = {RECV_F: -1, RECV_B: 1, SEND_F: 1, SEND_B: -1}
_RECEIVE_FOR = {F: RECV_F, B: RECV_B, I: RECV_B}


def _defer_recv_ops(actions: dict[int, list[_Action]], stage_to_rank: Mapping) -> dict[int, list[_Action]]:
    """Defer receives as far as possible: to just before their use, and on the lower of two ranks before its next send to the other, so that
    two ranks never both wait for the other one to receive."""

    def peer(action: _Action) -> int:
        return stage_to_rank(action.stage_index + _PEER_OFFSET[action.computation_type])

    made: dict[int, list[_Action]] = {}
    for rank, listed in actions.items():
        made[rank] = []
        late: list[_Action] = []
        for action in listed:
            kind = action.computation_type
            if kind in (RECV_F, RECV_B):
                late.append(action)
                continue
            if kind in (SEND_F, SEND_B) and rank < peer(action):
                now = [one for one in late if peer(one) == peer(action)]
            else:
                needed = [
                    part._replace(computation_type=_RECEIVE_FOR[part.computation_type])
                    for part in parts_of(action)
                    if part.computation_type in _RECEIVE_FOR
                ]
                now = [one for one in needed if one in late]
            late = [one for one in late if one not in now]
            made[rank] += [*now, action]
        if late:
            raise AssertionError(
                f"Malformed input schedule on rank {rank}: leftover RECV ops with no consumer found: {late}. Every RECV must be"
                " consumed by a downstream compute op."
            )
    return made


# -- a rehearsal ------------------------------------------------------------------------------------------------------------------


class _Simulation:
    """Simulation in which ranks run one action at a time, with immediate effect on the others."""

    def __init__(self, order: Any, stage_to_rank: Mapping, num_stages: int) -> None:
        self.stage_to_rank, self.num_stages = stage_to_rank, num_stages
        self.waiting = {rank: [a for a in order[rank] if a is not None] for rank in sorted(order)}
        self.done: dict[int, set[_Action]] = {rank: set() for rank in self.waiting}
        self.timed: Order = {rank: [] for rank in self.waiting}

    def ready(self, rank: int, action: _Action) -> bool:
        stage, kind, mb = action.stage_index, action.computation_type, action.microbatch_index
        if kind in (RECV_F, RECV_B):
            source = stage + _PEER_OFFSET[kind]
            sent = _Action(source, SEND_F if kind is RECV_F else SEND_B, mb)
            return sent in self.done[self.stage_to_rank(source)]
        if kind is SEND_F:
            return _Action(stage, F, mb) in self.done[rank]
        if kind is SEND_B:
            return bool({_Action(stage, I, mb), _Action(stage, B, mb)} & self.done[rank])
        return _can_run(action, self.done[rank], self.num_stages)

    def step(self) -> bool:
        """Run one action of each rank that can proceed; ranks that wait are tried again after the others."""
        busy = [rank for rank, actions in self.waiting.items() if actions]
        idle = [rank for rank in busy if not self._try(rank)]
        for rank in idle:
            if not self._try(rank):
                self.timed[rank].append(None)
        return len(idle) < len(busy)

    def _try(self, rank: int) -> bool:
        action = self.waiting[rank][0]
        if not self.ready(rank, action):
            return False
        del self.waiting[rank][0]
        self.timed[rank].append(action)
        self.done[rank].update((action, *parts_of(action)))
        return True


def _simulate_comms_compute(pipeline_order: Any, stage_to_rank: Mapping, num_stages: int) -> Order:
    """Return the step at which each rank runs its actions, sends and receives included, if each takes one step; None where a rank waits.
    Raises ValueError on a deadlock."""
    rehearsal = _Simulation(pipeline_order, stage_to_rank, num_stages)
    while any(rehearsal.waiting.values()):
        if not rehearsal.step():
            stuck = {rank: actions[0] for rank, actions in rehearsal.waiting.items() if actions}
            raise ValueError(
                f"Schedule is not progressing: ranks wait at {stuck}\n{_format_pipeline_order(rehearsal.timed)}"
            )
    return rehearsal.timed
