"""Picking and placing elements along one dimension by indices that an operator computed (max, sort, topk, ...)."""

from __future__ import annotations

import math
from typing import Any

from ...core.caching import remember
from ...core.device import device
from ...core.layout import wrap_dim
from ...core.size import make_size
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, contiguous_strides, new_tensor, numel_of
from ...kernels.library.index import gather as gather_kernel
from ...kernels.library.index import scatter as scatter_kernel
from ..index.bad_index import bad_index
from .declare import internal
from .inplace import raw_copy
from .memory import bare, dense
from .record import NewTensor


def split_at(shape: tuple[int, ...], dim: int) -> tuple[int, int, int]:
    """Return a contiguous shape as (outer, n, inner) around a dimension; a 0-dim tensor is one line of one element."""
    if not shape:
        return 1, 1, 1
    shape = tuple(shape)  # whose parts are quickly made
    if dim < 0:
        dim += len(shape)
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])


def _check(size: int, where: device) -> None:
    bad = bad_index.taken(where)
    if bad is not None:
        raise IndexError(f"index {bad} is out of bounds for a dimension of size {size}: the indices were changed")


@internal(grads={"input": lambda g, index, dim, shape: place_along(g, index, dim, shape)}, batching="along")
def take_along(input: Tensor, index: Tensor, dim: int, shape: tuple[int, ...]) -> NewTensor:
    """out[o, k, i] = input[o, index[o, k, i], i]; `shape` is the input's."""
    return index.shape, input.dtype, input.device


@take_along.op.as_aten
def _(recorder: Any, input: Tensor, index: Tensor, dim: int, shape: Any) -> Tensor:
    return recorder.aten.gather.default(input, dim, index)


@take_along.on("any")
def take_into(out: Tensor, input: Tensor, index: Tensor, dim: int, shape: tuple[int, ...]) -> None:
    """Compute `take_along` into `out`, for other kernels."""
    outer, n, inner = split_at(input.shape, dim)
    picked = index.shape[dim] if index.shape else 1
    gather_kernel(out, dense(input), dense(index), bad_index.on(out.device, "gather"), outer, n, picked, inner)
    _check(n, out.device)


@internal(grads={"values": lambda g, index, dim, shape: take_along(g, index, dim, shape)}, batching="each")
def place_along(values: Tensor, index: Tensor, dim: int, shape: tuple[int, ...], distinct: bool = False) -> NewTensor:
    """Zeros of `shape` with out[o, index[o, k, i], i] += values[o, k, i]; `distinct` if no place occurs twice."""
    return make_size(shape), values.dtype, values.device


@place_along.op.as_aten
def _(recorder: Any, values: Tensor, index: Tensor, dim: int, shape: Any, distinct: bool = False) -> Tensor:
    zeros = recorder.aten.new_zeros.default(values, list(shape), pin_memory=False)
    scatter = recorder.aten.scatter.src if distinct else recorder.aten.scatter_add.default
    return scatter(zeros, dim, index, values)


@place_along.on("any")
def _(out: Tensor, values: Tensor, index: Tensor, dim: int, shape: tuple[int, ...], distinct: bool) -> None:
    raw_copy(out, 0)
    outer, n, inner = split_at(out.shape, dim)
    picked = index.shape[dim] if index.shape else 1
    scatter_kernel(
        out,
        dense(index),
        dense(values),
        0,
        bad_index.on(out.device, "scatter_add"),
        outer,
        n,
        picked,
        inner,
        reduce="add",
    )
    _check(n, out.device)


class _LinePlan:
    __slots__ = ("lines", "native", "kernel", "nbytes", "strides")

    nbytes: int
    strides: tuple[int, ...]
    lines: tuple[int, ...]  # outer, n and, for a kernel over columns, inner
    native: Any
    kernel: Any


class LineOperator:
    """A kernel from contiguous tensors of one dtype and shape to a new one, along the lines of one dimension.

    `rows` is the kernel where that dimension is the last one (None: `columns` does both). Plans are found by dtype, shape and dimension, so
    that a call costs one lookup, one allocation and one native call."""

    def __init__(self, rows: Any, columns: Any, inputs: int, **constants: Any):
        self.rows, self.columns, self.inputs, self.constants = rows, columns, inputs, constants
        self.plans: dict[tuple[Any, ...], _LinePlan] = {}

    def plan_of(self, x: Tensor, dim: int) -> _LinePlan:
        """Return the plan for calls on tensors like `x` along `dim`, made at the first such call."""
        return self.plans.get((x.dtype, x.shape, dim, x.device)) or self._plan(x, dim)

    def known(self, x: Tensor, dim: int) -> Tensor | None:
        """Compute a new tensor from `x` if a call like this was planned before, else return None (the `shortcut` of a primitive)."""
        plan = self.plans.get((x.dtype, x.shape, dim, x.device))
        if plan is None or plan.native is None or not x._contig:
            return None
        out = new_tensor(UntypedStorage(plan.nbytes, x.device), x.shape, plan.strides, 0, x.dtype, x.device, True)
        plan.native(out._storage.ptr, x._storage.ptr + x._offset * x.dtype.itemsize, *plan.lines)
        return out

    def fill(self, out: Tensor, dim: int, *inputs: Tensor) -> None:
        """Compute into contiguous memory that exists; all inputs have the layout of `out`."""
        plan = self.plan_of(out, dim)
        sources = [x if x._contig else bare(x) for x in inputs]
        if plan.native is not None:
            size = out.dtype.itemsize
            plan.native(out._storage.ptr, *[x._storage.ptr + x._offset * size for x in sources], *plan.lines)
        elif plan.kernel is not None:
            plan.kernel(out, *sources, *plan.lines, **self.constants)

    def _plan(self, x: Tensor, dim: int) -> _LinePlan:
        plan = _LinePlan()
        outer, n, inner = split_at(x.shape, wrap_dim(dim, len(x.shape)))
        by_rows = self.rows is not None and inner == 1
        plan.lines = (outer, n) if by_rows else (outer, n, inner)
        plan.kernel = plan.native = None
        plan.nbytes, plan.strides = numel_of(x.shape) * x.dtype.itemsize, contiguous_strides(x.shape)
        if 0 not in x.shape and x.device.type != "meta":
            plan.kernel = self.rows if by_rows else self.columns
            kinds = (x.dtype,) * (self.inputs + 1) + (int,) * len(plan.lines)
            plan.native = plan.kernel.native(*kinds, where=x.device, **self.constants)
        return remember(self.plans, (x.dtype, x.shape, dim, x.device), plan)
