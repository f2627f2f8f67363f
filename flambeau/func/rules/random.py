"""Random numbers inside vmap: refused, drawn for each element, or drawn once for all."""

from __future__ import annotations

from typing import Any

from ...core.generator import default_generator
from ...core.tensor import Tensor, tensors_in
from ...ops.machinery.record import Op
from ..batching import Level, kind_rule
from .common import bind

# What records of random operators say: a mask is drawn, or factors and addends, for elements or whole channels.
_MASKS, _NOISE, _CHANNELS = ("mask", "channel mask"), ("noise", "channel noise"), ("channel mask", "channel noise")


@kind_rule("random")
def random(level: Level, function: Any, op: Op, args: tuple, kwargs: dict) -> Any:
    batched = any(level.owns(x) for x in tensors_in((args, kwargs)))
    if _draws_nothing(function, op, args, kwargs):
        return (
            level.wrap(function(args[0]._value, *args[1:], **kwargs), args[0]._hidden)
            if batched
            else function(*args, **kwargs)
        )
    if level.randomness == "error":
        level.refuse_randomness(op.name)
    draw = _run_same if level.randomness == "same" else _run_different
    return draw(level, function, op, args, kwargs, batched)


def _draws_nothing(function: Any, op: Op, args: tuple, kwargs: dict) -> bool:
    """Return whether a call draws nothing, as dropout in evaluation."""
    if op.batching not in _MASKS and op.batching not in _NOISE:
        return False
    given = bind(function, args, kwargs).arguments
    return not given.get("training", given.get("train", True))


def _run_same(level: Level, function: Any, op: Op, args: tuple, kwargs: dict, batched: bool) -> Any:
    if not batched:
        return function(*args, **kwargs)
    if op.batching == "like":
        return function(*level.element(args, 0), **kwargs)
    if op.batching in _MASKS and not op.in_place:
        with level:
            return args[0] * function(level.element(args[0], 0).new_ones(args[0].shape), *args[1:], **kwargs)
    if op.in_place and level.owns(args[0]) and not any(level.owns(a) for a in args[1:]):
        drawn = function(level.element(args[0], 0).clone(), *args[1:], **kwargs)
        level.front(args[0]).copy_(drawn)
        return args[0]
    if op.batching in _NOISE and not op.in_place:
        return _run_repeated(level, function, op.name, args, kwargs)
    level.refuse_randomness(op.name)


def _run_repeated(level: Level, function: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """Run a function for one batch element after the other, each with the random numbers of the first."""
    start, results = default_generator.get_state(), []
    for i in range(level.size):
        default_generator.set_state(start)
        results.append(function(*level.element(args, i), **kwargs))
    return level.joined(results, name)


def _run_different(level: Level, function: Any, op: Op, args: tuple, kwargs: dict, batched: bool) -> Any:
    if op.batching == "new" and not any(isinstance(a, Tensor) for a in (*args, *kwargs.values())):
        if "size" in kwargs:
            kwargs = {**kwargs, "size": (level.size, *kwargs["size"])}
        elif args and not isinstance(args[-1], int):
            args = (*args[:-1], (level.size, *args[-1]))
        else:
            args = (level.size, *args)
        return level.wrap(function(*args, **kwargs))
    if op.batching == "rows":
        return _multinomial(level, function, *args, **kwargs)
    if op.batching in ("each", *_CHANNELS) or not any(isinstance(a, Tensor) for a in args):
        return level.joined([function(*level.element(args, i), **kwargs) for i in range(level.size)], op.name)
    if op.in_place:
        level.check_target(args[0], op.name)
        level.writable(args[0])
        function(*level.lined_up(args), **kwargs)
        return args[0]
    tensors = [a for a in args if isinstance(a, Tensor)]
    rank = max(len(t.shape) for t in tensors)
    whole = [
        level.full(a).reshape(level.size, *(1,) * (rank - len(a.shape)), *a.shape) if isinstance(a, Tensor) else a
        for a in args
    ]
    if op.batching in _MASKS or op.batching in _NOISE:  # PyTorch draws its mask apart, in the order of the elements
        whole[0] = whole[0].contiguous()
    return level.wrap(function(*whole, **kwargs))


def _multinomial(level: Level, function: Any, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Draw for the rows of all batch elements in one call."""
    value = level.full(input)
    if len(value.shape) < 3:
        return level.wrap(function(value, *args, **kwargs))
    drawn = function(value.flatten(0, 1), *args, **kwargs)
    return level.wrap(drawn.reshape(*value.shape[:2], -1))
