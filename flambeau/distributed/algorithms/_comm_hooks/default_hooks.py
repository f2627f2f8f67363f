"""Averages of gradients over ranks, also in a lower precision.

A hook takes (state, gradient) if every rank has the whole gradient, which is changed in place, and (state, gradient, output) if `output` is
this rank's shard."""

from __future__ import annotations

from typing import Any

from ....core.dtype import bfloat16, dtype, float16, float32
from ....core.tensor import Tensor
from ... import groups
from ...collectives import all_reduce, reduce_scatter_tensor
from ...fsdp._fully_shard._fsdp_collectives import divisors


class DefaultState:
    """The process group, and the factors that gradients are divided by before and after the reduction: together the number of ranks, in two
    steps to avoid underflow and overflow."""

    def __init__(self, process_group: Any):
        if process_group is None:
            raise ValueError(f"Expected to pass in an explicit ProcessGroup to {self}.")
        self.process_group, self.world_size = process_group, groups.get_world_size(process_group)
        before, after, _, _ = divisors(process_group, None, float16)
        self.gradient_predivide_factor, self.gradient_postdivide_factor = float(before or 1), float(after or 1)


class LowPrecisionState(DefaultState):
    """State for reducing gradients in a lower precision; the results have `parameter_type`."""

    def __init__(self, process_group: Any, parameter_type: dtype = float32):
        super().__init__(process_group)
        self.parameter_type = parameter_type


def allreduce_hook(state: DefaultState, grad: Tensor) -> None:
    """Average whole gradients over the ranks, in place."""
    if state.gradient_predivide_factor > 1:
        grad.div_(state.gradient_predivide_factor)
    all_reduce(grad, group=state.process_group)
    if state.gradient_postdivide_factor > 1:
        grad.div_(state.gradient_postdivide_factor)


def reduce_scatter_hook(state: DefaultState, grad: Tensor, output: Tensor) -> None:
    """Reduce gradients among ranks and return this rank's shard of the average."""
    if state.gradient_predivide_factor > 1:
        grad.div_(state.gradient_predivide_factor)
    reduce_scatter_tensor(output, grad, group=state.process_group)
    if state.gradient_postdivide_factor > 1:
        output.div_(state.gradient_postdivide_factor)


def _reduce_in_precision(precision: dtype, state: LowPrecisionState, grad: Tensor, output: Tensor | None) -> None:
    grad.data = grad.data.to(precision)
    if output is None:
        allreduce_hook(state, grad)
        grad.data = grad.data.to(state.parameter_type)
        return
    output.data = output.data.to(precision)
    reduce_scatter_hook(state, grad, output)
    output.data = output.data.to(state.parameter_type)


def fp16_compress_hook(state: LowPrecisionState, grad: Tensor, output: Tensor | None = None) -> None:
    """Average gradients among ranks in float16."""
    _reduce_in_precision(float16, state, grad, output)


def bf16_compress_hook(state: LowPrecisionState, grad: Tensor, output: Tensor | None = None) -> None:
    """Average gradients among ranks in bfloat16."""
    _reduce_in_precision(bfloat16, state, grad, output)
