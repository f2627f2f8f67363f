"""Stage: a part of the model on this rank, with the state of each microbatch between its forward and backward pass."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

from ...core.device import device as Device
from ...core.dtype import BY_NAME
from ...core.sharded import SpreadTensor
from ...core.tensor import Tensor
from ...nn import Module
from ...nn.parallel import DistributedDataParallel
from ...ops.creation.construct import tensor as new_tensor
from ...ops.creation.filled import empty
from ...utils._pytree import tree_leaves
from .. import collectives, groups
from ..collectives import P2POp
from ..fsdp import FSDPModule
from ._backward import stage_backward, stage_backward_input, stage_backward_weight
from ._utils import PipeInfo, PipeliningMetadataError, described, generate_stage_to_rank_mapping

__all__ = ["PipelineStage", "build_stage"]

_DTYPES = sorted(BY_NAME)
_HEADER = 128  # numbers that say how many tensors follow and what they are
_MOST_TENSORS = 62


def _as_tuple(output: Any) -> tuple[Any, ...]:
    """Return a stage's output as a tuple."""
    if isinstance(output, list):
        return tuple(output)
    return output if isinstance(output, tuple) else (output,)


class _PipelineStageBase:
    """Base of all stages: their position, and the forward and backward pass of a microbatch."""

    _runtime_validate = False  # whether every microbatch is compared with the first
    _has_backward = False

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: Any,
        group: Any = None,
        dw_builder: Callable[[], Callable[..., None]] | None = None,
    ) -> None:
        if stage_index >= num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.device = Device(device) if not isinstance(device, Device) else device
        self.group, self.dw_builder = group, dw_builder
        self.group_rank, self.group_size = groups.get_rank(group), groups.get_world_size(group)
        if self.group_size > num_stages:
            raise RuntimeError(
                f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}"
            )
        self.stage_index_to_group_rank = generate_stage_to_rank_mapping(self.group_size, num_stages)
        self.log_prefix = f"[Stage {stage_index}]"
        self._expected: dict[str, list[tuple]] = {}
        self.clear_runtime_states()

    def clear_runtime_states(self) -> None:
        """Clear the state of microbatches."""
        self.fwd_cache: dict[int, tuple[tuple, list]] = {}
        self.bwd_cache: dict[int, tuple[Tensor | None, ...]] = {}
        self.backward_state: dict[int, tuple[Any, Any, Any, Any]] = {}
        self.dw_runner: dict[int, Callable[..., None]] = {}
        self.output_chunks: list[Any] = []
        self._arrived: dict[tuple[str, int], tuple] = {}  # what a neighbour on the same rank has left
        self._headers: dict[tuple[str, int], Tensor] = {}  # of messages that are on their way

    @property
    def has_backward(self) -> bool:
        """Return whether there is a backward pass."""
        return self._has_backward

    @has_backward.setter
    def has_backward(self, value: bool) -> None:
        self._has_backward = value

    @property
    def is_first(self) -> bool:
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        return self.stage_index == self.num_stages - 1

    # -- messages -----------------------------------------------------------------------------------------------------------
    def _op(self, operation: Callable, tensor: Tensor, direction: str, mb_index: int, part: int, to: int) -> P2POp:
        """Return a message from stage to stage. Messages have unique tags, so that their order does not matter."""
        edge = (mb_index * self.num_stages + min(to, self.stage_index)) * 2 + (direction == "B")
        return P2POp(
            operation,
            tensor,
            group=self.group,
            tag=edge * (_MOST_TENSORS + 2) + part,
            group_peer=self.stage_index_to_group_rank[to],
        )

    def _send_ops(self, direction: str, mb_index: int, tensors: tuple) -> list[P2POp]:
        """Return messages with results for the next stage ("F"), or gradients for the previous one ("B"): metadata first, then tensors."""
        if len(tensors) > _MOST_TENSORS:
            raise NotImplementedError(f"a stage can send {_MOST_TENSORS} tensors to the next, not {len(tensors)}")
        numbers = [len(tensors)]
        for tensor in tensors:
            if tensor is None:
                numbers.append(-1)
                continue
            if isinstance(tensor, SpreadTensor):
                raise NotImplementedError("stages send plain tensors: give to_local() of a DTensor to the next stage")
            numbers += [_DTYPES.index(tensor.dtype.name), int(tensor.requires_grad), tensor.dim(), *tensor.shape]
        if len(numbers) > _HEADER:
            raise NotImplementedError("the tensors that a stage sends to the next have too many dimensions in all")
        header = new_tensor(numbers + [0] * (_HEADER - len(numbers)))
        packets = [header, *(t.detach().contiguous() for t in tensors if t is not None)]
        to = self.stage_index + (1 if direction == "F" else -1)
        return [
            self._op(collectives.isend, packet, direction, mb_index, part, to) for part, packet in enumerate(packets)
        ]

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[P2POp]:
        """Return the operations that send a microbatch's results to the next stage."""
        return [] if self.is_last else self._send_ops("F", fwd_chunk_id, self.fwd_cache[fwd_chunk_id][0])

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[P2POp]:
        """Return the operations that send the gradients of a microbatch's inputs to the previous stage."""
        if not self.has_backward or self.is_first:
            return []
        return self._send_ops("B", bwd_chunk_id, self.bwd_cache.pop(bwd_chunk_id))

    def _receive_ops(self, direction: str, mb_index: int) -> list[P2POp]:
        header = self._headers[direction, mb_index] = empty((_HEADER,), dtype=BY_NAME["int64"])
        source = self.stage_index - (1 if direction == "F" else -1)
        return [self._op(collectives.irecv, header, direction, mb_index, 0, source)]

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[P2POp]:
        """Return the operations that receive the inputs of a microbatch."""
        return [] if self.is_first else self._receive_ops("F", fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[P2POp]:
        """Return the operations that receive the gradients of a microbatch's results."""
        return [] if self.is_last or not self.has_backward else self._receive_ops("B", bwd_chunk_id)

    def _receive(self, direction: str, mb_index: int) -> tuple:
        if (direction, mb_index) in self._arrived:
            return self._arrived.pop((direction, mb_index))
        if (direction, mb_index) not in self._headers:
            for op in self._receive_ops(direction, mb_index):
                op.op(op.tensor, group=op.group, tag=op.tag, group_src=op.group_peer).wait()
        source = self.stage_index - (1 if direction == "F" else -1)
        numbers = iter(self._headers.pop((direction, mb_index)).tolist())
        tensors: list[Tensor | None] = []
        for _ in range(next(numbers)):
            code = next(numbers)
            if code < 0:
                tensors.append(None)
                continue
            differentiable, dims = bool(next(numbers)), next(numbers)
            where = empty([next(numbers) for _ in range(dims)], dtype=BY_NAME[_DTYPES[code]], device=self.device)
            part = 1 + sum(t is not None for t in tensors)
            op = self._op(collectives.irecv, where, direction, mb_index, part, source)
            op.op(op.tensor, group=op.group, tag=op.tag, group_src=op.group_peer).wait()
            tensors.append(where.requires_grad_(differentiable and self.has_backward))
        return tuple(tensors)

    def set_local_fwd_input(self, prev_stage_outputs: Any, mb_index: int) -> None:
        """Set the inputs of a microbatch to the results of the previous stage on this rank."""
        self._arrived["F", mb_index] = tuple(
            t.detach().requires_grad_(t.requires_grad and self.has_backward) for t in _as_tuple(prev_stage_outputs)
        )

    def set_local_bwd_input(self, next_stage_bwd_outputs: tuple, mb_index: int) -> None:
        """Set the gradients from the next stage if that is on this rank, too."""
        if not isinstance(next_stage_bwd_outputs, tuple):
            raise AssertionError(f"Expected tuple, got {type(next_stage_bwd_outputs)}")
        self._arrived["B", mb_index] = next_stage_bwd_outputs

    def get_local_bwd_output(self, mb_index: int) -> tuple:
        """Return the gradients of a microbatch's inputs."""
        return self.bwd_cache.pop(mb_index)

    # -- passes -------------------------------------------------------------------------------------------------------------
    def _validate(self, what: str, tensors: Any) -> None:
        """Check, if enabled, that a microbatch has the shapes and dtypes of the first one."""
        found = [(tuple(t.shape), t.dtype) for t in tree_leaves(tensors) if isinstance(t, Tensor)]
        expected = self._expected.setdefault(what, found)
        if len(found) != len(expected):
            raise PipeliningMetadataError(
                f"Stage {self.stage_index} {what}: expected {len(expected)} tensors, got {len(found)}"
            )
        for position, (one, other) in enumerate(zip(expected, found)):
            for name, want, got in zip(("shape", "dtype"), one, other):
                if want != got:
                    raise PipeliningMetadataError(
                        f"Stage {self.stage_index} {what}: {name} mismatch of tensor {position}: expected {want}, got {got}"
                    )

    def forward_maybe_with_nosync(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's forward pass; replicas reduce gradients after the last microbatch only."""
        module: Any = self.submod
        if isinstance(module, DistributedDataParallel):
            with module.no_sync():
                return module(*args, **kwargs)
        return module(*args, **kwargs)

    def forward_one_chunk(
        self,
        fwd_chunk_id: int,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
        save_forward_output: bool = True,
    ) -> Any:
        """Run a microbatch: on `args` in the first stage, else on the results received from the previous stage."""
        inputs = args if self.is_first else self._receive("F", fwd_chunk_id)
        kwargs = kwargs or {}
        if self._runtime_validate:
            self._validate("forward inputs", inputs)
        try:
            output = self.forward_maybe_with_nosync(*inputs, **kwargs)
        except Exception as problem:
            raise RuntimeError(f"{self.log_prefix} failed to run forward with {described(inputs, kwargs)}") from problem
        outputs = _as_tuple(output)
        if self.is_last and save_forward_output:
            self.output_chunks.append(output)
        self.fwd_cache[fwd_chunk_id] = (outputs, [*tree_leaves(inputs), *tree_leaves(kwargs)])
        self._inputs_of_args = len(tree_leaves(inputs))
        if self._runtime_validate and not self.is_last:
            self._validate("forward outputs", outputs)
        return output

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Tensor | None = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """Run the backward pass of a microbatch: from the loss in the last stage, else from the received gradients. Without
        `full_backward`, weights get their gradients in `backward_weight_one_chunk`."""
        if not self.has_backward:
            return
        outputs, inputs = self.fwd_cache.pop(bwd_chunk_id)
        roots: Any = (loss,) if self.is_last else outputs
        gradients = None if self.is_last else self._receive("B", bwd_chunk_id)
        found: tuple = ()
        if full_backward or self.dw_builder is not None:
            with self._gradient_sync_context(last_backward, roots):
                found = stage_backward(roots, gradients, inputs)
            if self.dw_builder is not None:
                late = self.dw_builder()
                if full_backward:
                    late()
                else:
                    self.dw_runner[bwd_chunk_id] = late
        else:
            late_weights = None
            if not self.is_first:  # the gradients of the first stage's inputs are not sent
                with self._gradient_sync_context(last_backward, roots):
                    found, late_weights = stage_backward_input(roots, gradients, inputs, self.submod.parameters())
            self.backward_state[bwd_chunk_id] = (inputs, late_weights, roots, gradients)
            self.dw_runner[bwd_chunk_id] = lambda: None
        self.bwd_cache[bwd_chunk_id] = found[: self._inputs_of_args]
        if self.is_last and not self.is_first:
            for tensor in outputs:  # results are kept, their graphs are not needed any more
                if isinstance(tensor, Tensor) and tensor.grad_fn is not None and tensor._base is None:
                    tensor.detach_()

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """Add the gradients of the weights of a microbatch."""
        if not self.has_backward:
            return
        if bwd_chunk_id not in self.dw_runner:
            raise AssertionError(
                f"{self.log_prefix} Attempted to run backward_weight_one_chunk for chunk {bwd_chunk_id} without first calling"
                " `backward_one_chunk(full_backward=False)`"
            )
        runner = self.dw_runner.pop(bwd_chunk_id)
        if self.dw_builder is not None:
            runner()
            return
        inputs, late_weights, roots, gradients = self.backward_state.pop(bwd_chunk_id)
        with self._gradient_sync_context(last_backward, roots):
            if late_weights is None:
                stage_backward(roots, gradients, inputs)
            else:
                stage_backward_weight(self.submod.parameters(), late_weights)

    @contextlib.contextmanager
    def _gradient_sync_context(self, last: bool, roots: Any) -> Generator:
        """Context manager: replicas reduce gradients after the last microbatch only, shards when the schedule says."""
        module: Any = self.submod
        if isinstance(module, DistributedDataParallel):
            if last:
                module.reducer.prepare_for_backward([t for t in tree_leaves(roots) if isinstance(t, Tensor)])
            with contextlib.nullcontext() if last else module.no_sync():
                yield
            return
        if isinstance(module, FSDPModule):
            module.set_is_last_backward(False)
            module.set_reshard_after_backward(False)
            module.set_requires_gradient_sync(False)
        yield

    def scale_grads(self, grad_scale_factor: int) -> None:
        """Divide the gradients by the number of microbatches: the loss of the batch is the mean of theirs."""
        if grad_scale_factor != 1:
            for parameter in self.submod.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(grad_scale_factor)

    def perform_reduce_grad(self, grad_scale_factor: int) -> None:
        """Reduce the gradients of shards after all microbatches, then scale."""
        module: Any = self.submod
        if isinstance(module, FSDPModule):
            module.set_is_last_backward(True)
            module.set_reshard_after_backward(True)
            module.set_requires_gradient_sync(True)
            state = module._get_fsdp_state()
            for one in state._state_ctx.all_states:
                for group in one._fsdp_param_groups:
                    group.post_backward()
            state._root_post_backward_final_callback()
        self.scale_grads(grad_scale_factor)


class PipelineStage(_PipelineStageBase):
    """A part of a model as stage `stage_index` of `num_stages`, on this rank. Stages send metadata with their tensors, so `input_args` and
    `output_args` need not be given."""

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: Any,
        input_args: Any = None,
        output_args: Any = None,
        group: Any = None,
        dw_builder: Callable[[], Callable[..., None]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(submodule, stage_index, num_stages, device, group, dw_builder)
        self.submod.to(self.device)
        self.inputs = None if input_args is None else _as_tuple(input_args)
        self._outputs_meta = None if output_args is None else _as_tuple(output_args)


class _PipelineStage(_PipelineStageBase):
    """A stage of a model that `pipeline()` has split."""

    def __init__(
        self, stage_module: Module, stage_index: int, pipe_info: PipeInfo, device: Any, group: Any = None
    ) -> None:
        super().__init__(stage_module, stage_index, pipe_info.num_stages, device, group)
        self.pipe_info = pipe_info
        self.submod.to(self.device)


def build_stage(
    stage_module: Module, stage_index: int, pipe_info: PipeInfo, device: Any, group: Any = None
) -> _PipelineStage:
    """Make a stage of a model that `pipeline()` has split, from its module and `pipe.info()`."""
    return _PipelineStage(stage_module, stage_index, pipe_info, device, group)
