"""Sharding rules of operators that compute across elements: reductions, products, layers, losses."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from ...core.tensor import Tensor
from ...expr import arg
from ...ops.machinery.record import Batched
from ...ops.machinery.reduction import reduced_dims
from .. import _functional_collectives as funcol
from ._rules import EQUATIONS, MAKERS, RULES, Place, Rule, Ways, rule, shapes
from ._utils import compute_local_shape_and_global_offset
from .placement_types import Partial, _MaskPartial, _NormPartial

# -- reductions ---------------------------------------------------------------------------------------------------------------------

_PARTIAL_REDUCTIONS = {"sum": "sum", "prod": "product", "max": "max", "min": "min", "any": "max", "all": "min"}


@rule("reduction")
def reduction(call: Any) -> Ways | None:
    """Rule of reductions: along a sharded dimension each rank reduces its part; the partial results are reduced by the same operation."""
    impl = call.op.impl
    bound = dict(zip(("input", "dim", "keepdim"), call.args)) | call.kwargs
    dim, keepdim = bound.get("dim", bound.get("axis")), bound.get("keepdim", bound.get("keepdims", False))
    shape = tuple(call.tensors[0].shape)
    dims = reduced_dims(dim, len(shape), call.op.name)
    kind = _PARTIAL_REDUCTIONS.get(impl.combine)
    joined: Any = None if kind is None else Partial(kind)
    final = None if impl.final is None else impl.final(arg(0), arg(1))
    if final is not None:
        kind, joined = None, None
        if final is arg(0) / arg(1):
            kind, joined = "avg", Partial("avg")
        elif final.op == "sqrt" and final.args[0] is arg(0):
            joined = _NormPartial(2)
    ways: list[tuple] = []
    for d in range(len(shape)):
        if d not in dims:
            ways.append(((d,), d if keepdim else d - sum(1 for r in dims if r < d)))
        elif (
            joined is not None and (kind != "avg" or _even(call, d)) and (kind not in ("max", "min") or _full(call, d))
        ):
            ways.append(((d,), joined))
    if impl.combine == "sum" and impl.formula(arg(0)) is arg(0) and (final is None or kind == "avg"):
        ways += [((Partial(p),), Partial(p)) for p in ("sum", "avg")]
    elif kind in ("max", "min") and impl.formula(arg(0)) is arg(0):
        ways.append(((Partial(kind),), Partial(kind)))
    return Ways(ways)


def _full(call: Any, d: int) -> bool:
    """Return whether every rank has an element along a dimension: a maximum of none does not exist."""
    t = call.tensors[0]
    parts = t._spec.num_shards_map[d]
    return -(-t.shape[d] // parts) * (parts - 1) < t.shape[d]


def _even(call: Any, d: int) -> bool:
    """Return whether all ranks have equally many elements along a dimension, so that the mean of their means is the mean."""
    t = call.tensors[0]
    parts = t._spec.num_shards_map[d]
    return t.shape[d] % parts == 0


# -- operators that leave dimensions alone -----------------------------------------------------------------------------------------------


def along(form: Batched) -> Rule:
    """Make the rule of operators that work along the dimensions named by their arguments `dims`: all others may be sharded."""

    def ways(call: Any) -> Ways | None:
        bound = call.op.bind(call.args, call.kwargs)
        first = tuple(call.tensors[0].shape)
        result = tuple(call.metas()[0].shape)
        named: set[int] = set()
        for name in form.dims:
            value = bound.get(name)
            if value is None:
                return None
            for d in value if isinstance(value, (tuple, list)) else (value,):
                named.add(int(d) % max(len(first) + form.extra, 1))
        if form.extra or any(len(s) != len(first) for s in shapes(call)):
            return None
        kept = len(result) == len(first)
        found: list[tuple] = []
        for d, n in enumerate(first):
            if d in named or any(s[d] != n for s in shapes(call)):
                continue
            out = d if kept else d - sum(1 for r in named if r < d)
            if out < len(result) and result[out] == n:
                found.append(((d,) * len(call.tensors), out))
        return Ways(found)

    return ways


MAKERS["along"] = along


@rule("leading")
def leading(call: Any) -> Ways:
    """Rule of operators on the last dimensions (`inner` of them, or two): those before may be sharded."""
    bound = call.op.bind(call.args, call.kwargs)
    inner = bound.get("inner", 2)
    rank = call.tensors[0].ndim
    return Ways([((d, *(None,) * (len(call.tensors) - 1)), d) for d in range(rank - inner)])


@rule("counts")
def counts(call: Any) -> Ways:
    """Rule of counts of elements between given bounds: counts of parts are added."""
    low, high = call.args[2:4]
    return Ways([((d,), Partial()) for d in range(call.tensors[0].ndim)] if low != high else [])


def matrices(form: Batched) -> Rule:
    """Make the rule of operators on matrices: batch dimensions may be sharded."""

    def ways(call: Any) -> Ways | None:
        rank = call.tensors[0].ndim
        if any(t.ndim != rank or t.shape[: rank - 2] != call.tensors[0].shape[: rank - 2] for t in call.tensors):
            return None
        count = len(call.tensors)
        return Ways([((d,) * count, d) for d in range(rank - 2) if all(len(m.shape) > d for m in call.metas())])

    return ways


MAKERS["leading"] = matrices
RULES["matrices"] = matrices(Batched("leading"))


@rule("batch")
def batch(call: Any) -> Ways:
    """Rule of operators that are independent for each sample of the first argument: its first dimension may be sharded."""
    return Ways([((0, *(None,) * (len(call.tensors) - 1)), 0)])


def fronted(form: Batched) -> Rule:
    return RULES["leading"]


MAKERS["fronted"] = fronted


def folded(form: Batched) -> Rule:
    """Make the rule of operators that are independent for each image of a batch: the first dimension may be sharded."""

    def ways(call: Any) -> Ways | None:
        count = call.tensors[0].shape[0] if call.tensors[0].ndim else 0
        if form.shape is not None or any(not s or s[0] != count for s in shapes(call)):
            return None
        if any(not m.shape or m.shape[0] != count for m in call.metas()):
            return None
        return Ways([((0,) * len(call.tensors), 0)])

    return ways


MAKERS["folded"] = folded


def elementwise_loss(form: Batched) -> Rule:
    """Sharding rule of elementwise losses, reduced according to the argument `reduction`."""

    def ways(call: Any) -> Ways | None:
        reduction = call.op.bind(call.args, call.kwargs).get("reduction", "mean")
        shape = tuple(call.tensors[0].shape)
        if any(s != shape for s in shapes(call)):
            return None
        joined: dict[str, Any] = {"sum": Partial(), "mean": Partial("avg")}
        found = []
        for d in range(len(shape)):
            if reduction != "mean" or _even(call, d):
                found.append(((d,) * len(call.tensors), joined.get(reduction, d)))
        return Ways(found)

    return ways


MAKERS["loss"] = elementwise_loss


@rule("statistics")
def statistics(call: Any) -> Ways:
    """Rule of variances and similar reductions: dimensions that are not reduced may be sharded."""
    arguments = call.args[1]
    shape = tuple(call.tensors[0].shape)
    dims = reduced_dims(arguments.dim, len(shape))
    kept = [d for d in range(len(shape)) if d not in dims]
    return Ways([((d,), d if arguments.keepdim else kept.index(d)) for d in kept])


@rule("embedding")
def embedding(call: Any) -> Ways:
    """Sharding rule of embeddings: by indices, by columns, or by rows of the table, of which each rank looks up its own."""
    weight, indices = call.tensors
    ways: list[tuple] = [((None, d), d) for d in range(indices.ndim)]
    ways.append(((1, None), indices.ndim))
    ways.append(((0, None), _MaskPartial(offset_shape=weight.shape, offset_dim=0)))
    return Ways(ways, compute=_embed_with_mask)


def _embed_with_mask(call: Any, decision: Any, args: tuple, kwargs: dict[str, Any]) -> Tensor:
    if not any(isinstance(p, _MaskPartial) for p in decision.outputs[0]):
        return call.face(*args, **kwargs)
    weight, indices, padding, *rest = args
    rows, offset = compute_local_shape_and_global_offset(call.tensors[0].shape, call.mesh, decision.inputs[0])
    own = indices - offset[0]
    missing = (own < 0) | (own >= rows[0])
    if not rows[0]:
        return weight.new_zeros((*indices.shape, weight.shape[1])) + weight.sum()
    padding = padding - offset[0] if padding >= 0 and 0 <= padding - offset[0] < rows[0] else -1
    found = call.face(weight, own.masked_fill(missing, 0), padding, *rest, **kwargs)
    return found.masked_fill(missing.unsqueeze(-1), 0)


# -- products -------------------------------------------------------------------------------------------------------------------------


@functools.cache
def equation(text: str) -> Rule:
    """Make the rule of a sum of products, written like einsum; operands whose letters begin with + are added to it."""
    left, right = text.split("->")
    terms = left.split(",")

    def ways(call: Any) -> Ways:
        bound = list(call.op.bind(call.args, call.kwargs).values())
        operands: list[tuple[str, bool]] = []
        for value, term in zip(bound, terms):
            if type(value) is Place:
                rank = call.tensors[value.index].ndim
                operands.append((_expand_ellipsis(term.lstrip("+"), rank), term.startswith("+")))
        out = _expand_ellipsis(right, len(call.metas()[0].shape))
        sizes = [tuple(t.shape) for t in call.tensors]
        found: list[tuple] = []
        for letter in dict.fromkeys("".join(names for names, _ in operands)):
            summed = letter not in out
            ins: list[Any] = []
            for (names, added), shape in zip(operands, sizes):
                if letter in names:
                    d = names.index(letter)
                    ins.append(d if shape[d] != 1 or not added else None)
                else:
                    ins.append(Partial() if added and summed else None)
            found.append((tuple(ins), Partial() if summed else out.index(letter)))
        for k, (_, added) in enumerate(operands):
            for kind in () if added else Partial.LINEAR_REDUCE_OPS:
                waits = tuple(Partial(kind) if i == k or a else None for i, (_, a) in enumerate(operands))
                found.append((waits, Partial(kind)))
        return Ways(found, free=True)

    return ways


def _expand_ellipsis(term: str, rank: int) -> str:
    """Return the letters of all dimensions; those covered by ... are numbered from the last."""
    if "..." not in term:
        return term[-rank:] if rank else ""
    before, after = term.split("...")
    count = rank - len(before) - len(after)
    return before + "ABCDEFGHIJKLMNOP"[:count][::-1] + after


EQUATIONS.append(equation)


@rule("convolution")
def convolution(call: Any) -> Ways:
    """Rule of convolutions: the batch may be sharded and, without groups, channels of the result or of the argument."""
    bound = call.op.bind(call.args, call.kwargs)
    biased = len(call.tensors) == 3
    ways: list[tuple] = [((0, None, None)[: len(call.tensors)], 0)]
    if getattr(bound["window"], "groups", 1) == 1:
        ways.append(((None, 0, 0)[: len(call.tensors)], 1))
        ways.append(((1, 1, Partial()) if biased else (1, 1), Partial()))
    return Ways(ways)


@rule("attention")
def attention(call: Any) -> Ways:
    """Rule of attention: batch and heads may be sharded."""
    rank = call.tensors[0].ndim
    ways: list[tuple] = []
    for d in range(rank - 2):
        ins = []
        for t in call.tensors:
            own = d - (rank - t.ndim)
            ins.append(own if own >= 0 and t.shape[own] != 1 else None)
        ways.append((tuple(ins), d))
    return Ways(ways)


@rule("scores")
@rule("loss")
def loss(call: Any) -> Ways:
    """Rule of losses of scores (N, C, ...) and classes (N, ...): samples are independent; summed losses are partial sums."""
    bound = call.op.bind(call.args, call.kwargs)
    scores, classes = call.tensors[:2]
    rest = (None,) * (len(call.tensors) - 2)
    ways: list[tuple] = []
    for d in range(classes.ndim):
        own = d if d == 0 and scores.ndim > 1 else d + 1
        if bound["reduction"] == "none":
            ways.append(((own, d, *rest), d))
        elif bound["reduction"] == "sum" or not bound.get("smoothing"):
            ways.append(((own, d, *rest), Partial()))
    of_parts = losses.of_parts
    if of_parts is None:
        return Ways(ways, compute=_share_of_mean if bound["reduction"] == "mean" else None)
    axis = 0 if scores.ndim == 1 else 1
    if not any(p.is_shard(axis) for p in scores.placements):
        raise ValueError(f"loss_parallel: expected scores that are cut along their classes, got {scores.placements}")
    return Ways([((axis, None, *rest), None)], compute=of_parts)


def _share_of_mean(call: Any, decision: Any, args: tuple, kwargs: dict[str, Any]) -> Tensor:
    """Return the contribution of this rank's samples to the mean over all of them."""
    waits = [i for i, p in enumerate(decision.outputs[0]) if p.is_partial()]
    if not waits:
        return call.face(*args, **kwargs)
    bound = call.op.bind(args, kwargs)
    spread = call.tensors[1]
    known = all(spread.placements[i].is_replicate() for i in waits)  # then every rank can count all samples
    target = spread._local_tensor if known else bound["target"]
    counted = target != bound["ignore_index"]
    weight = bound["weight"]
    total = counted.sum() if weight is None else (weight[target.where(counted, 0)] * counted).sum()
    for i in () if known else waits:
        total = funcol.all_reduce(total, "sum", (call.mesh, i), now=True)
    return call.face(*(bound | {"reduction": "sum"}).values()) / total


class _Losses(threading.local):
    """Function that computes losses of scores sharded along the classes, set inside `loss_parallel`."""

    of_parts: Callable | None = None


losses = _Losses()
