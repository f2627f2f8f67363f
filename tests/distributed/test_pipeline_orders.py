"""Lists of actions: the same as PyTorch's, with and without what is put in between."""

from __future__ import annotations

import hashlib
import importlib
import types

import pytest
from answers import told

from flambeau.distributed.pipelining import _schedule_visualizer, schedules
from flambeau.distributed.pipelining.schedules import _Action, _merge_bw, _PipelineScheduleRuntime, _validate_schedule

KINDS = [
    "ScheduleLoopedBFS", "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble", "ScheduleZBVZeroBubble",
    "ScheduleDualPipeV",
]  # fmt: skip
SIZES = [
    (2, 2, 2),
    (2, 4, 4),
    (2, 8, 2),
    (4, 8, 4),
    (3, 12, 4),
    (4, 10, 5),
    (2, 3, 4),
    (2, 10, 4),
    (2, 20, 8),
    (1, 4, 2),
]


def stages(local, ranks):
    return [
        types.SimpleNamespace(submod=None, num_stages=local * ranks, group_size=ranks, group_rank=0, group=None)
        for _ in range(local)
    ]


def orders(library, kind, local, microbatches, ranks):
    """What all ranks compute, all that they do, and the steps that takes; or why there is no such schedule."""
    try:
        schedule = getattr(library, kind)(stages(local, ranks), microbatches)
    except ValueError as problem:
        return str(problem)
    computed = {rank: [str(a) for a in actions] for rank, actions in schedule.pipeline_order.items()}
    everything = {rank: [str(a) for a in actions] for rank, actions in schedule.pipeline_order_with_comms.items()}
    return computed, everything, schedule.stage_index_to_group_rank


def digest(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]


@pytest.mark.parametrize("kind", KINDS)
def test_orders_are_those_of_pytorch(kind):
    def every(library):
        return [digest(orders(library, kind, *size)) for size in SIZES]

    theirs = told(f"orders of {kind}", lambda: every(importlib.import_module("torch.distributed.pipelining.schedules")))
    found = every(schedules)
    wrong = [size for size, one, other in zip(SIZES, found, theirs) if one != other]
    assert not wrong, [(size, orders(schedules, kind, *size)) for size in wrong]


@pytest.mark.parametrize("name", ["GPipe", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"])
def test_deferred_receives_and_spacing_are_those_of_pytorch(name, capsys):
    settings = [{}, {"add_spacing": True}]
    if name != "GPipe":  # PyTorch's order for it has reductions in it already
        settings += [{"with_comms": True}, {"with_comms": True, "defer_pp_recv": True}]
    if name not in ("Interleaved1F1B", "InterleavedZeroBubble"):
        del settings[1]  # PyTorch cannot space these, or mixes up ranks when one has finished
    for setting in settings:

        def actions(library):
            return [[str(a) for a in rank] for rank in library.get_schedule_ops(name, 2, 4, **setting)]

        place = "torch.distributed.pipelining._schedule_visualizer"
        expected = told(f"{name} {setting}", lambda: actions(importlib.import_module(place)))
        assert actions(_schedule_visualizer) == expected, setting


@pytest.mark.parametrize("kind", ["ScheduleGPipe", "Schedule1F1B"])
def test_one_stage_on_each_rank(kind):
    stage = stages(1, 3)[0]
    stage.num_stages = 3
    schedule = getattr(schedules, kind)(stage, 5)
    assert _validate_schedule(schedule.pipeline_order, 3, 3, 5) == {0: 0, 1: 1, 2: 2}
    assert str(schedule.pipeline_order[2][-1]) == "2REDUCE_GRAD"


def test_orders_are_rehearsed():
    schedule = schedules.ScheduleInterleaved1F1B(stages(2, 2), 4)
    order = {
        r: [a for a in actions if "SHARD" not in str(a)] for r, actions in schedule.pipeline_order_with_comms.items()
    }
    where = schedule.stage_index_to_group_rank.__getitem__
    timed = schedules._simulate_comms_compute(order, where, 4)
    assert [a for a in timed[1] if a is not None] == order[1]
    assert timed[1][:3] == [None, _Action.from_str("1RECV_F0"), _Action.from_str("1F0")]
    order[0] = order[0][1:]
    with pytest.raises(ValueError, match="not progressing"):
        schedules._simulate_comms_compute(order, where, 4)


def test_orders_are_written_and_read(tmp_path):
    file = str(tmp_path / "order.csv")
    schedule = schedules.ScheduleDualPipeV(stages(2, 2), 4)
    schedule._dump_csv(file)
    other = _PipelineScheduleRuntime(stages(2, 2), 4)
    other._load_csv(file, "compute_comms")
    assert other.pipeline_order_with_comms == schedule.pipeline_order_with_comms
    schedule._dump_csv(file, "compute_only")
    other._load_csv(file)
    assert other.pipeline_order_with_comms == schedule.pipeline_order_with_comms
    assert other.stage_index_to_group_rank == {0: 0, 1: 1, 2: 1, 3: 0}


def test_orders_that_cannot_be_are_refused():
    runtime = _PipelineScheduleRuntime(stages(1, 2), 1)
    actions = {0: ["0F0", "0B0"], 1: ["1F0", "1B0"]}
    parsed = {rank: [_Action.from_str(text) for text in texts] for rank, texts in actions.items()}
    runtime._prepare_schedule_with_comms(parsed)
    with pytest.raises(ValueError, match="found communication action '0SEND_F0' at rank 0, position 2"):
        runtime._prepare_schedule_with_comms({**parsed, 0: [*parsed[0], _Action.from_str("0SEND_F0")]})
    with pytest.raises(
        AssertionError, match="Running Full Backward for stage 1, microbatch 0 without first running Forward"
    ):
        runtime._prepare_schedule_with_comms({**parsed, 1: parsed[1][::-1]})
    with pytest.raises(AssertionError, match="assigned to both rank 1 and rank 0"):
        runtime._prepare_schedule_with_comms({**parsed, 1: [*parsed[1], parsed[0][0]]})
    with pytest.raises(ValueError, match="Invalid computation type"):
        runtime.register_custom_function(schedules.SEND_F, print)


def test_halves_that_follow_each_other_are_one():
    actions = [_Action.from_str(text) for text in ("0I0", "", "0W0", "0I1", "0I2", "0W1", "0W2")]
    assert [str(a) for a in _merge_bw(actions)] == ["0B0", "0I1", "0I2", "0W1", "0W2"]
