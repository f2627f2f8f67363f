"""Pipelines: microbatches through stages give the losses and gradients of the whole model."""

from __future__ import annotations

import copy

import pytest

import flambeau
import flambeau.distributed as dist
from flambeau import nn
from flambeau.distributed.fsdp import fully_shard
from flambeau.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    SplitPoint,
    pipe_split,
    pipeline,
)
from flambeau.distributed.pipelining.microbatch import TensorChunkSpec, merge_chunks, split_args_kwargs_into_chunks
from flambeau.distributed.pipelining.schedules import _Action

from . import worlds

MICROBATCHES = 4


def whole_model():
    flambeau.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(4)))


def batch():
    flambeau.manual_seed(1)
    return flambeau.randn(8, 6), flambeau.randn(8, 6)


def check_schedule(rank, kind, stages_of, several):
    model, (x, target) = whole_model(), batch()
    expected = copy.deepcopy(model)
    loss = nn.functional.mse_loss(expected(x), target)
    loss.backward()
    numbers = stages_of(rank)
    count = 2 * len(numbers)
    size = len(model) // count
    modules = [model[n * size : (n + 1) * size] for n in numbers]
    stages = [PipelineStage(module, n, count, "cpu") for module, n in zip(modules, numbers, strict=True)]
    schedule = kind(stages if several else stages[0], MICROBATCHES, loss_fn=nn.functional.mse_loss)
    losses: list = []
    arguments = (x,) if 0 in numbers else ()
    named = {"target": target, "losses": losses} if count - 1 in numbers else {}
    for _ in range(2):
        model.zero_grad()
        result = schedule.step(*arguments, **named)
    if named:
        assert flambeau.allclose(result, expected(x), atol=1e-6)
        assert abs(sum(one.item() for one in losses) / MICROBATCHES - loss.item()) < 1e-6
    for n, module in zip(numbers, modules, strict=True):
        for mine, theirs in zip(module.parameters(), expected[n * size : (n + 1) * size].parameters(), strict=True):
            assert flambeau.allclose(mine.grad, theirs.grad, atol=1e-6)


def one(rank):
    return [rank]


def around(rank):
    return [rank, rank + 2]


def vee(rank):
    return [rank, 3 - rank]


def gpipe(rank, size):
    check_schedule(rank, ScheduleGPipe, one, False)


def one_forward_one_backward(rank, size):
    check_schedule(rank, Schedule1F1B, one, False)


def interleaved_1f1b(rank, size):
    check_schedule(rank, ScheduleInterleaved1F1B, around, True)


def looped_breadth_first(rank, size):
    check_schedule(rank, ScheduleLoopedBFS, around, True)


def interleaved_zero_bubble(rank, size):
    check_schedule(rank, ScheduleInterleavedZeroBubble, around, True)


def zero_bubble_in_a_vee(rank, size):
    check_schedule(rank, ScheduleZBVZeroBubble, vee, True)


def dual_pipe_in_a_vee(rank, size):
    check_schedule(rank, ScheduleDualPipeV, vee, True)


def a_split_graph_is_trained(rank, size):
    model, (x, target) = whole_model(), batch()
    expected = copy.deepcopy(model)
    nn.functional.mse_loss(expected(x), target).backward()
    pipe = pipeline(model, (x[:2],), split_spec={"2": SplitPoint.BEGINNING})
    stage = pipe.build_stage(rank, "cpu")
    schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    schedule.step(*((x,) if rank == 0 else ()), **({"target": target} if rank else {}))
    for name, parameter in stage.submod.named_parameters():
        assert flambeau.allclose(parameter.grad, expected.get_parameter(name).grad, atol=1e-6)


def stages_of_shards(rank, size):
    """Both stages on each rank, cut over the two ranks, each with a half of the batch."""
    own = [dist.new_group([r]) for r in range(size)][rank]
    for kind in (ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble):
        model, (x, target) = whole_model(), batch()
        expected = copy.deepcopy(model)
        nn.functional.mse_loss(expected(x), target).backward()
        modules = [fully_shard(model[:2]), fully_shard(model[2:])]
        stages = [PipelineStage(m, n, 2, "cpu", group=own) for n, m in enumerate(modules)]
        schedule = kind(stages, 2, loss_fn=nn.functional.mse_loss)
        assert {"0UNSHARD", "1RESHARD", "0REDUCE_GRAD"} <= {str(a) for a in schedule.pipeline_order_with_comms[0]}
        half = slice(4 * rank, 4 * rank + 4)
        for _ in range(2):
            model.zero_grad()
            schedule.step(x[half], target=target[half])
        for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
            assert flambeau.allclose(mine.grad.full_tensor(), theirs.grad, atol=1e-6)


CHECKS = [
    stages_of_shards,
    gpipe,
    one_forward_one_backward,
    interleaved_1f1b,
    looped_breadth_first,
    interleaved_zero_bubble,
    zero_bubble_in_a_vee,
    dual_pipe_in_a_vee,
    a_split_graph_is_trained,
]


test_on_two_ranks = worlds.test_of(CHECKS, 2)


# -- graphs, orders and microbatches ---------------------------------------------------------------------------------------------


class Skipping(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, y):
        first = self.a(x)
        pipe_split()
        second = self.b(first).relu()
        pipe_split()
        return {"sum": self.c(second) + first, "y": y * 2}


def test_values_reach_the_stages_that_need_them():
    model, x, y = Skipping(), flambeau.randn(3, 4), flambeau.randn(3, 4)
    pipe = pipeline(model, (x, y))
    assert pipe.num_stages == 3
    (found,), expected = pipe(x, y), model(x, y)
    assert flambeau.allclose(found["sum"], expected["sum"]) and found["y"].equal(expected["y"])
    assert set(pipe.get_stage_module(1).state_dict()) == {"b.weight", "b.bias"}


def test_splitting_leaves_the_model_as_it_was():
    model = whole_model()
    pipe = pipeline(model, (flambeau.randn(2, 6),), split_spec={"1": SplitPoint.END, "2": SplitPoint.END})
    assert pipe.num_stages == 3
    assert all("forward" not in module.__dict__ for module in model.modules())


def test_actions_are_written_and_read():
    for text in ("2F0", "1UNSHARD", "3SEND_F1", "0W12", "(0F0;7B0)OVERLAP_F_B"):
        assert str(_Action.from_str(text)) == text
    with pytest.raises(RuntimeError, match="Invalid action string"):
        _Action.from_str("nonsense")


def test_microbatches_are_split_and_merged():
    x = flambeau.arange(12.0).reshape(6, 2)
    args, kwargs = split_args_kwargs_into_chunks((x, 3), {"k": x}, 3, None, {"k": TensorChunkSpec(0)})
    assert len(args) == 3 and args[1][0].equal(x[2:4]) and args[1][1] == 3 and kwargs[2]["k"].equal(x[4:])
    assert merge_chunks([a[0] for a in args], None).equal(x)
