"""A schedule that executes lists of actions: computing, sending, receiving, gathering parameters, reducing gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ...profiler.session import record_function
from ..fsdp import FSDPModule
from ._actions import (
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
    _ComputationType,
    _format_pipeline_order,
    parts_of,
)
from ._lowering import _add_reduce_grad, _add_send_recv, _add_unshard_reshard, _defer_recv_ops
from ._schedule_base import (
    PipelineScheduleMulti,
    _batch_p2p,
    _PipelineSchedule,
    _read_csv,
    _wait_batch_p2p,
    _write_csv,
    logger,
)

_REPLACEABLE = (F, B, I, W, OVERLAP_F_B, UNSHARD, RESHARD, REDUCE_GRAD)


@dataclass
class _PipelineContext:
    """The batch, as passed to a custom function for an action."""

    schedule_ref: _PipelineSchedule
    arg_mbs: list[tuple] | None = None
    kwarg_mbs: list[dict] | None = None
    target_mbs: list | None = None
    losses: list | None = None


class _CustomFunctionProtocol(Protocol):
    def __call__(self, action: _Action, ctx: _PipelineContext) -> None: ...


@dataclass
class _Batch:
    """The state of one batch while its schedule runs."""

    stages: dict[int, Any]
    arguments: list
    named: list
    targets: list | None
    keep: bool
    loss_kwargs: dict[str, Any] | None
    sent: list


class _PipelineScheduleRuntime(PipelineScheduleMulti):
    """Runs lists of actions: of a subclass, of a file (`_load_csv`), or given to `_prepare_schedule_with_comms`. If they only hold
    computations, everything else is added. With `defer_pp_recv`, receives are placed right before their use."""

    pipeline_order_with_comms: dict[int, list[_Action]]

    def __init__(self, *args: Any, defer_pp_recv: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._defer_pp_recv = defer_pp_recv
        self._comp_type_to_function_map: dict[_ComputationType, Callable] = {}
        self.backward_counter: Counter[int] = Counter()  # microbatches whose weights have their gradients, by stage
        self.fwd_recv_ops: dict[
            tuple[int, int], list
        ] = {}  # by stage and microbatch: what to wait for before it is used
        self.bwd_recv_ops: dict[tuple[int, int], list] = {}
        self.unshard_ops: dict[int, list] = {}
        self.unsharded_stages: set[int] = set()

    def register_custom_function(
        self, computation_type: _ComputationType, custom_function: _CustomFunctionProtocol
    ) -> None:
        """Call custom_function(action, context) for all actions of a kind, instead of the default."""
        if computation_type not in _REPLACEABLE:
            raise ValueError(
                f"Invalid computation type {computation_type}. Only FORWARD, FULL_BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT,"
                " OVERLAP_F_B, UNSHARD, RESHARD and REDUCE_GRAD are supported."
            )
        if computation_type in self._comp_type_to_function_map:
            logger.warning(
                "Computation type %s is already registered. Overwriting the existing custom function.", computation_type
            )
        self._comp_type_to_function_map[computation_type] = custom_function

    # -- the list -----------------------------------------------------------------------------------------------------------
    def _prepare_schedule_with_comms(self, actions: Order, format: str = "compute_only") -> None:
        """Set lists of actions: of computations ("compute_only"), or of everything ("compute_comms")."""
        self._validate_and_set_stage_mapping(actions)
        if format == "compute_comms":
            for listed in actions.values():
                if None in listed:
                    raise AssertionError(f"Expected action to be not None, got {type(None)}")
            self.pipeline_order_with_comms = {rank: [a for a in listed if a] for rank, listed in actions.items()}
            return
        if format != "compute_only":
            raise NotImplementedError(f"{format=} is not implemented")
        for rank, listed in actions.items():
            for position, action in enumerate(listed):
                if action is not None and not action.is_compute_op:
                    raise ValueError(
                        f"Expected compute-only schedule but found communication action '{action}' at rank {rank}, position"
                        f" {position}. Communication actions (e.g. SEND_F, RECV_F, etc.) should not be present when"
                        " format='compute_only'."
                    )
        with_gathers = {
            rank: _add_reduce_grad(_add_unshard_reshard(listed), self._n_microbatches)
            for rank, listed in actions.items()
        }
        where = self.stage_index_to_group_rank.__getitem__
        order = _add_send_recv(with_gathers, where, self._num_stages)
        self.pipeline_order_with_comms = _defer_recv_ops(order, where) if self._defer_pp_recv else order

    def _load_csv(self, filename: str, format: str = "compute_only") -> None:
        """Read the order from a file with a line for each rank."""
        if format == "compute_only":
            super()._load_csv(filename)
            self._prepare_schedule_with_comms(self.pipeline_order)
        else:
            self._prepare_schedule_with_comms(_read_csv(filename), format)

    def _dump_csv(self, filename: str, format: str = "compute_comms") -> None:
        """Write all actions, or (`format="compute_only"`) those that compute."""
        _write_csv(filename, self.pipeline_order_with_comms if format == "compute_comms" else self.pipeline_order)

    # -- one batch ----------------------------------------------------------------------------------------------------------
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
        stages = {stage.stage_index: stage for stage in self._stages}
        batch = _Batch(stages, arguments, named, target_mbs, return_outputs, loss_kwargs, [])
        context = _PipelineContext(self, arguments, named, target_mbs, losses)
        self.backward_counter.clear()
        for position, action in enumerate(self.pipeline_order_with_comms[self.rank]):
            try:
                with record_function(f"PP:{action}"):
                    self._run(action, batch, context)
            except Exception:
                order = _format_pipeline_order(self.pipeline_order_with_comms, position)  # type: ignore[arg-type]
                logger.error("[Rank %s] action %s failed, in the schedule\n%s", self.rank, action, order)
                raise
        _wait_batch_p2p(batch.sent)
        if self.unshard_ops:
            raise AssertionError("Unused unshard operations")
        self._update_losses(self._stages, losses)

    def _run(self, action: _Action, batch: _Batch, context: _PipelineContext) -> None:
        custom = self._comp_type_to_function_map.get(action.computation_type)
        if custom is not None:
            custom(action, context)
            return
        for part in parts_of(action):
            if part.computation_type in (F, B, I, W):
                self._compute(part, batch)
            else:
                self._communicate(part, batch)

    def _compute(self, action: _Action, batch: _Batch) -> None:
        kind, number, mb = action.computation_type, action.stage_index, action.microbatch_index
        stage, stages = batch.stages[number], batch.stages
        if mb is None:
            raise AssertionError(f"{action=} missing mb_index")
        self._assert_unsharded(stage)
        if kind is F:
            if not stage.is_first and number - 1 not in stages:
                if (number, mb) not in self.fwd_recv_ops:
                    raise AssertionError(f"Computing {action=} before receiving input")
                _wait_batch_p2p(self.fwd_recv_ops.pop((number, mb)))
            args, kwargs = batch.arguments[mb], batch.named[mb]
            self._forward(stage, stages, mb, args, kwargs, batch.targets, batch.keep, batch.loss_kwargs)
            return
        if not self._has_backward:
            return
        if kind is not W and not stage.is_last and number + 1 not in stages:
            if (number, mb) not in self.bwd_recv_ops:
                raise AssertionError(f"Attempted to run compute {action=} before receiving input")
            _wait_batch_p2p(self.bwd_recv_ops.pop((number, mb)))
        self.backward_counter[number] += kind is not I
        last = kind is not I and self.backward_counter[number] == self._n_microbatches
        self._backward(stage, stages, kind, mb, last)

    def _communicate(self, action: _Action, batch: _Batch) -> None:
        kind, number, mb = action.computation_type, action.stage_index, action.microbatch_index
        stage = batch.stages[number]
        if kind in (UNSHARD, RESHARD):
            if isinstance(stage.submod, FSDPModule):
                (self._unshard if kind is UNSHARD else self._reshard)(stage)
        elif kind is REDUCE_GRAD:
            if self._has_backward:
                stage.perform_reduce_grad(self._n_microbatches if self.scale_grads else 1)
        elif mb is None:
            raise AssertionError(f"{action=} missing mb_index")
        elif kind is SEND_F:
            batch.sent += _batch_p2p(stage.get_fwd_send_ops(mb))
        elif kind is SEND_B:
            batch.sent += _batch_p2p(stage.get_bwd_send_ops(mb))
        elif kind in (RECV_F, RECV_B):
            forwards = kind is RECV_F
            under_way = self.fwd_recv_ops if forwards else self.bwd_recv_ops
            if (number, mb) in under_way:
                raise AssertionError(
                    f"Recv twice for stage_idx={number} mb_index={mb} without executing {'forward' if forwards else 'backward'}"
                )
            ops = stage.get_fwd_recv_ops(mb) if forwards else stage.get_bwd_recv_ops(mb)
            if forwards or self._has_backward:
                under_way[number, mb] = _batch_p2p(ops)
        else:
            raise ValueError(f"{action=} is unknown or unsupported")

    # -- shards -------------------------------------------------------------------------------------------------------------
    def _unshard(self, stage: Any) -> None:
        number = stage.stage_index
        if number in self.unsharded_stages or number in self.unshard_ops:
            raise AssertionError(f"Unsharding the same stage_idx={number} twice")
        shards = [module for module in stage.submod.modules() if isinstance(module, FSDPModule)]
        self.unshard_ops[number] = [module.unshard(async_op=True) for module in shards]

    def _reshard(self, stage: Any) -> None:
        number = stage.stage_index
        if number not in self.unsharded_stages:
            raise AssertionError(f"Resharding stage_idx={number} without unsharding")
        for module in stage.submod.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        self.unsharded_stages.remove(number)

    def _assert_unsharded(self, stage: Any) -> None:
        """Wait until a stage's parameters are gathered; raise if their gathering has not been requested."""
        if not isinstance(stage.submod, FSDPModule):
            return
        number = stage.stage_index
        if number in self.unshard_ops:
            for handle in self.unshard_ops.pop(number):
                handle.wait()
            self.unsharded_stages.add(number)
        if number not in self.unsharded_stages:
            raise AssertionError(f"Attempted to compute on sharded stage_idx={number}")
