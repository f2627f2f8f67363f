"""Collectives as differentiable functions: they return new tensors, and their backward is a collective, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autograd.function import Function
from ...core.tensor import Tensor
from ...ops import namespace
from .. import collectives, groups
from ..reduce_op import ReduceOp

_torch = namespace("torch")


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, op: Any, group: Any) -> Tensor:
        ctx.op, ctx.group = op, group
        result = tensor.detach().clone()
        collectives.all_reduce(result, op, group)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        return _AllReduce.apply(gradient.contiguous(), ctx.op, ctx.group), None, None


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, src: int, group: Any) -> Tensor:
        ctx.src, ctx.group = src, group
        result = tensor.detach().clone()
        collectives.broadcast(result, src, group)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        total = _Reduce.apply(gradient.contiguous(), ctx.src, ReduceOp.SUM, ctx.group)
        return total if groups.get_rank() == ctx.src else _torch["zeros_like"](total), None, None


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dst: int, op: Any, group: Any) -> Tensor:
        ctx.dst, ctx.group = dst, group
        result = tensor.detach().clone()
        collectives.reduce(result, dst, op, group)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        return _Broadcast.apply(gradient.contiguous(), ctx.dst, ctx.group), None, None, None


class _AllToAll(Function):
    """inputs[r] to rank r; what comes from rank r has the shape `shapes[r]`."""

    @staticmethod
    def forward(ctx: Any, group: Any, shapes: Sequence, *inputs: Tensor) -> tuple:
        ctx.group, ctx.shapes = group, [t.shape for t in inputs]
        outputs = [inputs[0].new_empty(shape) for shape in shapes]
        collectives.all_to_all(outputs, [t.detach().contiguous() for t in inputs], group)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        return None, None, *_AllToAll.apply(ctx.group, ctx.shapes, *(g.contiguous() for g in gradients))


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum over all ranks."""
    return _AllReduce.apply(tensor, op, group)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """Rank `src`'s tensor."""
    return _Broadcast.apply(tensor, src, group)


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum over all ranks, on rank `dst`."""
    return _Reduce.apply(tensor, dst, op, group)


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None) -> tuple:
    """input_tensor_list[r] to rank r; returns what came, in the shapes of output_tensor_list."""
    return _AllToAll.apply(group, [t.shape for t in output_tensor_list], *input_tensor_list)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
) -> Tensor:
    """The r-th part of the input to rank r; returns the parts that came, joined."""
    count = groups.get_world_size(group)
    sizes = input_split_sizes or [input.shape[0] // count] * count
    lengths = output_split_sizes or [output.shape[0] // count] * count
    shapes = [(n, *output.shape[1:]) for n in lengths]
    return _torch["cat"](_AllToAll.apply(group, shapes, *input.split(list(sizes))))


def all_gather(tensor: Tensor, group: Any = None) -> tuple:
    """Everybody's tensor."""
    count = groups.get_world_size(group)
    return _AllToAll.apply(group, [tensor.shape] * count, *([tensor] * count))


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple:
    """Everybody's tensor on rank `dst`, zeros on the others."""
    parts = all_gather(tensor, group)
    return parts if groups.get_rank() == dst else tuple(_torch["zeros_like"](p) for p in parts)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """tensors[r] of rank `src` on rank r."""
    root = src if group is None else groups.get_group_rank(group, src)
    return _AllToAll.apply(group, [t.shape for t in tensors], *tensors)[root]


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum over all ranks of their input_list[this rank]."""
    if op != ReduceOp.SUM:
        raise NotImplementedError("reduce_scatter with gradients is only there for ReduceOp.SUM")
    parts = _AllToAll.apply(group, [output.shape] * groups.get_world_size(group), *input_list)
    return _torch["stack"](parts).sum(0)
