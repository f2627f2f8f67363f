"""Indexing, gathering and scattering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.layout import broadcast_shapes
from ...core.tensor import Tensor
from ...ops.creation.ranges import arange
from ...ops.index import gather, index_vector, indexing, masked, unique
from ..batching import Level, rule
from .common import bind, shifted, shifted_all

Indices = Sequence["Tensor | None"]


class Places:
    """The positions in the result of the dimensions picked by index tensors: together in their place, or in front."""

    def __init__(self, shape: tuple[int, ...], indices: Indices):
        self.where = [d for d, i in enumerate(indices) if i is not None]
        self.picked = broadcast_shapes(*[i.shape for i in indices if i is not None])
        together = self.where[-1] - self.where[0] == len(self.where) - 1
        self.first = self.where[0] if together else 0
        others = [n for d, n in enumerate(shape) if d not in self.where]
        self.shape = (*others[: self.first], *self.picked, *others[self.first :])
        self.together = together


def _align_indices(level: Level, indices: Indices, rank: int) -> list[Tensor | None]:
    """Return index tensors with the batch in front of `rank` dimensions."""
    result: list[Tensor | None] = []
    for i in indices:
        if level.owns(i):
            value = level.front(i)
            result.append(value.reshape(level.size, *(1,) * (rank + 1 - len(value.shape)), *value.shape[1:]))
        else:
            result.append(i)
    return result


def _batch_numbers(level: Level, rank: int) -> Tensor:
    return arange(level.size).reshape(level.size, *(1,) * rank)


@rule(indexing.index)
def index(level: Level, function: Any, input: Tensor, indices: Indices) -> Any:
    places = Places(input.shape, indices)
    rank = len(places.picked)
    if not any(level.owns(i) for i in indices):
        result = indexing.index(level.front(input), [None, *indices])
        return level.wrap(result, 0 if places.together else rank)
    lined = _align_indices(level, indices, rank)
    if not level.owns(input):
        return level.wrap(indexing.index(input, lined), places.first)
    result = indexing.index(level.front(input), [_batch_numbers(level, rank), *lined])
    return level.wrap(_move_picked(result, rank, places.first))


def _move_picked(result: Tensor, rank: int, first: int) -> Tensor:
    """Move the picked dimensions of (B, picked, others) to their place."""
    if first == 0 or rank == 0:
        return result
    return result.movedim(tuple(range(1, 1 + rank)), tuple(range(1 + first, 1 + first + rank)))


@rule(indexing.index_put_prepared)
def index_put(
    level: Level, function: Any, input: Tensor, indices: Indices, values: Tensor, accumulate: bool = False
) -> Any:
    places = Places(input.shape, indices)
    rank, first = len(places.picked), places.first
    with level:
        spread = values.expand(places.shape)
    target, filling = level.full(input), level.full(spread)
    if first and rank:
        filling = filling.movedim(tuple(range(1 + first, 1 + first + rank)), tuple(range(1, 1 + rank)))
    whole: list = [_batch_numbers(level, rank), *_align_indices(level, indices, rank)]
    return level.wrap(indexing.index_put_prepared(target, whole, filling, accumulate))


@rule(indexing.index_put)
def index_put_public(
    level: Level, function: Any, input: Tensor, indices: Any, values: Tensor, accumulate: bool = False
) -> Any:
    prepared = [*indices, *[None] * (len(input.shape) - len(indices))]
    if any(isinstance(i, Tensor) and not i.dtype.is_signed for i in prepared):  # masks
        return level.one_by_one(function.op, function, (input, indices, values, accumulate), {})
    with level:
        return indexing.index_put_prepared(input, prepared, values, accumulate)


@rule(gather.index_select)
def index_select(level: Level, function: Any, input: Tensor, dim: int, index: Tensor) -> Any:
    if not input.shape:
        return level.one_by_one(function.op, function, (input, dim, index), {})
    if not level.owns(index):
        return level.wrap(function(level.front(input), shifted(dim, len(input.shape)), index))
    at = shifted(dim, len(input.shape)) - 1
    with level:
        return indexing.index(input, [None] * at + [index] + [None] * (len(input.shape) - at - 1))


@rule(index_vector.index_add, index_vector.index_copy, index_vector.index_fill, index_vector.index_reduce)
def index_write(level: Level, function: Any, *args: Any, **kwargs: Any) -> Any:
    bound = bind(function, args, kwargs)
    given = bound.arguments
    if level.owns(given["index"]) or not given["input"].shape:
        return level.one_by_one(function.op, function, args, kwargs)
    rank = len(given["input"].shape)
    given["dim"] = shifted_all(given["dim"], rank)
    for name in ("input", "source", "value"):
        if isinstance(given.get(name), Tensor):
            given[name] = level.full(given[name])
    if isinstance(given.get("value"), Tensor):
        return level.one_by_one(function.op, function, args, kwargs)
    return level.wrap(function(*bound.args, **bound.kwargs))


@rule(unique.searchsorted)
def searchsorted(level: Level, function: Any, sequence: Tensor, input: Any = None, **options: Any) -> Any:
    if not isinstance(input, Tensor) or options:
        return level.one_by_one(function.op, function, (sequence, input), options)
    if not level.owns(sequence) and len(sequence.shape) == 1:
        return level.wrap(function(sequence, level.front(input)))
    values = level.full(input)
    if len(sequence.shape) == 1:
        return level.wrap(function(level.full(sequence), values.reshape(level.size, -1)).reshape(values.shape))
    return level.wrap(function(level.full(sequence), values))


@rule(masked.take)
def take(level: Level, function: Any, input: Tensor, index: Tensor) -> Any:
    with level:
        return input.reshape(-1)[index]
