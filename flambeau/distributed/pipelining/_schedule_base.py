"""Common part of all schedules: microbatches of a batch, losses and results, and the loop that runs a rank's actions."""

from __future__ import annotations

import csv
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ... import distributed as dist
from ...core.graph import grad_mode
from ...core.tensor import Tensor
from . import _lowering, _orders
from ._actions import B, F, I, Order, W, _Action, _validate_schedule, parts_of
from ._utils import generate_stage_to_rank_mapping
from .microbatch import TensorChunkSpec, _split_tensor, merge_chunks, split_args_kwargs_into_chunks
from .stage import _PipelineStageBase

logger = logging.getLogger("flambeau.distributed.pipelining.schedules")


def _batch_p2p(p2p_ops: list, desc: str | None = None) -> list:
    """Start messages: one by one if all go in the same direction, else together."""
    kinds = {op.op for op in p2p_ops}
    if not p2p_ops:
        return []
    if kinds == {dist.isend}:
        return [op.op(op.tensor, group=op.group, tag=op.tag, group_dst=op.group_peer) for op in p2p_ops]
    if kinds == {dist.irecv}:
        return [op.op(op.tensor, group=op.group, tag=op.tag, group_src=op.group_peer) for op in p2p_ops]
    return dist.batch_isend_irecv(p2p_ops)


def _wait_batch_p2p(work: list) -> None:
    for one in work:
        one.wait()


class _PipelineSchedule(ABC):
    """Base of all schedules: the batch in microbatches, the losses, and the loop that runs actions."""

    pipeline_order: Order | None
    _backward_requires_autograd = True

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
        logger.info("Using %s", type(self).__name__)

    @property
    @abstractmethod
    def _own_stages(self) -> list[Any]:
        """Return the stages of this rank."""

    @abstractmethod
    def _own_actions(self) -> list[_Action]:
        """Return the computations of this rank, in order."""

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
        """Run one batch forward and backward. The rank with the first stage passes the arguments, that with the last one `target`, and gets
        a loss for each microbatch in `losses` and the model's result."""
        if self._has_backward and self._backward_requires_autograd and not grad_mode.enabled:
            raise RuntimeError(
                "step() requires gradients to be enabled for backward computation; it should not be used under torch.no_grad()"
                " context. Please call eval() instead."
            )
        for stage in self._own_stages:
            stage.has_backward = self._has_backward
            stage.clear_runtime_states()
        arguments, named = self._split_inputs(args, kwargs)
        targets = None if target is None else list(_split_tensor(target, TensorChunkSpec(0), self._n_microbatches))
        self._step_microbatches(arguments, named, targets, losses, return_outputs, loss_kwargs)
        last = next((stage for stage in self._own_stages if stage.is_last), None)
        return self._merge_outputs(last.output_chunks) if last is not None and return_outputs else None

    def eval(self, *args: Any, target: Any = None, losses: list | None = None, **kwargs: Any) -> Any:
        """Run one batch without a backward pass."""
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
        """Run the actions in order; results are sent to the neighbouring stage at once, inputs are waited for."""
        arguments, named = self._check_inputs(arg_mbs, kwarg_mbs, target_mbs, losses)
        stages = {stage.stage_index: stage for stage in self._own_stages}
        left = dict.fromkeys(stages, self._n_microbatches)  # microbatches whose weights still wait for gradients
        sent: list = []
        for action in self._own_actions():
            for part in parts_of(action):
                kind, mb, stage = part.computation_type, part.microbatch_index, stages[part.stage_index]
                assert mb is not None
                if kind is F:
                    self._forward(stage, stages, mb, arguments[mb], named[mb], target_mbs, return_outputs, loss_kwargs)
                    if stage.stage_index + 1 not in stages:
                        sent += _batch_p2p(stage.get_fwd_send_ops(mb))
                    if not self._has_backward:
                        del stage.fwd_cache[mb]
                elif self._has_backward:
                    left[stage.stage_index] -= kind is not I
                    last = left[stage.stage_index] == 0
                    self._backward(stage, stages, kind, mb, last and kind is not I)
                    if kind is not W and stage.stage_index - 1 not in stages:
                        sent += _batch_p2p(stage.get_bwd_send_ops(mb))
                    if last:
                        stage.perform_reduce_grad(self._n_microbatches if self.scale_grads else 1)
        _wait_batch_p2p(sent)
        self._update_losses(self._own_stages, losses)

    def _forward(
        self, stage: Any, stages: dict[int, Any], mb: int, args: tuple, kwargs: dict, targets: list | None, keep: bool,
        loss_kwargs: dict[str, Any] | None,
    ) -> None:  # fmt: skip
        """Run a microbatch forward and compute its loss; pass the results to the next stage if it is on this rank."""
        output = stage.forward_one_chunk(mb, args, kwargs, save_forward_output=keep)
        self._maybe_compute_loss(stage, output, targets, mb, loss_kwargs)
        following = stages.get(stage.stage_index + 1)
        if following is not None:
            following.set_local_fwd_input(output, mb)

    def _backward(self, stage: Any, stages: dict[int, Any], kind: Any, mb: int, last: bool) -> None:
        """Run a microbatch backward, or its weights' half; pass the gradients to the previous stage if it is on this rank."""
        if kind is W:
            stage.backward_weight_one_chunk(mb, last_backward=last)
            return
        loss = self._maybe_get_loss(stage, mb)
        stage.backward_one_chunk(mb, loss=loss, full_backward=kind is B, last_backward=last)
        before = stages.get(stage.stage_index - 1)
        if before is not None:
            before.set_local_bwd_input(stage.get_local_bwd_output(mb), mb)

    # -- losses, inputs and results -------------------------------------------------------------------------------------------
    def _maybe_compute_loss(
        self, stage: Any, output: Any, target_mbs: list | None, mb_index: int, loss_kwargs: dict | None = None
    ) -> None:
        if stage.is_last and self._loss_fn is not None and target_mbs is not None:
            self._internal_losses[mb_index] = self._compute_loss(output, target_mbs[mb_index], loss_kwargs)
        elif stage.is_last and self._has_backward:
            raise ValueError("the rank with the last stage needs a target for the loss: step(target=...)")

    def _maybe_get_loss(self, stage: Any, mb_index: int) -> Tensor | None:
        if not stage.is_last or self._loss_fn is None:
            return None
        if mb_index not in self._internal_losses:
            raise RuntimeError(
                f"Loss for microbatch {mb_index} is not available. Available losses for microbatches: {self._internal_losses}"
            )
        return self._internal_losses[mb_index]

    def _compute_loss(self, output: Any, target: Any, loss_kwargs: dict[str, Any] | None = None) -> Tensor:
        assert self._loss_fn is not None
        return self._loss_fn(output, target, **(loss_kwargs or {}))

    def _update_losses(self, stages: Any, losses: list | None) -> None:
        """Append the losses of all microbatches to the caller's list."""
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


class PipelineScheduleSingle(_PipelineSchedule):
    """Base of schedules with one stage on each rank. With `scale_grads`, gradients are divided by the number of microbatches: for losses
    that are means."""

    _order_of: Callable[[int, int, int], _orders.Listed] | None = None  # (stage, stages, microbatches) -> actions

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
        self._check(stage, n_microbatches)
        super().__init__(n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        self._stage, self._num_stages = stage, stage.num_stages
        self.pipeline_order = self._get_pipeline_order()

    def _check(self, stage: _PipelineStageBase, n_microbatches: int) -> None:
        """Raise an error if the order does not support this number of microbatches."""

    def _get_pipeline_order(self) -> Order | None:
        """Return the actions of all ranks."""
        order = self._order_of
        if order is None:
            return None
        count, microbatches = self._num_stages, self._n_microbatches
        return {
            rank: list(_lowering._add_reduce_grad(order(rank, count, microbatches), microbatches))
            for rank in range(count)
        }

    @property
    def _own_stages(self) -> list[Any]:
        return [self._stage]

    def _own_actions(self) -> list[_Action]:
        if self._order_of is None:
            raise NotImplementedError(f"{type(self).__name__} has no order of its own, so it needs _step_microbatches")
        listed = self._order_of(self._stage.stage_index, self._num_stages, self._n_microbatches)
        return [action for action in listed if action is not None]


class PipelineScheduleMulti(_PipelineSchedule):
    """Base of schedules with several stages on each rank; `pipeline_order` has the actions of all ranks."""

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
    ) -> None:
        super().__init__(n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        if use_full_backward is not None:
            logger.warning(
                "Deprecation warning: 'use_full_backward' is no longer supported. Simply stop passing it, and everything should"
                " still work fine."
            )
        self._stages, self._backward_requires_autograd = stages, backward_requires_autograd
        self._num_stages = stages[0].num_stages
        self.pp_group_size, self.rank = stages[0].group_size, stages[0].group_rank
        self._place_stages(generate_stage_to_rank_mapping(self.pp_group_size, self._num_stages))
        self.pipeline_order: Order = {}

    def _place_stages(self, ranks: dict[int, int]) -> None:
        """Tell all stages which rank each is on."""
        self.stage_index_to_group_rank = ranks
        for stage in self._stages:
            stage.stage_index_to_group_rank = ranks

    @property
    def _own_stages(self) -> list[Any]:
        return self._stages

    def _own_actions(self) -> list[_Action]:
        return [action for action in self.pipeline_order[self.rank] if action is not None]

    def _validate_and_set_stage_mapping(self, actions: Any) -> None:
        """Validate and set the order, and the rank of each stage in it."""
        self._place_stages(_validate_schedule(actions, self.pp_group_size, self._num_stages, self._n_microbatches))

    def _dump_csv(self, filename: str) -> None:
        """Write the order to a file with a line for each rank."""
        _write_csv(filename, self.pipeline_order)

    def _load_csv(self, filename: str, format: str = "compute_only") -> None:
        """Read the order from a file that `_dump_csv` has written."""
        if format != "compute_only":
            raise AssertionError(f'format must be "compute_only", got {format}')
        self.pipeline_order = _read_csv(filename)
        self._validate_and_set_stage_mapping(self.pipeline_order)


def _write_csv(filename: str, order: Any) -> None:
    with open(filename, "w", newline="") as file:
        csv.writer(file).writerows(["" if a is None else str(a) for a in actions] for actions in order.values())


def _read_csv(filename: str) -> Order:
    with open(filename, newline="") as file:
        return {rank: [_Action.from_str(text) for text in row] for rank, row in enumerate(csv.reader(file))}
