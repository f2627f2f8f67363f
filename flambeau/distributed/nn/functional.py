"""Differentiable collectives: they return new tensors, and their backward is a collective, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...core.tensor import Tensor
from ...ops import namespace
from .. import groups, records
from ..groups import _group_or_default
from ..reduce_op import ReduceOp

_torch = namespace("torch")


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Return the sum of a tensor over all ranks, with a derivative."""
    return records.all_reduce(tensor, op, _group_or_default(group))


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """Return rank `src`'s tensor on all ranks, with a derivative."""
    where = _group_or_default(group)
    return records.broadcast(tensor, groups.get_group_rank(where, src), where)


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Return the reduction over all ranks on rank `dst`, with a derivative."""
    where = _group_or_default(group)
    return records.reduce(tensor, groups.get_group_rank(where, dst), op, where)


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None) -> tuple:
    """Send input_tensor_list[r] to rank r; return the received tensors, in the shapes of output_tensor_list."""
    return _exchanged([t.shape for t in output_tensor_list], input_tensor_list, group)


def _exchanged(shapes: Sequence, inputs: Sequence[Tensor], group: Any) -> tuple:
    """Send inputs[r] to rank r; return the received tensors, of the shapes `shapes[r]`."""
    takes, sends = [math.prod(shape) for shape in shapes], [t.numel() for t in inputs]
    flat = _torch["cat"]([t.reshape(-1) for t in inputs])
    found = records.all_to_all(flat, takes, sends, _group_or_default(group))
    return tuple(part.reshape(shape) for part, shape in zip(found.split(takes), shapes))


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
) -> Tensor:
    """Send the r-th part of the input to rank r; return the received parts, concatenated."""
    return records.all_to_all(input, output_split_sizes, input_split_sizes, _group_or_default(group))


def all_gather(tensor: Tensor, group: Any = None) -> tuple:
    """Return the tensors of all ranks, with a derivative."""
    where = _group_or_default(group)
    found = records.all_gather(tensor.reshape(1, *tensor.shape), where)
    return found.unbind(0)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple:
    """Return the tensors of all ranks on rank `dst`, zeros on the others."""
    parts = all_gather(tensor, group)
    return parts if groups.get_rank() == dst else tuple(_torch["zeros_like"](p) for p in parts)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """Return tensors[r] of rank `src` on rank r."""
    where = _group_or_default(group)
    return _exchanged([t.shape for t in tensors], tensors, where)[groups.get_group_rank(where, src)]


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Return the reduction over all ranks of their input_list[rank of this process]."""
    if op != ReduceOp.SUM:
        raise NotImplementedError("reduce_scatter with gradients is only there for ReduceOp.SUM")
    return records.reduce_scatter(_torch["stack"](list(input_list)), op, _group_or_default(group))[0]
