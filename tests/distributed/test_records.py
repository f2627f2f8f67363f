"""Collectives as operators: modes see them, programs hold them, and their derivatives are collectives."""

from __future__ import annotations

import pytest

import flambeau
import flambeau.distributed as dist
from flambeau import nn
from flambeau.core.modes import Mode
from flambeau.distributed import records
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.graph.checker import check
from flambeau.graph.recorder import record
from flambeau.graph.replay import Replay
from tests.distributed import worlds


class Seen(Mode):
    """Notes the names of operators."""

    parts = True

    def __init__(self) -> None:
        self.names: list[str] = []

    def handle(self, op, function, args, kwargs):
        self.names.append(op.key)
        return function(*args, **kwargs)


def a_mode_sees_collectives_and_their_results_are_there(rank: int, size: int) -> None:
    x, y = flambeau.full((3,), float(rank)), flambeau.full((3,), float(rank))
    with Seen() as seen:
        dist.all_reduce(x)
        work = dist.all_reduce(y, async_op=True)
        dist.barrier()
        told = []
        work.get_future().then(lambda done: told.append(done.value()[0].tolist()))
        assert work.is_completed() and work.get_future().value()[0] is y
        assert told == [[1.0] * 3]
    assert x.tolist() == y.tolist() == [1.0] * 3
    expected = ["all_reduce_", "all_reduce_.start", "barrier", "wait_"]
    assert [n for n in seen.names if n.startswith("collective")] == [f"collective.{name}" for name in expected]


def _replayed(model, states, rank: int, reduce) -> None:
    optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        reduce(model)
        optimizer.step()
        return loss

    x = flambeau.randn(5, 4, generator=flambeau.Generator().manual_seed(rank))
    for _ in range(2):
        step(x)
    program = record(step, x, states=[*model.parameters(), *(p.grad for p in model.parameters()), *states()])
    check(program)
    assert any(call.op.sends and call.changes for call in program.calls)
    before = [p.detach().clone() for p in model.parameters()]
    loss = Replay(program).run([x])
    replayed = [p.detach().clone() for p in model.parameters()]
    with flambeau.no_grad():
        for parameter, value in zip(model.parameters(), before):
            parameter.copy_(value)
    assert flambeau.equal(step(x), loss)
    assert all(flambeau.equal(p, r) for p, r in zip(model.parameters(), replayed))


def _network() -> nn.Module:
    flambeau.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def a_step_with_reductions_by_hand_is_one_program(rank: int, size: int) -> None:
    def reduce(model: nn.Module) -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)

    _replayed(_network(), lambda: [], rank, reduce)


def a_step_of_distributed_data_parallel_is_one_program(rank: int, size: int) -> None:
    model = nn.parallel.DistributedDataParallel(_network())
    _replayed(model, lambda: [bucket.flat for bucket in model.reducer.buckets], rank, lambda model: None)


def derivatives_are_collectives(rank: int, size: int) -> None:
    """For each: the input of a rank, the function, and the gradient for gradients of 1 + rank."""
    group = dist.group.WORLD
    everybody = sum(1.0 + r for r in range(size))
    cases = [
        (2, lambda x: records.all_reduce(x, ReduceOp.SUM, group), [everybody] * 2),
        (2, lambda x: records.broadcast(x, 1, group), [everybody if rank == 1 else 0.0] * 2),
        (2, lambda x: records.reduce(x, 1, ReduceOp.SUM, group), [2.0, 2.0]),
        (2, lambda x: records.all_gather(x, group), [everybody] * 2),
        (4, lambda x: records.reduce_scatter(x, ReduceOp.SUM, group), [1.0, 1.0, 2.0, 2.0]),
        (4, lambda x: records.reduce_scatter(x, ReduceOp.AVG, group), [0.5, 0.5, 1.0, 1.0]),
        (3, lambda x: records.all_to_all(x, *(([1, 1], [1, 2]), ([2, 2], [1, 2]))[rank], group), [1.0, 2.0, 2.0]),
    ]
    for length, function, expected in cases:
        x = flambeau.arange(float(length)).add_(10 * rank).requires_grad_()
        result = function(x)
        result.backward(flambeau.full(result.shape, 1.0 + rank))
        assert x.grad.tolist() == expected, (length, x.grad)


CHECKS = [
    a_mode_sees_collectives_and_their_results_are_there,
    a_step_with_reductions_by_hand_is_one_program,
    a_step_of_distributed_data_parallel_is_one_program,
    derivatives_are_collectives,
]


test_between_two_ranks = worlds.test_of(CHECKS, 2)


def test_every_collective_says_what_it_changes() -> None:
    known = [v.op for v in vars(records).values() if getattr(v, "op", None) is not None]
    found = [op for op in known if op.source.__module__ == records.__name__]
    assert len(found) == 23
    for op in found:
        assert op.doc and op.batching
        assert bool(op.writes) == (op.name.endswith("_")), op.name
        assert op.differentiable == (not op.name.endswith("_") and op.name != "barrier")


def test_arguments_are_checked_before_the_group() -> None:
    """There is no group here: whatever is wrong besides is told first, as in PyTorch."""
    numbers = flambeau.ones(2, dtype=flambeau.complex64)
    with pytest.raises(ValueError, match="all_reduce does not support RedOpType.MAX on complex tensors"):
        dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
    for call in (lambda: dist.all_reduce(numbers), lambda: dist.barrier(device_ids=0)):
        with pytest.raises(ValueError, match="Default process group has not been initialized"):
            call()
