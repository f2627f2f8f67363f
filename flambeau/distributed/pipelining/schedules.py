"""Schedules: how microbatches go through the stages. A schedule is a list of actions for each rank; all are run by the same loop."""

from __future__ import annotations

import csv
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ...core.graph import grad_mode
from ...core.tensor import Tensor
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
    Order,
    W,
    _Action,
    _add_reduce_grad,
    _add_send_recv,
    _add_unshard_reshard,
    _ComputationType,
    _format_pipeline_order,
    _merge_bw,
    _simulate_comms_compute,
    _validate_schedule,
    parts_of,
    with_bubbles,
)
from ._utils import generate_stage_to_rank_mapping
from .microbatch import TensorChunkSpec, _split_tensor, merge_chunks, split_args_kwargs_into_chunks
from .stage import _PipelineStageBase

__all__ = [
    "BACKWARD_INPUT", "BACKWARD_WEIGHT", "FORWARD", "FULL_BACKWARD", "OVERLAP_F_B", "PipelineScheduleMulti",
    "PipelineScheduleSingle", "RECV_B", "RECV_F", "REDUCE_GRAD", "RESHARD", "SEND_B", "SEND_F", "UNSHARD", "B", "F", "I",
    "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "W", "_Action", "_ComputationType", "_PipelineSchedule",
    "_PipelineScheduleRuntime", "_ScheduleForwardOnly", "_add_reduce_grad", "_add_send_recv", "_add_unshard_reshard",
    "_format_pipeline_order", "_merge_bw", "_simulate_comms_compute", "_validate_schedule", "get_schedule_class",
]  # fmt: skip

logger = logging.getLogger(__name__)


class _PipelineSchedule(ABC):
    """What all schedules share: the batch in microbatches, the losses, and the loop that runs actions."""

    pipeline_order: Order

    def __init__(
        self,
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: tuple[TensorChunkSpec, ...] | None = None,
        kwargs_chunk_spec: dict[str, TensorChunkSpec] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        self._n_microbatches, self._loss_fn, self.scale_grads = n_microbatches, loss_fn, scale_grads
        self._args_chunk_spec, self._kwargs_chunk_spec = args_chunk_spec, kwargs_chunk_spec
        self._output_merge_spec = output_merge_spec
        self._has_backward = loss_fn is not None
        self._internal_losses: dict[int, Tensor] = {}

    @property
    @abstractmethod
    def _own_stages(self) -> list[Any]:
        """The stages of this rank."""

    @abstractmethod
    def _own_actions(self) -> list[_Action | None]:
        """What this rank does, in order."""

    # -- one batch ----------------------------------------------------------------------------------------------------------
    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """One batch forwards and backwards. The rank with the first stage gives the arguments, that with the last one `target`, and
        gets a loss for each microbatch in `losses` and the model's result."""
        if self._has_backward and not grad_mode.enabled:
            raise RuntimeError(
                "step() requires gradients to be enabled for backward computation; it should not be used under torch.no_grad()"
                " context. Please call eval() instead."
            )
        for stage in self._own_stages:
            stage.has_backward = self._has_backward
            stage.clear_runtime_states()
        arguments, named = self._split_inputs(args, kwargs)
        targets = None if target is None else _split_tensor(target, TensorChunkSpec(0), self._n_microbatches)
        self._step_microbatches(arguments, named, targets, losses, return_outputs, loss_kwargs)
        last = next((stage for stage in self._own_stages if stage.is_last), None)
        return self._merge_outputs(last.output_chunks) if last is not None and return_outputs else None

    def eval(self, *args: Any, target: Any = None, losses: list | None = None, **kwargs: Any) -> Any:
        """One batch forwards only."""
        before, self._has_backward = self._has_backward, False
        try:
            return self.step(*args, target=target, losses=losses, **kwargs)
        finally:
            self._has_backward = before

    def _step_microbatches(
        self,
        arg_mbs: list | None = None,
        kwarg_mbs: list | None = None,
        target_mbs: list | None = None,
        losses: list | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
    ) -> None:
        arguments, named = self._check_inputs(arg_mbs, kwarg_mbs, target_mbs, losses)
        stages = {stage.stage_index: stage for stage in self._own_stages}
        left = dict.fromkeys(stages, self._n_microbatches)  # microbatches whose weights still wait for gradients
        for action in self._own_actions():
            for part in parts_of(action) if action is not None else ():
                if part.computation_type in (F, B, I, W):
                    self._run(part, stages, arguments, named, target_mbs, return_outputs, loss_kwargs, left)
        for stage in stages.values():
            stage.wait_for_sends()
        self._update_losses(self._own_stages, losses)

    def _run(
        self,
        action: _Action,
        stages: dict[int, Any],
        args: list,
        kwargs: list,
        targets: list | None,
        keep: bool,
        loss_kwargs: dict[str, Any] | None,
        left: dict[int, int],
    ) -> None:
        """Do one action, and hand its results to the neighbouring stage."""
        kind, mb = action.computation_type, action.microbatch_index
        assert mb is not None
        stage = stages[action.stage_index]
        if kind is F:
            output = stage.forward_one_chunk(mb, args[mb], kwargs[mb], save_forward_output=keep)
            self._maybe_compute_loss(stage, output, targets, mb, loss_kwargs)
            if not stage.is_last:
                self._hand_on(stage, stages, "F", mb, stage.fwd_cache[mb][0])
            if not self._has_backward:
                del stage.fwd_cache[mb]
            return
        if not self._has_backward:
            return
        left[stage.stage_index] -= kind is not I
        last = left[stage.stage_index] == 0
        if kind is W:
            stage.backward_weight_one_chunk(mb, last_backward=last)
        else:
            loss = self._internal_losses.get(mb) if stage.is_last else None
            stage.backward_one_chunk(mb, loss=loss, full_backward=kind is B, last_backward=last)
            gradients = stage.get_local_bwd_output(mb)
            if not stage.is_first:
                self._hand_on(stage, stages, "B", mb, gradients)
        if last and self.scale_grads:
            stage.scale_grads(self._n_microbatches)

    def _hand_on(self, stage: Any, stages: dict[int, Any], direction: str, mb: int, values: tuple) -> None:
        neighbour = stages.get(stage.stage_index + (1 if direction == "F" else -1))
        if neighbour is None:
            stage._send(direction, mb, values)
        elif direction == "F":
            neighbour.set_local_fwd_input(values, mb)
        else:
            neighbour.set_local_bwd_input(values, mb)

    # -- losses, inputs and results -------------------------------------------------------------------------------------------
    def _maybe_compute_loss(
        self, stage: Any, output: Any, target_mbs: list | None, mb_index: int, loss_kwargs: dict | None = None
    ) -> None:
        if stage.is_last and self._loss_fn is not None and target_mbs is not None:
            self._internal_losses[mb_index] = self._compute_loss(output, target_mbs[mb_index], loss_kwargs)
        elif stage.is_last and self._has_backward:
            raise ValueError("the rank with the last stage needs a target for the loss: step(target=...)")

    def _compute_loss(self, output: Any, target: Any, loss_kwargs: dict[str, Any] | None = None) -> Tensor:
        assert self._loss_fn is not None
        return self._loss_fn(output, target, **(loss_kwargs or {}))

    def _update_losses(self, stages: Any, losses: list | None) -> None:
        """Give the losses of all microbatches to the caller."""
        has_last = any(stage.is_last for stage in (stages if isinstance(stages, list) else [stages]))
        if has_last and losses is not None:
            if len(self._internal_losses) != self._n_microbatches:
                raise RuntimeError(f"Expecting {self._n_microbatches} losses but got {len(self._internal_losses)}")
            losses[:] = [self._internal_losses[mb] for mb in sorted(self._internal_losses)]
        self._internal_losses.clear()

    def _check_inputs(
        self,
        arg_mbs: list | None = None,
        kwarg_mbs: list | None = None,
        target_mbs: list | None = None,
        losses: list | None = None,
    ) -> tuple[list, list]:
        for name, given in (("arg_mbs", arg_mbs), ("kwarg_mbs", kwarg_mbs), ("target_mbs", target_mbs)):
            if given is None:
                continue
            if not isinstance(given, list):
                raise TypeError(f"{name} must be a list but got a {type(given)}")
            if len(given) != self._n_microbatches:
                raise ValueError(f"Expecting {self._n_microbatches} {name} but got {len(given)}")
        if losses is not None and not isinstance(losses, list):
            raise TypeError(f"losses must be a list but got a {type(losses)}")
        return arg_mbs or [()] * self._n_microbatches, kwarg_mbs or [{}] * self._n_microbatches

    def _split_inputs(self, args: tuple, kwargs: dict[str, Any] | None = None) -> tuple[list, list]:
        if not args and not kwargs:
            return [()] * self._n_microbatches, [{}] * self._n_microbatches
        return split_args_kwargs_into_chunks(
            args, kwargs, self._n_microbatches, self._args_chunk_spec, self._kwargs_chunk_spec
        )

    def _merge_outputs(self, output_chunks: list) -> Any:
        return merge_chunks(output_chunks, self._output_merge_spec)


# -- one stage for each rank ----------------------------------------------------------------------------------------------------


class PipelineScheduleSingle(_PipelineSchedule):
    """Schedules with one stage on each rank. With `scale_grads`, gradients are divided by the number of microbatches: for losses that
    are means."""

    def __init__(
        self,
        stage: _PipelineStageBase,
        n_microbatches: int,
        loss_fn: Callable | None = None,
        args_chunk_spec: tuple[TensorChunkSpec, ...] | None = None,
        kwargs_chunk_spec: dict[str, TensorChunkSpec] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        super().__init__(n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        self._stage, self._num_stages = stage, stage.num_stages
        order = {rank: self._order_of(rank, self._num_stages, n_microbatches) for rank in range(self._num_stages)}
        self._listed = order[getattr(stage, "stage_index", 0)]
        self.pipeline_order = with_bubbles(order, self._num_stages)

    @staticmethod
    def _order_of(stage: int, num_stages: int, microbatches: int) -> list[_Action]:
        raise NotImplementedError

    def _get_pipeline_order(self) -> Order:
        return self.pipeline_order

    @property
    def _own_stages(self) -> list[Any]:
        return [self._stage]

    def _own_actions(self) -> list[_Action | None]:
        return list(self._listed)


class _ScheduleForwardOnly(PipelineScheduleSingle):
    """Forwards only."""

    @staticmethod
    def _order_of(stage: int, num_stages: int, microbatches: int) -> list[_Action]:
        return [_Action(stage, F, m) for m in range(microbatches)]

    def _step_microbatches(self, arg_mbs: Any = None, kwarg_mbs: Any = None, target_mbs: Any = None, losses: Any = None, return_outputs: bool = True, loss_kwargs: Any = None) -> None:  # noqa: E501 # fmt: skip
        if target_mbs is not None or losses is not None:
            raise RuntimeError("Forward-only schedule does not support loss computation")
        super()._step_microbatches(arg_mbs, kwarg_mbs, None, None, return_outputs)


class ScheduleGPipe(PipelineScheduleSingle):
    """All microbatches forwards, then all backwards."""

    _order_of = staticmethod(_orders.gpipe)


class Schedule1F1B(PipelineScheduleSingle):
    """After a start, one microbatch forwards and one backwards in turn."""

    def __init__(self, stage: _PipelineStageBase, n_microbatches: int, *args: Any, **kwargs: Any) -> None:
        if n_microbatches < stage.num_stages:
            raise ValueError(
                f"Number of microbatches ({n_microbatches}) must be greater than or equal to the number of stages"
                f" ({stage.num_stages})."
            )
        super().__init__(stage, n_microbatches, *args, **kwargs)

    _order_of = staticmethod(_orders.one_forward_one_backward)


# -- several stages on each rank ------------------------------------------------------------------------------------------------


class PipelineScheduleMulti(_PipelineSchedule):
    """Schedules with several stages on each rank; `pipeline_order` has the actions of all ranks."""

    def __init__(
        self,
        stages: list[_PipelineStageBase],
        n_microbatches: int,
        loss_fn: Callable | None = None,
        args_chunk_spec: tuple[TensorChunkSpec, ...] | None = None,
        kwargs_chunk_spec: dict[str, TensorChunkSpec] | None = None,
        output_merge_spec: Any = None,
        use_full_backward: bool | None = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        if use_full_backward is not None:
            logger.warning(
                "Deprecation warning: 'use_full_backward' is no longer supported. Simply stop passing it, and everything should"
                " still work fine."
            )
        self._stages = stages
        self._num_stages = stages[0].num_stages
        self.pp_group_size, self.rank = stages[0].group_size, stages[0].group_rank
        self.stage_index_to_group_rank = generate_stage_to_rank_mapping(self.pp_group_size, self._num_stages)
        self._place_stages()
        self.pipeline_order = {}

    def _place_stages(self) -> None:
        for stage in self._stages:
            stage.stage_index_to_group_rank = self.stage_index_to_group_rank

    @property
    def _own_stages(self) -> list[Any]:
        return self._stages

    def _own_actions(self) -> list[_Action | None]:
        return _merge_bw(self.pipeline_order[self.rank])  # type: ignore[return-value]

    def _set_order(self, order: dict[int, list[_Action]]) -> None:
        self.pipeline_order = with_bubbles(order, self._num_stages)

    def _validate_and_set_stage_mapping(self, actions: Order) -> None:
        """The order that is given, and which rank each stage is on in it."""
        self.stage_index_to_group_rank = _validate_schedule(
            actions, self.pp_group_size, self._num_stages, self._n_microbatches
        )
        self._place_stages()

    def _dump_csv(self, filename: str) -> None:
        """Write the order: a line for each rank."""
        with open(filename, "w", newline="") as file:
            csv.writer(file).writerows(
                [["" if a is None else str(a) for a in self.pipeline_order[r]] for r in sorted(self.pipeline_order)]
            )

    def _load_csv(self, filename: str, format: str = "compute_only") -> None:
        """Take the order from a file that `_dump_csv` has written."""
        if format != "compute_only":
            raise AssertionError(f"format {format} is not supported")
        with open(filename, newline="") as file:
            self.pipeline_order = {
                rank: [_Action.from_str(text) for text in row] for rank, row in enumerate(csv.reader(file))
            }
        self._validate_and_set_stage_mapping(self.pipeline_order)


class _PipelineScheduleRuntime(PipelineScheduleMulti):
    """Runs an order that is given. Messages between ranks are told apart by number and follow from what is computed, so sends and
    receives in the order need not be obeyed one by one."""

    pipeline_order_with_comms: dict[int, list[_Action]]

    def _prepare_schedule_with_comms(self, actions: Any, format: str = "compute_only") -> None:
        if format == "compute_only":
            self.pipeline_order = {rank: list(listed) for rank, listed in actions.items()}
            self._validate_and_set_stage_mapping(self.pipeline_order)
            self.pipeline_order_with_comms = _add_send_recv(
                {rank: _merge_bw(listed) for rank, listed in self.pipeline_order.items()},
                lambda stage: self.stage_index_to_group_rank[stage],
                self._num_stages,
            )
        elif format == "compute_comms":
            self.pipeline_order_with_comms = {rank: [a for a in listed if a] for rank, listed in actions.items()}
            self.pipeline_order = {
                rank: [a for a in listed if a.is_compute_op] for rank, listed in self.pipeline_order_with_comms.items()
            }
            self._validate_and_set_stage_mapping(self.pipeline_order)
        else:
            raise NotImplementedError(f"{format=} is not implemented")

    _load_actions = _prepare_schedule_with_comms

    def _load_csv(self, filename: str, format: str = "compute_only") -> None:
        with open(filename, newline="") as file:
            rows = {rank: [_Action.from_str(text) for text in row] for rank, row in enumerate(csv.reader(file))}
        self._prepare_schedule_with_comms(rows, format)

    def _set_order(self, order: dict[int, list[_Action]]) -> None:
        self._prepare_schedule_with_comms(with_bubbles(order, self._num_stages))

    def _dump_csv(self, filename: str, format: str = "compute_comms") -> None:
        chosen: Any = self.pipeline_order_with_comms if format == "compute_comms" else self.pipeline_order
        with open(filename, "w", newline="") as file:
            csv.writer(file).writerows([["" if a is None else str(a) for a in chosen[r]] for r in sorted(chosen)])

    def _simulate(self) -> Order:
        return _simulate_comms_compute(
            self.pipeline_order_with_comms, lambda stage: self.stage_index_to_group_rank[stage], self._num_stages
        )


class ScheduleLoopedBFS(_PipelineScheduleRuntime):
    """All microbatches through a rank's first stage, then through its next."""

    def __init__(self, stages: list[_PipelineStageBase], n_microbatches: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(stages, n_microbatches, *args, **kwargs)
        self._set_order({rank: self._calculate_single_rank_operations(rank) for rank in range(self.pp_group_size)})

    def _calculate_single_rank_operations(self, rank: int) -> list[_Action]:
        return _orders.looped_breadth_first(rank, self.pp_group_size, len(self._stages), self._n_microbatches)


class ScheduleInterleaved1F1B(_PipelineScheduleRuntime):
    """1F1B with several stages on each rank: shorter waits at the start and the end."""

    _zero_bubble = False

    def __init__(self, stages: list[_PipelineStageBase], n_microbatches: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(stages, n_microbatches, *args, **kwargs)
        self.n_local_stages = len(stages)
        self.number_of_rounds = max(1, n_microbatches // self.pp_group_size)
        self.microbatches_per_round = n_microbatches // self.number_of_rounds
        if n_microbatches % self.number_of_rounds:
            name = "Zero bubble" if self._zero_bubble else "Interleaved 1F1B"
            raise ValueError(
                f"{name} requires the number of microbatches to be a multiple of the number of rounds"
                f" ({self.number_of_rounds}), but got {n_microbatches}."
            )
        self._set_order({rank: self._calculate_single_rank_operations(rank) for rank in range(self.pp_group_size)})

    def _calculate_single_rank_operations(self, rank: int) -> list[_Action]:
        return _orders.interleaved(
            rank,
            self.pp_group_size,
            self.n_local_stages,
            self._n_microbatches,
            self.microbatches_per_round,
            self._zero_bubble,
        )


class ScheduleInterleavedZeroBubble(ScheduleInterleaved1F1B):
    """The same, with gradients of weights where a rank would wait (ZB1P)."""

    _zero_bubble = True

    def __init__(self, stages: list[_PipelineStageBase], n_microbatches: int, *args: Any, **kwargs: Any) -> None:
        _refuse_compiled(stages, type(self).__name__)
        super().__init__(stages, n_microbatches, *args, **kwargs)


class ScheduleZBVZeroBubble(_PipelineScheduleRuntime):
    """Two stages on each rank in the shape of a V, gradients of weights where a rank would wait."""

    def __init__(self, stages: list[_PipelineStageBase], n_microbatches: int, *args: Any, **kwargs: Any) -> None:
        _refuse_compiled(stages, type(self).__name__)
        super().__init__(stages, n_microbatches, *args, **kwargs)
        self.n_local_stages = len(stages)
        if self.n_local_stages != 2:
            raise ValueError(f"ZBV requires exactly 2 stages per rank, but got {self.n_local_stages}.")
        self.stage_index_to_group_rank = generate_stage_to_rank_mapping(self.pp_group_size, self._num_stages, style="v")
        self._place_stages()
        self._set_order({rank: self._calculate_single_rank_operations(rank) for rank in range(self.pp_group_size)})

    def _calculate_single_rank_operations(self, rank: int) -> list[_Action]:
        return _orders.zero_bubble_v(rank, self.pp_group_size, self._n_microbatches)


class ScheduleDualPipeV(_PipelineScheduleRuntime):
    """DeepSeek's DualPipe in the shape of a V; not there yet."""

    def __init__(self, stages: list[_PipelineStageBase], *args: Any, **kwargs: Any) -> None:
        _refuse_compiled(stages, type(self).__name__)
        raise NotImplementedError("ScheduleDualPipeV is not in Flambeau yet: use ScheduleZBVZeroBubble")


def _refuse_compiled(stages: list[Any], name: str) -> None:
    for stage in stages:
        if hasattr(stage.submod, "_orig_mod"):
            raise RuntimeError(
                f"The {name} schedule is not supported with stage modules that have used torch.compile: the backward pass of a"
                " compiled module cannot be split"
            )


def get_schedule_class(schedule_name: str) -> type[_PipelineSchedule]:
    """The schedule of this name, however it is capitalised: "1F1B", "GPipe", "Interleaved1F1B", ..."""
    known: dict[str, type[_PipelineSchedule]] = {
        "1F1B": Schedule1F1B,
        "Interleaved1F1B": ScheduleInterleaved1F1B,
        "GPipe": ScheduleGPipe,
        "LoopedBFS": ScheduleLoopedBFS,
        "InterleavedZeroBubble": ScheduleInterleavedZeroBubble,
        "PipelineScheduleSingle": PipelineScheduleSingle,
        "PipelineScheduleMulti": PipelineScheduleMulti,
        "ZBVZeroBubble": ScheduleZBVZeroBubble,
        "DualPipeV": ScheduleDualPipeV,
    }
    for name, kind in known.items():
        if name.lower() == schedule_name.lower():
            return kind
    raise ValueError(f"Unknown schedule name '{schedule_name}'. The valid options are {list(known)}")
