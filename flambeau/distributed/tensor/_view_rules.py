"""Sharding rules of operators that only move elements: views, reshapes, concatenations, selections."""

from __future__ import annotations

from typing import Any

from ...core.device import device
from ...core.tensor import Tensor, empty_strided
from ._ops import _view_ops as maps
from ._rules import Ways, rule, shapes, waiting
from ._utils import compute_local_shape, compute_local_shape_and_global_offset
from .placement_types import Partial, _is_shard_like, _MaskPartial

_META = device("meta")


@rule("view")
def view(call: Any) -> Ways | None:
    """Sharding rule of views. Which dimensions a view keeps follows from its strides, with a distinct stride for each dimension of the
    argument."""
    t = call.tensors[0]
    shape = tuple(t.shape)
    step, strides = 1, []
    for n in reversed(shape):
        strides.append(step)
        step *= 2 * n + 3
    marks = tuple(reversed(strides))
    args, kwargs = call.filled([empty_strided(shape, marks, t.dtype, _META)])
    try:
        found = call.face(*args, **kwargs)
    except RuntimeError:  # other elements than the strides of a whole tensor would show
        return None
    results = found if isinstance(found, (tuple, list)) else (found,)
    ways: list[tuple] = []
    for d, n in enumerate(shape):
        outs = []
        for out in results:
            places = [j for j, (m, s) in enumerate(zip(out.shape, out._strides)) if s == marks[d] and m == n]
            outs.append(places[0] if len(places) == 1 else None)
        if None not in outs and outs:
            ways.append(((d,), tuple(outs)))
    return Ways(ways + waiting(call))


def _carried(call: Any, rule: maps.DimMap, strict: bool = True) -> Ways:
    """Return the combinations for a view that a dim map describes; with `strict` nothing may be redistributed."""
    t = call.tensors[0]
    sizes = tuple(call.mesh.size(i) for i in range(call.mesh.ndim))
    before, after = maps.propagate_shape_and_sharding(t.placements, tuple(t.shape), rule, sizes, strict)
    return Ways(exact=([tuple(before)], [tuple(after)]), compute=_reshaped)


def _reshaped(call: Any, decision: Any, args: tuple, kwargs: dict[str, Any]) -> Tensor:
    return args[0].reshape(compute_local_shape(decision.metas[0].shape, call.mesh, decision.outputs[0]))


@rule("reshape")
def reshape(call: Any) -> Ways:
    """Rule of reshapes: dimensions are joined and split in groups."""
    return _carried(call, maps.view_groups(tuple(call.tensors[0].shape), (tuple(call.metas()[0].shape),)))


@rule("squeeze")
def squeeze(call: Any) -> Ways:
    """Rule of squeeze: dimensions whose global size is one are removed; others stay, even if a rank's part has one element."""
    return _carried(call, maps.dim_squeeze(tuple(call.tensors[0].shape), *call.args[1:]))


@rule("repeat")
def repeat(call: Any) -> Ways:
    """Rule of repeat: dimensions that are not repeated may be sharded."""
    t = call.tensors[0]
    sizes = tuple(call.mesh.size(i) for i in range(call.mesh.ndim))
    mapped = maps.dim_repeat(t.ndim, call.args[1:])
    before, after = maps.propagate_shape_and_sharding(t.placements, tuple(t.shape), mapped, sizes)
    return Ways(exact=([tuple(before)], [tuple(after)]))


@rule("pairs")
def pairs(call: Any) -> Ways:
    """Rule of views of complex numbers as pairs and back: all dimensions but that of the pairs may be sharded."""
    t = call.tensors[0]
    count = min(t.ndim, len(call.metas()[0].shape))
    return Ways([((d,), d) for d in range(count)] + [way for way in waiting(call) if way[1].linear])


@rule("unbind")
def unbind(call: Any) -> Ways | None:
    """Rule of unbind, which returns a tensor for each index of a dimension: that one must not be sharded."""
    dim = int(call.op.bind(call.args, call.kwargs)["dim"]) % max(call.tensors[0].ndim, 1)
    if any(_is_shard_like(p) and p.dim == dim for p in call.tensors[0].placements):
        raise RuntimeError(
            f"Attempted to unbind along the sharded dimension {dim}. ",
            "It cannot be performed without redistribution, which is disallowed by the current operator.",
        )
    return view(call)


def sized(call: Any, decision: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments with the size of this rank's part of the result in place of the whole size."""
    size = compute_local_shape(decision.metas[0].shape, call.mesh, decision.outputs[0])
    return (args[0], size, *args[2:]), kwargs


@rule("expand")
def expand(call: Any) -> Ways | None:
    """Rule of views that take the size of the result as an argument."""
    found = view(call)
    return None if found is None else Ways(found.ways, sized)


@rule("cat")
def cat(call: Any) -> Ways:
    """Rule of concatenation along one dimension: the others may be sharded."""
    bound = call.op.bind(call.args, call.kwargs)
    rank = max(len(s) for s in shapes(call))
    new = len(call.metas()[0].shape) - rank  # a new dimension, in stack
    dim = int(bound["dim"]) % (rank + new)
    ways: list[tuple] = []
    for d in range(rank):
        if d != dim or new:
            ins = tuple(d if len(s) == rank else None for s in shapes(call))
            ways.append((ins, d + new if new and d >= dim else d))
    kinds = {p for t in call.tensors for p in t.placements if isinstance(p, Partial)}
    return Ways(ways + [((p,) * len(call.tensors), p) for p in sorted(kinds, key=repr)])


@rule("as_strided")
def as_strided(call: Any) -> Ways | None:
    """Sharding rule of as_strided: only calls that change nothing work on parts; others need the whole tensor."""
    t, bound = call.tensors[0], call.op.bind(call.args, call.kwargs)
    same = tuple(bound["size"]) == tuple(t.shape) and tuple(bound["stride"]) == tuple(t.stride())
    if not same or bound.get("storage_offset") not in (None, t.storage_offset()):
        return None
    return Ways(
        exact=([t.placements], [t.placements]), compute=lambda call, decision, args, kwargs: args[0].view_as(args[0])
    )


@rule("scattered")
def scattered(call: Any) -> Ways:
    """Rule of writing a tensor into a part of another: dimensions that are not named may be sharded in both."""
    bound = call.op.bind(call.args, call.kwargs)
    rank, source = (t.ndim for t in call.tensors)
    named = {int(bound[name]) % max(rank, 1) for name in ("dim", "dim1", "dim2") if name in bound}
    ways: list[tuple] = []
    for d in range(rank):
        if d not in named:
            own = d if source == rank else d - sum(1 for n in named if n < d)
            ways.append(((d, own), d))
    return Ways(ways + waiting(call))


@rule("places")
def places(call: Any) -> Ways:
    """Sharding rule of searches in sorted values: each value separately; the sorted values stay whole."""
    if len(call.tensors) != 2 or call.tensors[0].ndim != 1:
        return Ways()
    values = call.tensors[1]
    kinds = {p for p in values.placements if isinstance(p, Partial) and p.reduce_op in ("max", "min")}
    ways: list[tuple] = [((None, d), d) for d in range(values.ndim)]
    return Ways(ways + [((None, p), p) for p in sorted(kinds, key=repr)])


@rule("index_put")
def index_put(call: Any) -> Ways:
    """Rule of writing values at indices: partial sums may be written into partial sums."""
    first, *indices, values = call.tensors
    kinds = {p for p in first.placements if isinstance(p, Partial) and p.linear and p in values.placements}
    return Ways([((p, *(None,) * len(indices), p), p) for p in sorted(kinds, key=repr)])


@rule("pad")
def pad(call: Any) -> Ways:
    """Rule of padding: dimensions that are not padded may be sharded; padding with zeros also passes partial sums."""
    before, after = tuple(call.tensors[0].shape), tuple(call.metas()[0].shape)
    widths = list(call.op.bind(call.args, call.kwargs)["pad"])
    free = len(before) - len(widths) // 2
    kept = [d for d in range(len(before)) if d < free or not any(widths[2 * (len(before) - 1 - d) :][:2])]
    value = call.op.bind(call.args, call.kwargs).get("value")
    sums = [way for way in waiting(call) if way[1].linear] if not value else []
    return Ways([((d,), d) for d in kept if before[d] == after[d]] + sums)


@rule("gather")
def gather(call: Any) -> Ways:
    """Sharding rule of gather: by indices, by other dimensions of both, or by the table, of which each rank looks up its own part."""
    table, index = call.tensors
    dim = int(call.op.bind(call.args, call.kwargs)["dim"]) % max(table.ndim, 1)
    ways: list[tuple] = [((None, dim), dim)]
    ways += [((d, d), d) for d in range(table.ndim) if d != dim and table.shape[d] == index.shape[d]]
    if index.ndim and index.shape[dim] == 1:
        ways.append(((dim, None), _MaskPartial(offset_shape=table.shape, offset_dim=dim)))
    return Ways(ways, compute=_gathered)


def _gathered(call: Any, decision: Any, args: tuple, kwargs: dict[str, Any]) -> Tensor:
    if not any(isinstance(p, _MaskPartial) for p in decision.outputs[0]):
        return call.face(*args, **kwargs)
    table, dim, index = args
    sizes, offset = compute_local_shape_and_global_offset(call.tensors[0].shape, call.mesh, decision.inputs[0])
    own = index - offset[dim]
    missing = (own < 0) | (own >= sizes[dim])
    if not sizes[dim]:
        return table.new_zeros(index.shape) + table.sum()
    return call.face(table, dim, own.masked_fill(missing, 0), **kwargs).masked_fill(missing, 0)


@rule("index_select")
def index_select(call: Any) -> Ways:
    bound = call.op.bind(call.args, call.kwargs)
    rank = call.tensors[0].ndim
    dim = int(bound["dim"]) % max(rank, 1)
    ways: list[tuple] = [((d, None), d) for d in range(rank) if d != dim]
    if call.tensors[1].ndim == 1:
        ways.append(((None, 0), dim))
    return Ways(ways + [((p, None), p) for p in call.tensors[0].placements if isinstance(p, Partial)])
