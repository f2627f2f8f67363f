"""Operators that read or write elements by index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau

from ..builder import Builder, Value
from ..registry import aten, form
from .pointwise import broadcast
from .shapes import permute


def select(g: Builder, self: Value, dim: int, index: Any) -> Value:
    dim %= max(self.rank or 1, 1)
    place = g.number(index, flambeau.int64)
    shape = None if self.shape is None else [s for i, s in enumerate(self.shape) if i != dim]
    if self.constant is not None and place.constant is not None:
        return g.constant(np.take(self.constant, int(place.constant), axis=dim))
    return g.op("Gather", self, place, axis_i=dim).known(self.dtype, shape)


def nonzero_columns(g: Builder, x: Value) -> list[Value]:
    found = g.op("NonZero", g.cast(x, flambeau.bool)).known(flambeau.int64, (x.rank, None))
    return [select(g, found, 0, d) for d in range(x.rank or 0)]


def _whole(g: Builder, x: Value, indices: list[Value | None]) -> tuple[list[Value | None], list[Value]]:
    """Return the indices with masks replaced by the positions of their true elements; and those that are not None."""
    out: list[Value | None] = []
    for index in indices:
        if index is not None and index.dtype in (flambeau.bool, flambeau.uint8):
            out += nonzero_columns(g, index)
        else:
            out.append(None if index is None else g.cast(index, flambeau.int64))
    return out, [i for i in out if i is not None]


def _counted(g: Builder, x: Value, index: Value, dim: int) -> Value:
    """Return an index with negative entries made non-negative: GatherND accepts negative ones, engines' ScatterND may not."""
    if index.constant is not None and (index.constant >= 0).all():
        return index
    size = g.number(g.size(x, dim), flambeau.int64)
    low = g.op("Less", index, g.constant(0, flambeau.int64))
    return g.op("Where", low, g.op("Add", index, size), index).known(flambeau.int64, index.shape)


def _spread(g: Builder, x: Value, indices: list[Value | None]) -> tuple[Value, Value, list[int], Any]:
    """Permute the indexed dimensions of x to the front: return (permuted x, indices as rows, permutation, shape of the indices)."""
    dims = [d for d, i in enumerate(indices) if i is not None]
    order = dims + [d for d in range(x.rank or 0) if d not in dims]
    turned = x if order == list(range(x.rank or 0)) else permute(g, x, order)
    found = [_counted(g, x, i, d) for d, i in enumerate(indices) if i is not None]
    shape = broadcast(*found)
    if len(found) > 1:
        if shape is not None and all(isinstance(s, int) for s in shape):
            found = [g.expand(i, list(shape)) for i in found]
        elif any(i.shape != shape for i in found) or shape is None:
            total = found[0]
            for other in found[1:]:
                total = g.op("Add", total, other)
            size = g.op("Shape", total)
            found = [g.op("Expand", i, size).known(i.dtype, shape) for i in found]
    places = [g.unsqueeze(i, [-1 if i.rank is None else i.rank]) for i in found]
    joined = (
        places[0]
        if len(places) == 1
        else g.op("Concat", *places, axis_i=-1 if places[0].rank is None else places[0].rank - 1)
    )
    return turned, joined.known(flambeau.int64, None if shape is None else (*shape, len(found))), order, shape


def _adjacent(dims: list[int]) -> bool:
    return dims == list(range(dims[0], dims[0] + len(dims)))


@form(aten.index)
def index(g: Builder, self: Value, indices: list[Value | None]) -> Value:
    whole, used = _whole(g, self, list(indices))
    if not used:
        return self
    dims = [d for d, i in enumerate(whole) if i is not None]
    if len(used) == 1:
        d, place = dims[0], used[0]
        shape = [*self.shape[:d], *(place.shape or ()), *self.shape[d + 1 :]]
        return g.op("Gather", self, place, axis_i=d).known(self.dtype, shape)
    turned, places, order, shape = _spread(g, self, whole)
    rest = [self.shape[d] for d in order[len(used) :]]
    made = g.op("GatherND", turned, places).known(self.dtype, None if shape is None else [*shape, *rest])
    if not _adjacent(dims) or dims[0] == 0 or shape is None:
        return made
    new, before = len(shape), dims[0]  # the places go where the indices stood
    return permute(g, made, [*range(new, new + before), *range(new), *range(new + before, made.rank)])


@form(aten.index_put)
def index_put(
    g: Builder, self: Value, indices: list[Value | None], values: Value, accumulate: bool = False, unsafe: bool = False
) -> Value:
    if (
        len(indices) == 1
        and indices[0] is not None
        and indices[0].dtype == flambeau.bool
        and values.rank == 0
        and not accumulate
    ):
        mask = indices[0]
        if (mask.rank or 0) < (self.rank or 0):
            mask = g.unsqueeze(mask, list(range(mask.rank, self.rank)))
        return g.op("Where", mask, g.cast(values, self.dtype), self).known(self.dtype, self.shape)
    whole, used = _whole(g, self, list(indices))
    dims = [d for d, i in enumerate(whole) if i is not None]
    turned, places, order, shape = _spread(g, self, whole)
    rest = [g.size(self, d) for d in order[len(used) :]]
    values = g.cast(values, self.dtype)
    moved = _adjacent(dims) and dims[0] > 0
    lead = None if shape is None else len(shape)
    if moved and lead is not None and (values.rank or 0) > 0:
        full = lead + len(rest)
        if values.rank < full:
            values = g.unsqueeze(values, list(range(full - values.rank)))
        before = dims[0]
        values = permute(g, values, [*range(before, before + lead), *range(before), *range(before + lead, full)])
    sizes = [g.size(places, d) for d in range(places.rank - 1)] if places.shape is not None else None
    if sizes is None:
        raise NotImplementedError("index_put with places of unknown rank")
    values = g.expand(values, [*sizes, *rest])
    extra = {}
    if accumulate:
        if g.opset < 16:
            raise NotImplementedError("index_put with accumulate needs opset 16 or later")
        extra = {"reduction_s": "add"}
    made = g.op("ScatterND", turned, places, values, **extra).known(self.dtype, turned.shape)
    back = [order.index(i) for i in range(len(order))]
    return made if order == back and order == list(range(len(order))) else permute(g, made, back)


@form(aten.one_hot)
def one_hot(g: Builder, self: Value, num_classes: int = -1) -> Value:
    if self.rank == 0:
        return g.squeeze(one_hot(g, g.unsqueeze(self, [0]), num_classes), [0])
    count: Any = num_classes
    if num_classes == -1:
        count = g.arithmetic("Add", g.reduce("ReduceMax", self, None, False), 1)
    made = g.op("OneHot", self, g.ints([count]), g.constant(np.array([0, 1])), axis_i=-1)
    return made.known(flambeau.int64, [*self.shape, num_classes if num_classes != -1 else None])


def places_of(g: Builder, x: Value) -> Value:
    """Return the linear index of every element, in a tensor of x's shape: views of it show which elements a view of x has."""
    if x.shape is not None and all(isinstance(s, int) for s in x.shape):
        return g.constant(np.arange(math.prod(x.shape), dtype=np.int64).reshape(x.shape))
    flat = g.range(0, g.numel(x), 1, flambeau.int64)
    return g.op("Reshape", flat, g.shape_of(x)).known(flambeau.int64, x.shape)


def put_at(g: Builder, x: Value, places: Value, values: Value) -> Value:
    """Return x with the elements at the linear indices `places` replaced."""
    flat = g.reshape(x, [-1]).known(x.dtype, (None,))
    rows = g.unsqueeze(g.reshape(places, [-1]).known(flambeau.int64, (None,)), [1])
    new = g.reshape(g.cast(values, x.dtype), [-1])
    made = g.op("ScatterND", flat, rows, new)
    return g.op("Reshape", made, g.shape_of(x)).known(x.dtype, x.shape)
