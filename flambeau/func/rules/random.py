"""Random numbers inside vmap: refused, drawn for each element, or drawn once for all."""

from __future__ import annotations

from typing import Any

from ...core.generator import default_generator
from ...core.tensor import Tensor, tensors_in
from ...ops.machinery.record import Op
from ...ops.random import fills
from ..batching import Level, kind_rule
from .common import bind


@kind_rule("random")
def random(level: Level, function: Any, op: Op, args: tuple, kwargs: dict) -> Any:
    batched = any(level.owns(x) for x in tensors_in((args, kwargs)))
    if _is_quiet(function, args, kwargs):
        return (
            level.wrap(function(args[0]._value, *args[1:], **kwargs), args[0]._hidden)
            if batched
            else function(*args, **kwargs)
        )
    if level.randomness == "error":
        level.refuse_randomness(op.name)
    draw = _same if level.randomness == "same" else _different
    return draw(level, function, op, args, kwargs, batched)


def _is_quiet(function: Any, args: tuple, kwargs: dict) -> bool:
    """Dropout in evaluation draws nothing."""
    if "dropout" not in function.__name__ and "rrelu" not in function.__name__:
        return False
    given = bind(function, args, kwargs).arguments
    return not given.get("training", given.get("train", True)) and "rrelu" not in function.__name__


def _same(level: Level, function: Any, op: Op, args: tuple, kwargs: dict, batched: bool) -> Any:
    if not batched:
        return function(*args, **kwargs)
    name = op.name
    if name.endswith("_like"):
        return function(*level.element(args, 0), **kwargs)
    if "dropout" in name and "alpha" not in name and not name.endswith("_"):
        with level:
            return args[0] * function(level.element(args[0], 0).new_ones(args[0].shape), *args[1:], **kwargs)
    if name.endswith("_") and level.owns(args[0]) and not any(level.owns(a) for a in args[1:]):
        drawn = function(level.element(args[0], 0).clone(), *args[1:], **kwargs)
        level.front(args[0]).copy_(drawn)
        return args[0]
    if "alpha_dropout" in name and not name.endswith("_"):
        return _repeated(level, function, name, args, kwargs)
    level.refuse_randomness(name)


def _repeated(level: Level, function: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """Run a function for one batch element after the other, each with the random numbers of the first."""
    start, results = default_generator.get_state(), []
    for i in range(level.size):
        default_generator.set_state(start)
        results.append(function(*level.element(args, i), **kwargs))
    return level.joined(results, name)


def _different(level: Level, function: Any, op: Op, args: tuple, kwargs: dict, batched: bool) -> Any:
    name = op.name
    if op in (fills.rand.op, fills.randn.op):
        size = args[0] if len(args) == 1 and not isinstance(args[0], int) else args or kwargs.pop("size")
        return level.wrap(function(level.size, *size, **kwargs))
    if name == "randint":
        if "size" in kwargs:
            return level.wrap(function(*args, **{**kwargs, "size": (level.size, *kwargs["size"])}))
        *bounds, size = args
        return level.wrap(function(*bounds, (level.size, *size), **kwargs))
    if name == "normal" and not any(isinstance(a, Tensor) for a in (*args, *kwargs.values())):
        size = kwargs.get("size", args[-1])
        return level.wrap(function(*args[:2], **{**kwargs, "size": (level.size, *size)}))
    if name == "multinomial":
        return _multinomial(level, function, *args, **kwargs)
    if (
        name == "randperm"
        or not any(isinstance(a, Tensor) for a in args)
        or "feature" in name
        or name[-2:] in ("1d", "2d", "3d")
    ):
        return level.joined([function(*level.element(args, i), **kwargs) for i in range(level.size)], name)
    if name.endswith("_"):
        level.check_target(args[0], name)
        level.writable(args[0])
        function(*level.lined_up(args), **kwargs)
        return args[0]
    tensors = [a for a in args if isinstance(a, Tensor)]
    rank = max(len(t.shape) for t in tensors)
    whole = [_lined(level, a, rank) if isinstance(a, Tensor) else a for a in args]
    if "dropout" in name:  # PyTorch draws its mask apart, in the order of the elements
        whole[0] = whole[0].contiguous()
    return level.wrap(function(*whole, **kwargs))


def _lined(level: Level, x: Tensor, rank: int) -> Tensor:
    """Not made contiguous: numbers are drawn in the order of memory, as in a call with the whole tensor."""
    return level.full(x).reshape(level.size, *(1,) * (rank - len(x.shape)), *x.shape)


def _multinomial(level: Level, function: Any, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Draw for the rows of all batch elements in one call."""
    value = level.full(input)
    if len(value.shape) < 3:
        return level.wrap(function(value, *args, **kwargs))
    drawn = function(value.flatten(0, 1), *args, **kwargs)
    return level.wrap(drawn.reshape(*value.shape[:2], -1))
