"""Views and other changes of shape."""

from __future__ import annotations

from typing import Any

from ...core.batched import BatchedTensor
from ...core.tensor import Tensor
from ...ops.creation import convert, overwrite
from ...ops.reduce import sums
from ...ops.shape import dimensions, joining, rearrange
from ...ops.shape import reshape as reshaping
from ...ops.shape.dimensions import expand_to, permute_dims, squeeze_argument, unsqueeze
from ...ops.shape.joining import cat as join
from ...ops.shape.reshape import infer_shape
from ..batching import Level, rule
from .common import shifted, shifted_all


@rule(reshaping.view_shape, reshaping.unsafe_view)
def view_shape(level: Level, function: Any, input: BatchedTensor, size: tuple) -> Any:
    return level.wrap(function(level.front(input), (level.size, *size)))


@rule(reshaping.reshape, reshaping.reshape_as, reshaping.view_, reshaping.view_as)
def reshape(level: Level, function: Any, input: Tensor, *shape: Any, **named: Any) -> Any:
    given = shape or tuple(named.values())
    plain = "reshape" if function.__name__.startswith("reshape") else "view"
    if not level.owns(input):  # only the shape comes from a tensor of this level
        return getattr(input, plain)(given[0].shape)
    target = given[0] if len(given) == 1 and not isinstance(given[0], int) else given
    if "dtype" in named or not isinstance(target, (tuple, list, Tensor)):
        return level.wrap(function(level.front(input), *shape, **named))
    sizes = target.shape if isinstance(target, Tensor) else tuple(int(n) for n in target)
    return level.wrap(getattr(level.front(input), plain)(level.size, *infer_shape(tuple(sizes), input.numel())))


@rule(dimensions.expand_to)
def expand(level: Level, function: Any, input: BatchedTensor, size: tuple) -> Any:
    value = level.front(input)
    missing = len(size) - len(input.shape)
    if missing:
        value = value.reshape(level.size, *(1,) * missing, *input.shape)
    return level.wrap(expand_to(value, (level.size, *size)))


@rule(dimensions.permute_dims)
def permute(level: Level, function: Any, input: BatchedTensor, dims: tuple) -> Any:
    return level.wrap(permute_dims(level.front(input), (0, *shifted_all(tuple(dims), len(input.shape)))))


@rule(convert.to, convert.type_as)
def to(level: Level, function: Any, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Convert a batched tensor; of a tensor among the arguments only dtype and device are used."""
    rest = [a._value if level.owns(a) else a for a in args]
    named = {k: v._value if level.owns(v) else v for k, v in kwargs.items()}
    if not level.owns(input):
        return function(input, *rest, **named)
    return level.wrap(function(input._value, *rest, **named), input._hidden)  # type: ignore[attr-defined]


@rule(dimensions.t)
def t(level: Level, function: Any, input: BatchedTensor) -> Any:
    if len(input.shape) > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {len(input.shape)}D")
    value = level.front(input)
    return level.wrap(value.transpose(1, 2) if len(input.shape) == 2 else value)


@rule(dimensions.squeeze, dimensions.squeeze_all, dimensions.squeeze_one, dimensions.squeeze_some)
def squeeze(level: Level, function: Any, input: BatchedTensor, *dim: Any, **named: Any) -> Any:
    which = named.get("dim") if not dim else (dim[0] if len(dim) == 1 else dim)
    dims = squeeze_argument(which, len(input.shape))
    return level.wrap(level.front(input).squeeze(tuple(d + 1 for d in dims if d < len(input.shape))))


@rule(joining.cat)
def cat(level: Level, function: Any, tensors: Any, dim: int = 0) -> Any:
    given = [t for t in tensors if tuple(t.shape) != (0,)] or list(tensors)  # empty vectors fit everywhere
    return level.wrap(join([level.full(t) for t in given], shifted(dim, len(given[0].shape))))


@rule(joining.stack)
def stack(level: Level, function: Any, tensors: Any, dim: int = 0) -> Any:
    return level.wrap(function([level.full(t) for t in tensors], shifted(dim, len(tensors[0].shape) + 1)))


@rule(rearrange.repeat_times)
def repeat(level: Level, function: Any, input: BatchedTensor, repeats: tuple) -> Any:
    value = level.front(input)
    for _ in range(len(repeats) - len(input.shape)):
        value = unsqueeze(value, 1)
    return level.wrap(function(value, (1, *repeats)))


@rule(rearrange._rolled_flat)
def roll_flat(level: Level, function: Any, input: BatchedTensor, shifts: Any) -> Any:
    flat = level.front(input).reshape(level.size, -1)
    return level.wrap(flat.roll(shifts[0], 1).reshape(level.size, *input.shape))


@rule(overwrite.copy_)
def copy_(level: Level, function: Any, target: Any, source: Any, non_blocking: bool = False) -> Any:
    level.check_target(target, "copy_")
    level.writable(target)
    level.front(target).copy_(level.lined_up((target, source))[1])
    return target


@rule(overwrite.fill_, overwrite.zero_)
def fill_(level: Level, function: Any, target: Any, *value: Any) -> Any:
    level.check_target(target, function.__name__)
    level.writable(target)
    if value and level.owns(value[0]):
        return copy_(level, function, target, value[0])
    function(target._value, *value)
    return target


@rule(sums.sum_to_size)
def sum_to_size(level: Level, function: Any, input: BatchedTensor, *size: Any) -> Any:
    target = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    extra = len(input.shape) - len(target)
    dims = [d for d in range(len(input.shape)) if d < extra or (target[d - extra] == 1 and input.shape[d] != 1)]
    with level:
        result = input.sum(tuple(dims), keepdim=True) if dims else input
        return result.reshape(target) if extra else result
