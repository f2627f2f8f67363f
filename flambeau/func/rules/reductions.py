"""Reductions, and other operators along dimensions: scans, sorting, Fourier transforms."""

from __future__ import annotations

from typing import Any

from ...core.batched import BatchedTensor
from ...core.tensor import Tensor
from ...ops.index import sort, unique
from ...ops.machinery.reduction_faces import read_aliases
from ...ops.nn import distance
from ...ops.reduce import agreement, extremes, norms, quantiles, sums
from ...ops.reduce import statistics as moments
from ..batching import Level, kind_rule, rule
from .common import bind, shifted_all


@rule(agreement.trace, agreement.trace_of)
def trace(level: Level, function: Any, input: Tensor, *shape: Any) -> Any:
    if len(input.shape) != 2:
        raise RuntimeError("trace: expected a matrix")
    with level:
        return input.diagonal().sum()


@rule(unique.bucketize)
def bucketize(level: Level, function: Any, input: Any, boundaries: Tensor, **options: Any) -> Any:
    if level.owns(boundaries):
        return level.one_by_one(function.op, function, (input, boundaries), options)
    return level.wrap(function(level.front(input), boundaries, **options))


@kind_rule("reduction")
def reduction(
    level: Level, function: Any, input: BatchedTensor, dim: Any = None, keepdim: Any = False, **kwargs: Any
) -> Any:
    """Batching rule of reductions: reduce over dimensions after the batch dimension."""
    options = {k: kwargs.pop(k) for k in ("dtype",) if k in kwargs}
    dim, keepdim = read_aliases(function.__name__, dim, keepdim, kwargs)
    return _reduce_rows(level, function, input, dim, bool(keepdim), options)


def _reduce_rows(level: Level, function: Any, input: BatchedTensor, dim: Any, keepdim: bool, options: dict) -> Any:
    rank, value, name = len(input.shape), level.front(input), function.__name__
    everything = dim is None or (isinstance(dim, (tuple, list)) and not dim and name not in ("any", "all"))
    if rank == 0:
        shifted_all(dim, rank)
        return level.wrap(function(value.unsqueeze(1), 1, False, **options))
    if everything:  # some operators take one dimension or all, not several
        result = function(value.reshape(level.size, -1), 1, False, **options)
        return level.wrap(result.reshape(level.size, *(1,) * rank) if keepdim else result)
    return level.wrap(function(value, shifted_all(dim, rank), keepdim, **options))


@rule(
    moments.var,
    moments.std,
    moments.var_mean,
    moments.std_mean,
    sums.count_nonzero,
    sums.nanmean,
    norms.vector_norm,
    sort.median,
    sort.nanmedian,
    quantiles.quantile,
    quantiles.nanquantile,
    extremes.aminmax,
)
def statistics(level: Level, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Batching rule of functions with an optional dim: for all dimensions, those of a batch of vectors."""
    input, *rest = args if args else (kwargs.pop("input"),)
    if level.owns(input) and not any(isinstance(r, Tensor) for r in (*rest, *kwargs.values())):
        names = [n for n in ("dim", "axis") if n in kwargs]
        where: Any = names[0] if names else None
        dim = kwargs[where] if names else None
        known = [*function.op.arguments]
        position = known.index("dim") - 1 if "dim" in known else 0
        if where is None and len(rest) > position and not isinstance(rest[position], bool):
            dim, where = rest[position], position
        return _statistic(level, function, input, rest, kwargs, dim, where)
    return level.one_by_one(function.op, function, (input, *rest), kwargs)


def _statistic(
    level: Level, function: Any, input: BatchedTensor, rest: list, kwargs: dict, dim: Any, where: Any
) -> Any:
    rank, value = len(input.shape), level.front(input)
    if rank == 0:
        value, rank = value.unsqueeze(1), 1
        if kwargs.get("keepdim"):
            return level.one_by_one(function.op, function, (input, *rest), kwargs)
    everything = dim is None or (isinstance(dim, (tuple, list)) and not dim)
    keepdim = bool(kwargs.pop("keepdim", False)) if everything else False
    if everything:
        value, dims = value.reshape(level.size, -1), 1
    else:
        dims = shifted_all(dim, rank)
    rest = list(rest)
    if isinstance(where, int):
        rest[where] = dims
    else:
        kwargs = {**kwargs, where or "dim": dims}
    result = function(value, *rest, **kwargs)
    if not everything:
        return level.wrap(result)
    if function.__name__ in ("median", "nanmedian"):
        result = result[0]
    shape = (level.size, *(1,) * len(input.shape)) if keepdim else None
    parts = [r if shape is None else r.reshape(shape) for r in (result if isinstance(result, tuple) else (result,))]
    return level.wrap(tuple(parts) if isinstance(result, tuple) else parts[0])


@rule(extremes.max_, extremes.min_)
def extreme(level: Level, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Batching rule of max and min in their three forms: over all elements, along a dimension, of two tensors."""
    name = function.__name__
    if len(args) == 1 and not kwargs:
        with level:
            return args[0].amax() if name == "max" else args[0].amin()
    with level:
        if len(args) > 1 and isinstance(args[1], Tensor) or "other" in kwargs:
            other = args[1] if len(args) > 1 else kwargs["other"]
            return args[0].maximum(other) if name == "max" else args[0].minimum(other)
    input, *rest = args
    names = ["dim", "keepdim"]
    given = {**dict(zip(names, rest)), **kwargs}
    dim = given.get("dim", given.get("axis"))
    keepdim = given.get("keepdim", given.get("keepdims", False))
    if not input.shape:
        return level.one_by_one(function.op, function, args, kwargs)
    return level.wrap(function(level.front(input), shifted_all(dim, len(input.shape)), keepdim))


@rule(distance.normalize, distance.cosine_similarity)
def composed(level: Level, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Batching rule of operators along a dimension of elements of equal rank."""
    bound = bind(function, args, kwargs)
    tensors = [k for k, v in bound.arguments.items() if isinstance(v, Tensor)]
    rank = max(len(bound.arguments[k].shape) for k in tensors)
    if rank == 0:
        return level.one_by_one(function.op, function, args, kwargs)
    lined = level.lined_up(tuple(bound.arguments[k] for k in tensors))
    bound.arguments.update(zip(tensors, lined))
    bound.arguments["dim"] = shifted_all(bound.arguments["dim"], rank)
    return level.wrap(function(*bound.args, **bound.kwargs))
