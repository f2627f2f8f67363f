"""Order in which a rank runs its microbatches, for each schedule. None marks steps in which a rank has to wait if all actions take equally
long."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

from ._actions import OVERLAP_F_B, B, F, I, W, _Action, _ComputationType

Listed = list[_Action | None]


class _OrderBuilder:
    """Collects actions; microbatches of a stage are numbered in order."""

    def __init__(self, waits: int = 0) -> None:
        self.order: Listed = [None] * waits
        self.counts: dict[tuple[int, _ComputationType], int] = defaultdict(int)

    def next(self, stage: int, kind: _ComputationType) -> _Action:
        counted = I if kind is B else kind
        self.counts[stage, counted] += 1
        return _Action(stage, kind, self.counts[stage, counted] - 1)

    def run(self, stage: int, *kinds: _ComputationType) -> None:
        self.order += [self.next(stage, kind) for kind in kinds]


def gpipe(stage: int, num_stages: int, microbatches: int) -> Listed:
    """List all forwards, then all backwards."""
    return [_Action(stage, kind, m) for kind in (F, B) for m in range(microbatches)]


def one_forward_one_backward(stage: int, num_stages: int, microbatches: int) -> Listed:
    """List as many forwards as there are later stages, then one backward for each forward, which keeps few microbatches in memory."""
    ahead = min(microbatches, num_stages - stage)
    order: Listed = [_Action(stage, F, m) for m in range(ahead)]
    for m in range(microbatches):
        order.append(_Action(stage, B, m))
        if ahead + m < microbatches:
            order.append(_Action(stage, F, ahead + m))
    return order


def looped_breadth_first(rank: int, ranks: int, local_stages: int, microbatches: int) -> Listed:
    """List all microbatches through the rank's first stage, then through its next; backwards in reverse."""
    stages = range(rank, ranks * local_stages, ranks)
    order: Listed = [None] * rank + [_Action(stage, F, m) for stage in stages for m in range(microbatches)]
    order += [None] * (2 * (ranks - 1 - rank))
    return order + [_Action(stage, B, m) for stage in reversed(stages) for m in reversed(range(microbatches))]


def interleaved(
    rank: int, ranks: int, local_stages: int, microbatches: int, per_round: int, zero_bubble: bool = False
) -> Listed:
    """List 1F1B with several stages on each rank: `per_round` microbatches go through a stage before the next one is used. With
    `zero_bubble` the gradients of weights are deferred to steps that would be idle."""
    total, hops = local_stages * microbatches, ranks - 1 - rank
    ahead = min(total, (local_stages - 1) * per_round + hops * (1 if zero_bubble else 2))
    writer = _OrderBuilder(rank)
    late: deque[_Action] = deque()

    def forward(position: int) -> None:
        writer.run((position // per_round) % local_stages * ranks + rank, F)

    for position in range(ahead):
        forward(position)
    if ahead:
        writer.order += [None] * (hops if zero_bubble else local_stages * ranks + 2 * hops - ahead - rank)
    for position in range(total):
        if ahead + position < total:
            forward(ahead + position)
        elif not zero_bubble:
            writer.order.append(None)
        stage = (local_stages - 1 - (position // per_round) % local_stages) * ranks + rank
        writer.run(stage, I if zero_bubble else B)
        if zero_bubble:
            late.append(writer.next(stage, W))
            if position >= rank:
                writer.order.append(late.popleft())
    return [*writer.order, *late]


def with_waits(orders: dict[int, Listed]) -> dict[int, Listed]:
    """Add waits to orders, so that no forward comes before that of the previous stage."""
    timed: dict[int, Listed] = {rank: [] for rank in orders}
    waiting = {rank: deque(actions) for rank, actions in orders.items()}
    done: set[_Action | None] = set()
    while any(waiting.values()):
        now: list[_Action | None] = []
        for rank, actions in waiting.items():
            if actions:
                first = actions[0]
                forward = first is not None and first.computation_type is F and first.stage_index > 0
                if first is not None and forward and first._replace(stage_index=first.stage_index - 1) not in done:
                    timed[rank].append(None)
                else:
                    now.append(actions.popleft())
                    timed[rank].append(now[-1])
        done.update(now)
    return timed


def zero_bubble_v(rank: int, ranks: int, microbatches: int) -> Listed:
    """List actions for two stages on each rank, the first and the last, the second and the last but one, ...: a rank sees a microbatch on
    its way down and up. Gradients of weights are computed when a rank would wait."""
    down, up = rank, 2 * ranks - 1 - rank
    many = max(2 * ranks - 1, microbatches)
    writer = _OrderBuilder(rank)
    run, counts = writer.run, writer.counts
    for _ in range(2 * (ranks - rank) - 1):
        run(down, F)
    for _ in range(rank):
        run(up, F)
        run(down, F)
    for _ in range(ranks - rank):
        run(up, F, I, W)
    while counts[up, F] < counts[down, F] or counts[down, F] < many:
        if counts[down, F] < many:
            run(down, F)
        run(down, I, W)
        run(up, F, I, W)
    for _ in range(rank):
        run(down, I)
        run(up, I)
    for _ in range(ranks - rank):
        run(down, I, W)
    for stage in (up, down):
        while counts[stage, W] < counts[stage, I]:
            run(stage, W)
    return [a if a is not None and (a.microbatch_index or 0) < microbatches else None for a in writer.order]


def dual_pipe_v(rank: int, ranks: int, microbatches: int) -> Listed:
    """List DeepSeek's DualPipe in the shape of a V: a forward of one half and a backward of the other are one action, so that the
    communication of one overlaps with the other."""
    down, up, hops = rank, 2 * ranks - 1 - rank, ranks - 1 - rank
    writer = _OrderBuilder()
    late: deque[_Action] = deque()

    def backward(stage: int, split: bool) -> None:
        writer.run(stage, I if split else B)
        if split:
            last: Any = writer.order[-1]
            late.append(last._replace(computation_type=W))

    def weight() -> None:
        if late:
            writer.order.append(late.popleft())

    def both(forward: int, back: int) -> None:
        writer.order.append(_Action(-1, OVERLAP_F_B, None, (writer.next(forward, F), writer.next(back, B))))

    writer.run(down, *[F] * (2 * hops))
    for _ in range(rank + 1):
        writer.run(down, F)
        writer.run(up, F)
    for _ in range(hops):
        backward(up, True)
        weight()
        writer.run(up, F)
    for position in range(microbatches - 2 * ranks + rank + 1):
        if position == 0 and hops == 0:  # apart: the backward need not wait
            writer.run(down, F)
            writer.run(up, B)
        else:
            both(down, up)
        both(up, down)
    for _ in range(hops):
        writer.run(up, B)
        both(up, down)
    half, odd = (rank + 1) // 2, rank % 2 == 1
    for position in range(rank + 1):  # from the middle on weights come later
        backward(up, position >= half if odd else position > half)
        backward(down, position >= half)
    for _ in range(hops):
        weight()
        backward(down, True)
    for _ in range(rank + 1):
        weight()
    return writer.order
