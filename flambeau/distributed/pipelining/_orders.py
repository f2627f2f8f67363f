"""In which order a rank runs its microbatches, for each schedule."""

from __future__ import annotations

from collections import defaultdict

from ._actions import B, F, I, W, _Action


def gpipe(stage: int, num_stages: int, microbatches: int) -> list[_Action]:
    """All forwards, then all backwards."""
    return [_Action(stage, F, m) for m in range(microbatches)] + [_Action(stage, B, m) for m in range(microbatches)]


def one_forward_one_backward(stage: int, num_stages: int, microbatches: int) -> list[_Action]:
    """As many forwards as there are stages behind, then one backward for each forward: so few microbatches are held at a time."""
    ahead = min(microbatches, num_stages - stage)
    order = [_Action(stage, F, m) for m in range(ahead)]
    for m in range(microbatches):
        order.append(_Action(stage, B, m))
        if ahead + m < microbatches:
            order.append(_Action(stage, F, ahead + m))
    return order


def looped_breadth_first(rank: int, ranks: int, local_stages: int, microbatches: int) -> list[_Action]:
    """All microbatches through one stage of the rank, then through its next; backwards the other way round."""
    stages = range(rank, ranks * local_stages, ranks)
    order = [_Action(stage, F, m) for stage in stages for m in range(microbatches)]
    return order + [_Action(stage, B, m) for stage in reversed(stages) for m in reversed(range(microbatches))]


def interleaved(
    rank: int, ranks: int, local_stages: int, microbatches: int, per_round: int, zero_bubble: bool = False
) -> list[_Action]:
    """1F1B with several stages on each rank: `per_round` microbatches go through a stage before the next one has its turn. With
    `zero_bubble` the gradients of weights come later, when there would be nothing to do."""
    total = local_stages * microbatches
    hops = ranks - 1 - rank
    ahead = min(total, (local_stages - 1) * per_round + hops * (1 if zero_bubble else 2))
    counts: dict[tuple, int] = defaultdict(int)

    def forward(position: int) -> _Action:
        stage = (position // per_round) % local_stages * ranks + rank
        counts["F", stage] += 1
        return _Action(stage, F, counts["F", stage] - 1)

    def backward(position: int) -> _Action:
        stage = (local_stages - 1 - (position // per_round) % local_stages) * ranks + rank
        counts["B", stage] += 1
        return _Action(stage, I if zero_bubble else B, counts["B", stage] - 1)

    order = [forward(position) for position in range(ahead)]
    late: list[_Action] = []
    for position in range(total):
        if ahead + position < total:
            order.append(forward(ahead + position))
        order.append(backward(position))
        if zero_bubble:
            late.append(order[-1]._replace(computation_type=W))
            if len(late) > rank:
                order.append(late.pop(0))
    return order + late


def zero_bubble_v(rank: int, ranks: int, microbatches: int) -> list[_Action]:
    """Two stages on each rank, the first and the last, the second and the last but one, ...: each rank sees a microbatch on its way
    down and up. Weights get their gradients where a rank would wait."""
    down, up = rank, 2 * ranks - 1 - rank
    many = max(2 * ranks - 1, microbatches)
    order: list[_Action] = []
    counts: dict[tuple, int] = defaultdict(int)

    def run(stage: int, *kinds: object) -> None:
        for kind in kinds:
            order.append(_Action(stage, kind, counts[stage, kind]))  # type: ignore[arg-type]
            counts[stage, kind] += 1

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
    while counts[up, W] < counts[up, I]:
        run(up, W)
    while counts[down, W] < counts[down, I]:
        run(down, W)
    return [action for action in order if action.microbatch_index < microbatches]  # type: ignore[operator]
