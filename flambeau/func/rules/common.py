"""The common forms of batching rules: arguments that count dimensions, and operators on stacks."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from ...core.batched import BatchedTensor
from ...core.tensor import Tensor
from ...ops.machinery.record import Batched
from ..batching import Level, Rule, form


@functools.cache
def _signature(function: Any) -> inspect.Signature:
    return inspect.signature(getattr(function, "__wrapped__", function))


def bind(function: Any, args: tuple, kwargs: dict) -> inspect.BoundArguments:
    bound = _signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound


def shifted(dim: int, rank: int) -> int:
    """Return the position in a batch of dimension `dim` of an element with `rank` dimensions."""
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {dim})")
    return dim % limit + 1


def shifted_all(dims: Any, rank: int) -> Any:
    """Return the positions in a batch of a dim argument: an int, several, or None for all."""
    if dims is None:
        return tuple(range(1, rank + 1))
    if isinstance(dims, (tuple, list)):
        return tuple(shifted(int(d), rank) for d in dims)
    return shifted(int(dims), rank)


@form("along")
def along(declared: Batched) -> Rule:
    """Batching rule of operators whose arguments `dims` count dimensions of their first tensor (with `extra` more: of the result). With
    `repeat` the other tensors are batched too."""
    dims, extra, repeat = declared.dims, declared.extra, declared.repeat

    def run(level: Level, function: Any, *args: Any, **kwargs: Any) -> Any:
        bound = bind(function, args, kwargs)
        values = bound.arguments
        rank = len(next(v for v in values.values() if isinstance(v, Tensor)).shape)
        if rank == 0 and dims and not extra:  # dimension 0 may be named all the same
            return level.one_by_one(function.op, function, args, kwargs)
        for name in dims:
            values[name] = shifted_all(values[name], rank + extra)
        for name, value in values.items():
            if isinstance(value, Tensor):
                values[name] = level.full(value) if repeat else level.front(value)
        return level.wrap(function(*bound.args, **bound.kwargs))

    return run


@form("leading")
def leading(declared: Batched) -> Rule:
    """Batching rule of operators that accept leading batch dimensions: the batch becomes another leading one."""

    def run(level: Level, function: Any, *args: Any, **kwargs: Any) -> Any:
        bound = bind(function, args, kwargs)
        tensors = [v for v in bound.arguments.values() if isinstance(v, Tensor)]
        rank = max(len(t.shape) for t in tensors)
        several = len(tensors) > 1
        for name, value in bound.arguments.items():
            if isinstance(value, Tensor):
                bound.arguments[name] = in_line(level, value, rank) if several else level.front(value)
        return level.wrap(function(*bound.args, **bound.kwargs))

    return run


def in_line(level: Level, x: Tensor, rank: int) -> Tensor:
    """Return a batch of elements with `rank` dimensions, after inserting leading ones of size 1."""
    value = level.full(x)
    missing = rank - len(x.shape)
    return value.reshape(value.shape[0], *(1,) * missing, *value.shape[1:]) if missing else value


@form("folded")
def folded(declared: Batched) -> Rule:
    """Batching rule of operators on (N, ...): the batch is folded into N. `shape` names an argument that is such a shape."""
    shape = declared.shape

    def run(level: Level, function: Any, *args: Any, **kwargs: Any) -> Any:
        bound = bind(function, args, kwargs)
        for name, value in bound.arguments.items():
            if isinstance(value, Tensor):
                bound.arguments[name] = level.full(value).flatten(0, 1)
        if shape is not None:
            count, *rest = bound.arguments[shape]
            bound.arguments[shape] = (level.size * count, *rest)
        return level.wrap(unfolded(level, function(*bound.args, **bound.kwargs)))

    return run


def unfolded(level: Level, result: Any) -> Any:
    if isinstance(result, Tensor):
        return result.unflatten(0, (level.size, result.shape[0] // level.size))
    return tuple(unfolded(level, r) for r in result)


@form("same")
def same(declared: Batched) -> Rule:
    """Batching rule of operators that keep all dimensions: the batch dimension stays in place."""

    def run(level: Level, function: Any, input: BatchedTensor, *args: Any, **kwargs: Any) -> Any:
        return level.wrap(function(input._value, *args, **kwargs), input._hidden)

    return run


@form("fronted")
def fronted(declared: Batched) -> Rule:
    """Batching rule of operators on the last dimensions or single elements: the batch dimension moves to the front."""

    def run(level: Level, function: Any, *args: Any, **kwargs: Any) -> Any:
        return level.wrap(function(*(level.front(a) for a in args), **kwargs))

    return run
