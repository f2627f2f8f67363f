"""Losses: computed for all elements at once without reduction, then reduced for each."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from ...ops.machinery.record import Batched
from ...ops.nn import cross_entropy, nll_loss
from ..batching import Level, Rule, form, rule
from .common import bind, in_line


@form("loss")
def loss(declared: Batched) -> Rule:
    """Batching rule of losses: reduce each sample separately."""
    return elementwise


def elementwise(level: Level, function: Any, *args: Any, **kwargs: Any) -> Any:
    bound = bind(function, args, kwargs)
    given = bound.arguments
    reduction = given["reduction"]
    if not isinstance(reduction, str) or given.get("size_average") is not None or given.get("reduce") is not None:
        return level.one_by_one(function.op, function, args, kwargs)
    names = [k for k, v in given.items() if isinstance(v, Tensor)]
    rank = max(len(given[k].shape) for k in names)
    given.update({k: in_line(level, given[k], rank) for k in names})
    first_rows = len(args[0].shape) and args[0].shape[0]
    given["reduction"] = "none"
    result = level.wrap(function(*bound.args, **bound.kwargs))
    with level:
        if reduction == "batchmean":
            return result.sum() / first_rows
        return result.mean() if reduction == "mean" else result.sum() if reduction == "sum" else result


@rule(cross_entropy.cross_entropy, nll_loss.nll_loss)
def classification(level: Level, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Batching rule of classification losses: rows of all elements are rows of one loss; the mean is taken over the counted rows of each
    element."""
    bound = bind(function, args, kwargs)
    given = bound.arguments
    input, target, reduction = given["input"], given["target"], given["reduction"]
    by_index = not target.dtype.is_floating_point
    plain = given["weight"] is None and given.get("size_average") is None and given.get("reduce") is None
    if not (plain and by_index and len(input.shape) >= 1):
        return level.one_by_one(function.op, function, args, kwargs)
    rows = len(input.shape) > 1
    x, labels = level.full(input), level.full(target)
    given["input"] = x.flatten(0, 1) if rows else x
    given["target"] = labels.flatten(0, 1) if rows else labels
    given["reduction"] = "none"
    each = function(*bound.args, **bound.kwargs)
    losses = level.wrap(each.unflatten(0, (level.size, input.shape[0])) if rows else each)
    if reduction == "none":
        return losses
    with level:
        total = losses.sum()
        return total if reduction == "sum" else total / (target != given["ignore_index"]).sum()
