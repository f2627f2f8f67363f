"""Pipeline schedules: lists of actions for each rank."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ... import distributed as dist
from ...compiler import OptimizedModule
from ...nn import Module
from . import _orders
from ._actions import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    FULL_BACKWARD,
    OVERLAP_F_B,
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
    W,
    _Action,
    _ComputationType,
    _format_pipeline_order,
    _validate_schedule,
)
from ._lowering import (
    _add_reduce_grad,
    _add_send_recv,
    _add_unshard_reshard,
    _defer_recv_ops,
    _merge_bw,
    _simulate_comms_compute,
)
from ._runtime import _CustomFunctionProtocol, _PipelineContext, _PipelineScheduleRuntime
from ._schedule_base import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    _batch_p2p,
    _PipelineSchedule,
    _wait_batch_p2p,
)
from ._utils import generate_stage_to_rank_mapping
from .microbatch import TensorChunkSpec
from .stage import _PipelineStageBase

__all__ = [
    "BACKWARD_INPUT", "BACKWARD_WEIGHT", "FORWARD", "FULL_BACKWARD", "OVERLAP_F_B", "PipelineScheduleMulti",
    "PipelineScheduleSingle", "RECV_B", "RECV_F", "REDUCE_GRAD", "RESHARD", "SEND_B", "SEND_F", "UNSHARD", "B", "F", "I",
    "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "W", "_Action", "_ComputationType", "_CustomFunctionProtocol",
    "_PipelineContext", "_PipelineSchedule", "_PipelineScheduleRuntime", "_ScheduleForwardOnly", "_add_reduce_grad",
    "_add_send_recv", "_add_unshard_reshard", "_batch_p2p", "_defer_recv_ops", "_dump_chrometrace", "_format_pipeline_order",
    "_merge_bw", "_simulate_comms_compute", "_validate_schedule", "_wait_batch_p2p", "dist",
    "get_schedule_class",
]  # fmt: skip


class _ScheduleForwardOnly(PipelineScheduleSingle):
    """Schedule of forward passes only."""

    @staticmethod
    def _order_of(stage: int, num_stages: int, microbatches: int) -> _orders.Listed:
        return [_Action(stage, F, m) for m in range(microbatches)]

    def _get_pipeline_order(self) -> None:
        return None

    def _step_microbatches(self, arg_mbs: Any = None, kwarg_mbs: Any = None, target_mbs: Any = None, losses: Any = None, return_outputs: bool = True, loss_kwargs: Any = None) -> None:  # noqa: E501 # fmt: skip
        if target_mbs is not None or losses is not None:
            raise RuntimeError("Forward-only schedule does not support loss computation")
        super()._step_microbatches(arg_mbs, kwarg_mbs, None, None, return_outputs)


class ScheduleGPipe(PipelineScheduleSingle):
    """Schedule of all microbatches forward, then all backward."""

    _order_of = staticmethod(_orders.gpipe)


class Schedule1F1B(PipelineScheduleSingle):
    """Schedule that, after a warm-up, alternates one microbatch forward and one backward."""

    _order_of = staticmethod(_orders.one_forward_one_backward)

    def _check(self, stage: _PipelineStageBase, n_microbatches: int) -> None:
        if n_microbatches < stage.num_stages:
            raise ValueError(
                f"Number of microbatches ({n_microbatches}) must be greater than or equal to the number of stages"
                f" ({stage.num_stages})."
            )


# -- several stages on each rank ------------------------------------------------------------------------------------------------


class _GeneratedSchedule(_PipelineScheduleRuntime):
    """A schedule that generates the order of its actions itself."""

    _name = ""  # how messages call it
    _splits_backward = False  # whether gradients of weights are computed apart
    _style = "loop"

    def __init__(
        self,
        stages: list[_PipelineStageBase],
        n_microbatches: int,
        loss_fn: Callable | None = None,
        args_chunk_spec: tuple[TensorChunkSpec, ...] | None = None,
        kwargs_chunk_spec: dict[str, TensorChunkSpec] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        if self._splits_backward:
            _check_torch_compile_compatibility(stages, type(self).__name__)
        super().__init__(
            stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, None, scale_grads,
            backward_requires_autograd, defer_pp_recv=defer_pp_recv,
        )  # fmt: skip
        self.n_local_stages, self.num_stages = len(stages), self._num_stages
        self._check()
        self._place_stages(generate_stage_to_rank_mapping(self.pp_group_size, self._num_stages, self._style))
        self.pipeline_order = {r: self._calculate_single_rank_operations(r) for r in range(self.pp_group_size)}
        self._insert_waits()
        self._prepare_schedule_with_comms(self.pipeline_order)

    def _check(self) -> None:
        """Raise an error if the order does not support this number of stages and microbatches."""

    def _insert_waits(self) -> None:
        """Insert waits into the order of actions."""

    def _calculate_single_rank_operations(self, rank: int) -> list[_Action | None]:
        raise NotImplementedError


class ScheduleLoopedBFS(_GeneratedSchedule):
    """Schedule of all microbatches through a rank's first stage, then through its next."""

    def __init__(
        self,
        stages: list[_PipelineStageBase],
        n_microbatches: int,
        loss_fn: Callable | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        super().__init__(
            stages, n_microbatches, loss_fn, None, None, output_merge_spec, scale_grads, backward_requires_autograd,
            defer_pp_recv,
        )  # fmt: skip

    def _calculate_single_rank_operations(self, rank: int) -> list[_Action | None]:
        return _orders.looped_breadth_first(rank, self.pp_group_size, self.n_local_stages, self._n_microbatches)


class ScheduleInterleaved1F1B(_GeneratedSchedule):
    """1F1B with several stages on each rank, which shortens the waits at the start and the end."""

    _name = "Interleaved 1F1B"

    def _check(self) -> None:
        self.number_of_rounds = max(1, self._n_microbatches // self.pp_group_size)
        self.microbatches_per_round = self._n_microbatches // self.number_of_rounds
        if self._n_microbatches % self.number_of_rounds:
            raise ValueError(
                f"{self._name} requires the number of microbatches to be a multiple of the number of rounds"
                f" ({self.number_of_rounds}), but got {self._n_microbatches}."
            )

    def _calculate_single_rank_operations(self, rank: int) -> list[_Action | None]:
        return _orders.interleaved(
            rank, self.pp_group_size, self.n_local_stages, self._n_microbatches, self.microbatches_per_round,
            self._splits_backward,
        )  # fmt: skip


class ScheduleInterleavedZeroBubble(ScheduleInterleaved1F1B):
    """Interleaved 1F1B in which gradients of weights are computed where a rank would wait."""

    _name = "Zero bubble"
    _splits_backward = True

    def _insert_waits(self) -> None:
        self.pipeline_order = _orders.with_waits(self.pipeline_order)


class _VSchedule(_GeneratedSchedule):
    """Schedule with two stages on each rank: the first and the last, the second and the last but one, ..."""

    _splits_backward = True
    _style = "v"

    def _check(self) -> None:
        if self.n_local_stages != 2:
            raise ValueError(f"ZBV requires exactly 2 stages per rank, but got {self.n_local_stages}.")


class ScheduleZBVZeroBubble(_VSchedule):
    """Zero bubble with two stages on each rank, in the shape of a V."""

    def _calculate_single_rank_operations(self, rank: int) -> list[_Action | None]:
        return _orders.zero_bubble_v(rank, self.pp_group_size, self._n_microbatches)


class ScheduleDualPipeV(_VSchedule):
    """DeepSeek's DualPipe in the shape of a V: a forward of one microbatch and a backward of another as one action. (Here they run one
    after the other, unless `register_custom_function(OVERLAP_F_B, ...)` overlaps them.)"""

    def _check(self) -> None:
        super()._check()
        if self._n_microbatches < self._num_stages:
            raise ValueError(
                f"DualPipeV requires at least as many microbatches as stages, but got {self._n_microbatches} microbatches and"
                f" {self._num_stages} stages."
            )

    def _calculate_single_rank_operations(self, rank: int) -> list[_Action | None]:
        return _orders.dual_pipe_v(rank, self.pp_group_size, self._n_microbatches)


def _check_torch_compile_compatibility(stages: list[Any], schedule_name: str) -> None:
    """Raise if a stage is compiled: its backward pass cannot be split into inputs and weights."""
    for stage in stages:
        for module in stage.submod.modules() if isinstance(stage.submod, Module) else ():
            if isinstance(module, OptimizedModule):
                raise RuntimeError(
                    f"The {schedule_name} schedule is not supported with stage modules that have used torch.compile. Found"
                    f" OptimizedModule in {type(module).__name__}"
                )


def get_schedule_class(schedule_name: str) -> type[_PipelineSchedule]:
    """Return the schedule of this name, ignoring case: "1F1B", "GPipe", "Interleaved1F1B", ..."""
    known: dict[str, type[_PipelineSchedule]] = {
        "1F1B": Schedule1F1B, "Interleaved1F1B": ScheduleInterleaved1F1B, "GPipe": ScheduleGPipe,
        "LoopedBFS": ScheduleLoopedBFS, "InterleavedZeroBubble": ScheduleInterleavedZeroBubble,
        "PipelineScheduleSingle": PipelineScheduleSingle, "PipelineScheduleMulti": PipelineScheduleMulti,
        "ZBVZeroBubble": ScheduleZBVZeroBubble, "DualPipeV": ScheduleDualPipeV,
    }  # fmt: skip
    for name, kind in known.items():
        if name.lower() == schedule_name.lower():
            return kind
    raise ValueError(f"Unknown schedule name '{schedule_name}'. The valid options are {list(known)}")


def _dump_chrometrace(schedule: Any, filename: str) -> None:
    """Write an order as a trace for browsers, in which an action takes a microsecond."""
    events = [
        {
            "name": str(action), "cat": "computation" if action.computation_type in (F, B, W) else "communication", "ph": "X",
            "pid": rank, "tid": rank, "ts": step, "dur": 1,
        }
        for rank in sorted(schedule)
        for step, action in enumerate(schedule[rank])
        if action is not None
    ]  # fmt: skip
    with open(filename, "w") as file:
        json.dump({"traceEvents": events}, file)
