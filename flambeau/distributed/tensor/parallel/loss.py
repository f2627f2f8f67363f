"""Cross entropy of scores whose classes are sharded over ranks, without gathering them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ....autograd.function import Function
from ....core.tensor import Tensor
from ... import _functional_collectives as funcol
from .. import _compute_rules as _rules
from .._utils import compute_local_shape_and_global_offset

__all__ = ["loss_parallel"]


class _SumOverRanks(Function):
    """Autograd function of a sum over ranks; the gradient of each term is that of the sum."""

    @staticmethod
    def forward(ctx: Any, term: Tensor, group: Any) -> Tensor:
        return funcol.all_reduce(term, "sum", group, now=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        return gradient, None


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """Context manager: compute `cross_entropy` of a DTensor sharded along its classes on the shards. The backward pass must be inside as
    well."""
    before, _rules.losses.of_parts = _rules.losses.of_parts, _loss_of_parts
    try:
        yield
    finally:
        _rules.losses.of_parts = before


def _loss_of_parts(call: Any, decision: Any, args: tuple, kwargs: dict[str, Any]) -> Tensor:
    """Compute the loss of scores (N, C, ...) of which this rank has some classes, and all targets."""
    bound = dict(zip(call.op.arguments, args)) | kwargs
    scores, target, weight = bound["input"], bound["target"], bound.get("weight")
    if bound.get("smoothing"):
        raise NotImplementedError("loss_parallel: label_smoothing is not supported")
    axis = 0 if scores.ndim == 1 else 1
    where = (call.mesh, next(i for i, p in enumerate(decision.inputs[0]) if p.is_shard(axis)))
    shape, offset = compute_local_shape_and_global_offset(call.tensors[0].shape, call.mesh, decision.inputs[0])
    ignored = target == bound["ignore_index"]
    own = (target - offset[axis]).masked_fill(ignored, -1)
    missing = (own < 0) | (own >= shape[axis])
    picked = scores.gather(axis, own.masked_fill(missing, 0).unsqueeze(axis)).squeeze(axis).masked_fill(missing, 0)
    picked = _SumOverRanks.apply(picked, where)
    if call.op.sharding == "scores":
        largest = funcol.all_reduce(scores.detach().amax(axis), "max", where, now=True)
        total = _SumOverRanks.apply((scores - largest.unsqueeze(axis)).exp().sum(axis), where)
        losses = total.log() + largest - picked
    else:
        losses = -picked
    weights = (~ignored).to(scores.dtype)
    if weight is not None:
        weights = weights * weight[target.masked_fill(ignored, 0)]
    losses = losses * weights
    if bound["reduction"] == "none":
        return losses
    return losses.sum() if bound["reduction"] == "sum" else losses.sum() / weights.sum()
