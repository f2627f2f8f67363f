"""New tensors made like a batched one, and operations that a batch does not allow."""

from __future__ import annotations

from typing import Any, NoReturn

from ...core.batched import VmapRefusal
from ...ops.creation import filled
from ...ops.index import masked, positions, unique
from ...ops.methods import attributes, python_protocol
from ...ops.reduce import agreement
from ...ops.shape import strided
from ..batching import Level, rule


@rule(filled.new_empty, filled.new_zeros, filled.new_ones, filled.new_full)
def new(level: Level, function: Any, input: Any, *size: Any, **options: Any) -> Any:
    """Make a batched tensor with memory for every element, so that it may be written to."""
    if not level.owns(input):  # a size or value of this level among the arguments
        raise VmapRefusal(f"vmap: the arguments of {function.__name__}() must be equal for all elements")
    named = options.pop("size", None)
    first, *rest = (named, *size) if named is not None else size or ((),)
    if isinstance(first, (tuple, list)):
        return level.wrap(function(input._value, (level.size, *first), *rest, **options))
    return level.wrap(function(input._value, level.size, first, *rest, **options))


def _extent(size: Any, stride: Any) -> int:
    """Return the number of elements of memory that a tensor of this size and stride spans."""
    return 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))


@rule(filled.new_empty_strided)
def new_empty_strided(level: Level, function: Any, input: Any, size: Any, stride: Any, **options: Any) -> Any:
    return level.wrap(function(input._value, (level.size, *size), (_extent(size, stride), *stride), **options))


@rule(strided.as_strided)
def as_strided(level: Level, function: Any, input: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    """Batching rule of as_strided, within the memory of each element."""
    value = level.front(input)
    step = value.stride()[0]
    start = 0 if storage_offset is None else storage_offset - value.storage_offset()
    if level.size > 1 and (start < 0 or start + _extent(size, stride) > step):
        raise VmapRefusal(
            f"vmap: as_strided with size {list(size)} and stride {list(stride)} reaches beyond the memory of one element"
        )
    return level.wrap(function(value, (level.size, *size), (step, *stride), storage_offset))


@rule(python_protocol.item, python_protocol.tolist, python_protocol.numpy, attributes.is_nonzero)
def number(level: Level, function: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise VmapRefusal(
        f"vmap: It looks like you're calling .{function.__name__}() on a Tensor. We don't support vmap over calling"
        f" .{function.__name__}() on a Tensor, please try to rewrite what you're doing with other operations: inside vmap a"
        " tensor stands for a whole batch."
    )


@rule(agreement.equal, agreement.allclose)
def decision(level: Level, function: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise VmapRefusal(
        f"vmap over torch.{function.__name__} isn't supported: its result is one Python bool, not a batch."
    )


@rule(
    masked.nonzero,
    masked.argwhere,
    masked.masked_select,
    unique.unique,
    unique.unique_consecutive,
    unique.unique_elements,
    unique.distinct_neighbours,
    unique.distinct_neighbour_slices,
    unique.unique_slices,
    positions.true_positions,
)
def dynamic(level: Level, function: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise VmapRefusal(
        "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over"
        f" {function.__name__}: the elements' results could differ in size."
    )
