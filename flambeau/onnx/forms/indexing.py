"""Operators that read or write elements by index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau

from ..builder import Builder, Value
from ..registry import aten, form


def select(g: Builder, self: Value, dim: int, index: Any) -> Value:
    dim %= max(self.rank or 1, 1)
    place = g.number(index, flambeau.int64)
    shape = None if self.shape is None else [s for i, s in enumerate(self.shape) if i != dim]
    if self.constant is not None and place.constant is not None:
        return g.constant(np.take(self.constant, int(place.constant), axis=dim))
    return g.op("Gather", self, place, axis_i=dim).known(self.dtype, shape)


@form(aten.index)
def index(g: Builder, self: Value, indices: list[Value | None]) -> Any:
    used = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(used) != 1 or used[0][1].dtype is flambeau.bool or self.shape is None:
        return NotImplemented
    (dim, place) = used[0]
    shape = [*self.shape[:dim], *(place.shape or ()), *self.shape[dim + 1 :]]
    return g.op("Gather", self, place, axis_i=dim).known(self.dtype, shape)


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
