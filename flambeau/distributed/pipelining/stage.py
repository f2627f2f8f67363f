"""A stage: a part of the model on this rank, with what it keeps of each microbatch between its forward and backward pass."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

from ...core.device import device as Device
from ...core.dtype import BY_NAME
from ...core.tensor import Tensor
from ...nn import Module
from ...nn.parallel import DistributedDataParallel
from ...ops.creation.construct import tensor as new_tensor
from ...ops.creation.filled import empty
from .. import collectives, groups
from ._backward import stage_backward, stage_backward_input, stage_backward_weight
from ._utils import PipeInfo, flatten_args, generate_stage_to_rank_mapping

__all__ = ["PipelineStage", "build_stage"]

_DTYPES = sorted(BY_NAME)
_HEADER = 128  # numbers that say how many tensors follow and what they are
_MOST_TENSORS = 62


def _as_tuple(output: Any) -> tuple[Any, ...]:
    """What a stage returns, as a tuple."""
    if isinstance(output, list):
        return tuple(output)
    return output if isinstance(output, tuple) else (output,)


class _PipelineStageBase:
    """What all stages are: where they stand, and one forward and backward pass of a microbatch."""

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
        self.has_backward = False
        self.clear_runtime_states()

    def clear_runtime_states(self) -> None:
        """Forget what was kept of microbatches."""
        self.fwd_cache: dict[int, tuple[tuple, list]] = {}
        self.bwd_cache: dict[int, tuple[Tensor | None, ...]] = {}
        self.backward_state: dict[int, tuple[list, list]] = {}
        self.dw_runner: dict[int, Callable[..., None]] = {}
        self.output_chunks: list[Any] = []
        self._arrived: dict[tuple[str, int], tuple] = {}  # what a neighbour on the same rank has left
        self._under_way: list[Any] = []

    @property
    def is_first(self) -> bool:
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        return self.stage_index == self.num_stages - 1

    # -- messages -----------------------------------------------------------------------------------------------------------
    def _tag(self, edge: int, direction: str, mb_index: int, part: int) -> int:
        """Messages between two ranks are told apart by number, so that their order does not matter."""
        return ((mb_index * self.num_stages + edge) * 2 + (direction == "B")) * (_MOST_TENSORS + 2) + part

    def _peer(self, stage: int) -> int:
        rank = self.stage_index_to_group_rank[stage]
        return rank if self.group is None else groups.get_global_rank(self.group, rank)

    def _send(self, direction: str, mb_index: int, tensors: tuple) -> None:
        """Results to the next stage ("F"), or gradients to the one before ("B")."""
        to = self.stage_index + (1 if direction == "F" else -1)
        edge = min(to, self.stage_index)
        if len(tensors) > _MOST_TENSORS:
            raise NotImplementedError(f"a stage can send {_MOST_TENSORS} tensors to the next, not {len(tensors)}")
        numbers = [len(tensors)]
        for tensor in tensors:
            if tensor is None:
                numbers.append(-1)
                continue
            numbers += [_DTYPES.index(tensor.dtype.name), int(tensor.requires_grad), tensor.dim(), *tensor.shape]
        if len(numbers) > _HEADER:
            raise NotImplementedError("the tensors that a stage sends to the next have too many dimensions in all")
        header = new_tensor(numbers + [0] * (_HEADER - len(numbers)))
        packets = [header, *(t.detach().contiguous() for t in tensors if t is not None)]
        for part, packet in enumerate(packets):
            work = collectives.isend(packet, self._peer(to), self.group, self._tag(edge, direction, mb_index, part))
            self._under_way.append((work, packet))

    def _receive(self, direction: str, mb_index: int) -> tuple:
        if (direction, mb_index) in self._arrived:
            return self._arrived.pop((direction, mb_index))
        source = self.stage_index - (1 if direction == "F" else -1)
        edge, peer = min(source, self.stage_index), self._peer(source)
        header = empty((_HEADER,), dtype=BY_NAME["int64"])
        collectives.recv(header, peer, self.group, self._tag(edge, direction, mb_index, 0))
        numbers = iter(header.tolist())
        tensors: list[Tensor | None] = []
        for _ in range(next(numbers)):
            code = next(numbers)
            if code < 0:
                tensors.append(None)
                continue
            differentiable, dims = bool(next(numbers)), next(numbers)
            where = empty([next(numbers) for _ in range(dims)], dtype=BY_NAME[_DTYPES[code]], device=self.device)
            part = 1 + sum(t is not None for t in tensors)
            collectives.recv(where, peer, self.group, self._tag(edge, direction, mb_index, part))
            tensors.append(where.requires_grad_(differentiable and self.has_backward))
        return tuple(tensors)

    def wait_for_sends(self) -> None:
        for work, _ in self._under_way:
            work.wait()
        self._under_way = []

    def set_local_fwd_input(self, prev_stage_outputs: Any, mb_index: int) -> None:
        """Results of the stage before, which is on this rank, too."""
        self._arrived["F", mb_index] = tuple(
            t.detach().requires_grad_(t.requires_grad and self.has_backward) for t in _as_tuple(prev_stage_outputs)
        )

    def set_local_bwd_input(self, next_stage_bwd_outputs: tuple, mb_index: int) -> None:
        """Gradients of the next stage, which is on this rank, too."""
        self._arrived["B", mb_index] = tuple(next_stage_bwd_outputs)

    def get_local_bwd_output(self, mb_index: int) -> tuple:
        return self.bwd_cache.pop(mb_index)

    # -- passes -------------------------------------------------------------------------------------------------------------
    def forward_one_chunk(
        self,
        fwd_chunk_id: int,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
        save_forward_output: bool = True,
    ) -> Any:
        """Run a microbatch: on `args` in the first stage, on what the stage before has sent in others."""
        inputs = args if self.is_first else self._receive("F", fwd_chunk_id)
        kwargs = kwargs or {}
        try:
            output = self.submod(*inputs, **kwargs)
        except Exception as problem:
            raise RuntimeError(
                f"[Stage {self.stage_index}] failed to run forward with {_described(inputs, kwargs)}"
            ) from problem
        outputs = _as_tuple(output)
        if self.is_last and save_forward_output:
            self.output_chunks.append(output)
        self.fwd_cache[fwd_chunk_id] = (outputs, [*flatten_args(inputs), *flatten_args(kwargs)])
        self._inputs_of_args = len(flatten_args(inputs))
        return output

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Tensor | None = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """The backward pass of a microbatch, from the loss in the last stage, from what the next stage has sent in others. Not
        `full_backward`: weights get their gradients in `backward_weight_one_chunk`."""
        if not self.has_backward:
            return
        outputs, inputs = self.fwd_cache.pop(bwd_chunk_id)
        roots: Any = (loss,) if self.is_last else outputs
        gradients = None if self.is_last else self._receive("B", bwd_chunk_id)
        with self._syncing(last_backward):
            if full_backward:
                found = stage_backward(roots, gradients, inputs)
            else:
                found, groups_of_weights = stage_backward_input(
                    list(roots), None if gradients is None else list(gradients), inputs, self.submod.parameters()
                )
                self.backward_state[bwd_chunk_id] = (groups_of_weights, inputs)
        self.bwd_cache[bwd_chunk_id] = found[: self._inputs_of_args]
        if self.is_last and not self.is_first:
            for tensor in outputs:  # results are kept, their graphs are not needed any more
                if isinstance(tensor, Tensor) and tensor.grad_fn is not None and tensor._base is None:
                    tensor.detach_()

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """Add the gradients of the weights of a microbatch."""
        if not self.has_backward:
            return
        found, _ = self.backward_state.pop(bwd_chunk_id)
        with self._syncing(last_backward):
            stage_backward_weight(self.submod.parameters(), found)

    @contextlib.contextmanager
    def _syncing(self, last: bool) -> Generator:
        """Replicas and shards exchange gradients after the last microbatch only."""
        module: Any = self.submod
        if isinstance(module, DistributedDataParallel):
            with contextlib.nullcontext() if last else module.no_sync():
                yield
            return
        if hasattr(module, "set_requires_gradient_sync"):
            module.set_is_last_backward(last)
            module.set_requires_gradient_sync(last)
        yield

    def scale_grads(self, grad_scale_factor: int) -> None:
        """Divide the gradients by the number of microbatches: the loss of the batch is the mean of theirs."""
        if grad_scale_factor != 1:
            for parameter in self.submod.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(grad_scale_factor)

    def perform_reduce_grad(self, grad_scale_factor: int) -> None:
        self.scale_grads(grad_scale_factor)


def _described(args: Any, kwargs: Any) -> str:
    shown = [
        f"{t.dtype}{list(t.shape)}" if isinstance(t, Tensor) else repr(t)[:40] for t in flatten_args((args, kwargs))
    ]
    return ", ".join(shown) or "no arguments"


class PipelineStage(_PipelineStageBase):
    """A part of a model as stage `stage_index` of `num_stages`, on this rank. Stages tell each other what they send, so `input_args`
    and `output_args` need not be given."""

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

    def get_outputs_meta(self) -> Any:
        """The results that were said to be expected."""
        return self._outputs_meta


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
    """A stage of a model that `pipeline()` has split, from its module and `pipe.info()`."""
    return _PipelineStage(stage_module, stage_index, pipe_info, device, group)
