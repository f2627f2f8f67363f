"""Operators along a dimension: reductions, scans, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau

from ...core.dtype import dtype as DType  # noqa: N812
from ..builder import Builder, Value
from ..registry import aten, form


def _softmax(g: Builder, kind: str, x: Value, dim: int) -> Value:
    if x.rank == 0:
        x1 = g.unsqueeze(x, [0])
        return g.squeeze(_softmax(g, kind, x1, 0), [0])
    wanted, dim = dim, dim % x.rank
    if g.opset >= 13 or dim == x.rank - 1:
        return g.op(kind, x, axis_i=dim if g.opset < 13 else wanted).known(x.dtype, x.shape)
    order = [i for i in range(x.rank) if i != dim]
    order.insert(x.rank - 1, dim)  # the old form works on the last dimensions together
    turned = g.op("Transpose", x, perm_i=order)
    back = [order.index(i) for i in range(x.rank)]
    return g.op("Transpose", g.op(kind, turned, axis_i=x.rank - 1), perm_i=back).known(x.dtype, x.shape)


@form(aten.softmax, aten._softmax, aten.special_softmax)
def softmax(g: Builder, self: Value, dim: int, dtype: DType | None = None, half_to_float: bool = False) -> Value:
    return _softmax(g, "Softmax", self if dtype is None else g.cast(self, dtype), dim)


@form(aten.log_softmax, aten._log_softmax, aten.special_log_softmax)
def log_softmax(g: Builder, self: Value, dim: int, dtype: DType | None = None, half_to_float: bool = False) -> Value:
    return _softmax(g, "LogSoftmax", self if dtype is None else g.cast(self, dtype), dim)


def _scan(g: Builder, x: Value, dim: int, starts: list[Value], step: Callable, dtypes: list[Any]) -> list[Value]:
    """Add a scan along a dimension: `step(inner, states, element)` returns the next states, then the outputs of each step."""
    inner = g.inner("step")
    for value in (*starts, x):
        shape = value.shape if value is not x else [s for i, s in enumerate(x.shape) if i != dim]
        inner.graph.inputs.append(Value("", value.dtype, shape))
    *states, element = inner.graph.inputs
    inner.graph.outputs = [inner.op("Identity", v).known(v.dtype, v.shape) for v in step(inner, states, element)]
    kept = len(dtypes)
    made = g.op(
        "Scan", *starts, x, body=inner.graph, num_scan_inputs_i=1, scan_input_axes_i=[dim], scan_output_axes_i=[dim] * kept,
        outputs=len(starts) + kept,
    )  # fmt: skip
    return [v.known(d, x.shape) for v, d in zip(made[len(starts) :], dtypes)]


def _start(g: Builder, x: Value, dim: int, value: Any, dtype: DType) -> Value:
    """Return the initial value of a scan along a dimension: `value` in the shape of one slice."""
    first = g.op("Gather", x, g.constant(0, flambeau.int64), axis_i=dim)
    first.known(x.dtype, [s for i, s in enumerate(x.shape) if i != dim])
    return g.expand(g.constant(value, dtype), g.shape_of(first)).known(dtype, first.shape)


@form(aten.cumprod, since=9)
def cumprod(g: Builder, self: Value, dim: int, dtype: DType | None = None) -> Value:
    x = g.cast(self, dtype or (self.dtype if self.dtype.is_floating_point else flambeau.int64))
    if x.rank == 0 or 0 in x.shape:  # nothing to run over, on which onnxruntime's Scan divides by zero
        return x
    dim %= x.rank

    def step(inner: Builder, states: list[Value], element: Value) -> list[Value]:
        product = inner.op("Mul", states[0], element).known(x.dtype, element.shape)
        return [product, product]

    return _scan(g, x, dim, [_start(g, x, dim, 1, x.dtype)], step, [x.dtype])[0]


@form(aten.cummax, aten.cummin, since=12)
def cummax(g: Builder, self: Value, dim: int, name: str = "") -> tuple[Value, Value]:
    if self.rank == 0:
        return self, g.constant(0, flambeau.int64)
    if 0 in self.shape:
        return self, g.cast(self, flambeau.int64)
    dim %= self.rank
    info = flambeau.finfo(self.dtype) if self.dtype.is_floating_point else flambeau.iinfo(self.dtype)
    worst = info.min if name.endswith("max") else info.max
    kind = "GreaterOrEqual" if name.endswith("max") else "LessOrEqual"

    def step(inner: Builder, states: list[Value], element: Value) -> list[Value]:
        best, at, now = states
        better = inner.op(kind, element, best)
        if self.dtype.is_floating_point:
            better = inner.op("Or", better, inner.op("IsNaN", element))
        new = inner.op("Where", better, element, best).known(self.dtype, element.shape)
        place = inner.op("Where", better, now, at).known(flambeau.int64, element.shape)
        return [
            new,
            place,
            inner.op("Add", now, inner.constant(1, flambeau.int64)).known(flambeau.int64, ()),
            new,
            place,
        ]

    starts = [
        _start(g, self, dim, worst, self.dtype),
        _start(g, self, dim, 0, flambeau.int64),
        g.constant(0, flambeau.int64),
    ]
    values, places = _scan(g, self, dim, starts, step, [self.dtype, flambeau.int64])
    return values, places


@form(aten.bincount, since=12)
def bincount(g: Builder, self: Value, weights: Any = None, minlength: int = 0) -> Value:
    most = g.reduce("ReduceMax", g.cast(self, flambeau.int64), [0], False)
    count = g.op("Max", g.arithmetic("Add", most, 1), g.constant(np.array(minlength, np.int64))).known(
        flambeau.int64, ()
    )
    numbers = g.unsqueeze(g.range(0, count, 1, flambeau.int64), [1])
    hit = g.op("Equal", numbers, g.unsqueeze(g.cast(self, flambeau.int64), [0])).known(flambeau.bool, (None, None))
    kind = flambeau.int64 if weights is None else weights.dtype if weights.dtype.is_floating_point else flambeau.float64
    hit = g.cast(hit, kind)
    if weights is not None:
        hit = g.op("Mul", hit, g.cast(weights, kind)).known(kind, (None, None))
    return g.reduce("ReduceSum", hit, [1], False)
