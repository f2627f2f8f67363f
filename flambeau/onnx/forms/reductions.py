"""Operators that make fewer elements of many, and those that run along a dimension."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau

from ...core.dtype import dtype as DType  # noqa: N812
from ..builder import Builder, Value
from ..registry import aten, form
from .comparisons import compare, truth


def dims_of(x: Value, dim: Any) -> list[int] | None:
    """Dimensions as a list of numbers from 0; None for all."""
    if dim is None or dim == []:
        return None
    dims = [dim] if isinstance(dim, int) else list(dim)
    rank = max(x.rank or 1, 1)
    return [d % rank for d in dims]


def _reduced(g: Builder, kind: str, x: Value, dim: Any, keepdim: bool) -> Value:
    if x.rank == 0:
        return x
    return g.reduce(kind, x, dims_of(x, dim), keepdim)


def _summed_dtype(x: Value, dtype: DType | None) -> DType:
    if dtype is not None:
        return dtype
    return x.dtype if x.dtype.is_floating_point else flambeau.int64


def sum_(g: Builder, self: Value, dim: Any = None, keepdim: bool = False, dtype: DType | None = None) -> Value:
    return _reduced(g, "ReduceSum", g.cast(self, _summed_dtype(self, dtype)), dim, keepdim)


@form(aten.nansum)
def nansum(g: Builder, self: Value, dim: Any = None, keepdim: bool = False, dtype: DType | None = None) -> Value:
    x = g.op("Where", g.op("IsNaN", self), g.number(0, self), self).known(self.dtype, self.shape)
    return sum_(g, x, dim, keepdim, dtype)


@form(aten.mean)
def mean(g: Builder, self: Value, dim: Any = None, keepdim: bool = False, dtype: DType | None = None) -> Value:
    return _reduced(g, "ReduceMean", self if dtype is None else g.cast(self, dtype), dim, keepdim)


@form(aten.max, aten.min)
def max_(g: Builder, self: Value, dim: Any = None, keepdim: bool = False, other: Any = None, name: str = "") -> Any:
    biggest = name.endswith("max")
    if other is not None:
        x, y = self, other
        from .pointwise import _extreme  # noqa: PLC0415

        return _extreme(g, x, y, "aten::maximum" if biggest else "aten::minimum")
    if dim is None:
        return _reduced(g, "ReduceMax" if biggest else "ReduceMin", self, None, False)
    if self.rank == 0:
        return self, g.constant(0, flambeau.int64)
    dim = dim % self.rank
    values = g.reduce("ReduceMax" if biggest else "ReduceMin", self, [dim], keepdim)
    return values, _arg(g, "ArgMax" if biggest else "ArgMin", self, dim, keepdim)


def _arg(g: Builder, kind: str, x: Value, dim: int, keepdim: bool) -> Value:
    if x.dtype == flambeau.bool:
        x = g.cast(x, flambeau.int32)
    shape = None
    if x.shape is not None:
        shape = [1 if i == dim else s for i, s in enumerate(x.shape)]
        shape = shape if keepdim else [s for i, s in enumerate(shape) if i != dim]
    return g.op(kind, x, axis_i=dim, keepdims_i=int(keepdim)).known(flambeau.int64, shape)


@form(aten.aminmax)
def aminmax(g: Builder, self: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    return tuple(_reduced(g, kind, self, dim, keepdim) for kind in ("ReduceMin", "ReduceMax"))


def _count(g: Builder, x: Value, dims: list[int] | None) -> Any:
    if dims is None:
        return g.numel(x)
    total: Any = 1
    for d in dims:
        total = g.arithmetic("Mul", total, g.size(x, d))
    return total


def variance(g: Builder, x: Value, dim: Any, correction: Any, keepdim: bool) -> tuple[Value, Value]:
    dims = dims_of(x, dim)
    if not x.rank:
        dims, keepdim = None, True
    centre = g.reduce("ReduceMean", x, dims, True) if x.rank else x
    off = g.op("Sub", x, centre).known(x.dtype, x.shape)
    spread = g.op("Mul", off, off).known(x.dtype, x.shape)
    if not correction:
        made = g.reduce("ReduceMean", spread, dims, keepdim) if x.rank else spread
    else:
        count = _count(g, x, dims)
        total = g.reduce("ReduceSum", spread, dims, keepdim) if x.rank else spread
        if isinstance(count, int):
            rest = g.number(max(count - correction, 0), x.dtype)
        else:
            rest = g.op(
                "Max", g.op("Sub", g.number(count, x.dtype), g.number(correction, x.dtype)), g.number(0, x.dtype)
            )
        made = g.op("Div", total, rest).known(x.dtype, total.shape)
    return made, centre if keepdim else g.reduce("ReduceMean", x, dims, False)


def _correction(dim: Any, unbiased: Any, correction: Any) -> tuple[Any, Any]:
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, unbiased = None, dim
    if correction is not None:
        return dim, correction
    return dim, int(True if unbiased is None else unbiased)


@form(aten.var, aten.std, aten.var_mean, aten.std_mean)
def var(
    g: Builder,
    self: Value,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    correction: Any = None,
    name: str = "",
) -> Any:
    dim, correction = _correction(dim, unbiased, correction)
    spread, centre = variance(g, self, dim, correction, keepdim)
    if "std" in name:
        spread = g.op("Sqrt", spread).known(spread.dtype, spread.shape)
    return (spread, centre) if name.endswith("_mean") else spread


def vector_norm(g: Builder, x: Value, order: Any, dim: Any, keepdim: bool) -> Value:
    if x.rank == 0 and order != 0:
        return g.op("Abs", x).known(x.dtype, x.shape)
    if order in (1, 2):
        return _reduced(g, f"ReduceL{int(order)}", x, dim, keepdim)
    size = g.op("Abs", x).known(x.dtype, x.shape)
    if order == math.inf:
        return _reduced(g, "ReduceMax", size, dim, keepdim)
    if order == -math.inf:
        return _reduced(g, "ReduceMin", size, dim, keepdim)
    if order == 0:
        return _reduced(g, "ReduceSum", g.cast(g.cast(x, flambeau.bool), x.dtype), dim, keepdim)
    power = g.op("Pow", size, g.number(order, x)).known(x.dtype, x.shape)
    total = _reduced(g, "ReduceSum", power, dim, keepdim)
    return g.op("Pow", total, g.number(1 / order, x)).known(x.dtype, total.shape)


@form(aten.norm, aten.frobenius_norm)
def norm(
    g: Builder, self: Value, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: DType | None = None
) -> Value:
    order = 2 if p is None or p == "fro" else p
    return vector_norm(g, self if dtype is None else g.cast(self, dtype), order, dim, keepdim)


@form(aten.linalg_vector_norm)
def linalg_vector_norm(
    g: Builder, self: Value, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: DType | None = None
) -> Value:
    return vector_norm(g, self if dtype is None else g.cast(self, dtype), ord, dim, keepdim)


@form(aten.linalg_norm)
def linalg_norm(
    g: Builder, self: Value, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: DType | None = None
) -> Value:
    x = self if dtype is None else g.cast(self, dtype)
    dims = list(range(x.rank)) if dim is None and ord is not None else [dim] if isinstance(dim, int) else dim
    if ord is None or len(dims) == 1:
        return vector_norm(g, x, 2 if ord is None else ord, dims, keepdim)
    return linalg_matrix_norm(g, x, ord, dims, keepdim)


@form(aten.linalg_matrix_norm)
def linalg_matrix_norm(
    g: Builder, self: Value, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, dtype: DType | None = None
) -> Value:
    x = self if dtype is None else g.cast(self, dtype)
    if ord == "fro":
        return vector_norm(g, x, 2, dim, keepdim)
    if ord not in (1, -1, math.inf, -math.inf):
        raise NotImplementedError(f"the matrix norm {ord}")
    rows, columns = (d % x.rank for d in dim)
    first, second = (rows, columns) if abs(ord) == 1 else (columns, rows)
    total = g.reduce("ReduceSum", g.op("Abs", x).known(x.dtype, x.shape), [first], True)
    made = g.reduce("ReduceMax" if ord > 0 else "ReduceMin", total, [second], True)
    return made if keepdim else g.squeeze(made, sorted((rows, columns)))


@form(aten.dist)
def dist(g: Builder, self: Value, other: Value, p: Any = 2) -> Value:
    from .pointwise import broadcast  # noqa: PLC0415

    off = g.op("Sub", self, other).known(self.dtype, broadcast(self, other))
    return vector_norm(g, off, p, None, False)


# -- along a dimension ----------------------------------------------------------------------------------------------------------


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


def _scanned(g: Builder, x: Value, dim: int, starts: list[Value], step: Callable, dtypes: list[Any]) -> list[Value]:
    """Run along a dimension: `step(inner, states, element)` gives the next states, then what to keep of each step."""
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
    """What a run along a dimension starts from."""
    first = g.op("Gather", x, g.constant(0, flambeau.int64), axis_i=dim)
    first.known(x.dtype, [s for i, s in enumerate(x.shape) if i != dim])
    return g.expand(g.constant(value, dtype), g.shape_of(first)).known(dtype, first.shape)


@form(aten.cumprod, since=9)
def cumprod(g: Builder, self: Value, dim: int, dtype: DType | None = None) -> Value:
    x = g.cast(self, _summed_dtype(self, dtype))
    if x.rank == 0 or 0 in x.shape:  # nothing to run over, on which onnxruntime's Scan divides by zero
        return x
    dim %= x.rank

    def step(inner: Builder, states: list[Value], element: Value) -> list[Value]:
        product = inner.op("Mul", states[0], element).known(x.dtype, element.shape)
        return [product, product]

    return _scanned(g, x, dim, [_start(g, x, dim, 1, x.dtype)], step, [x.dtype])[0]


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
    values, places = _scanned(g, self, dim, starts, step, [self.dtype, flambeau.int64])
    return values, places


@form(aten.nanmean)
def nanmean(g: Builder, self: Value, dim: Any = None, keepdim: bool = False, dtype: DType | None = None) -> Value:
    there = g.op("Not", g.op("IsNaN", self)).known(flambeau.bool, self.shape)
    count = _reduced(g, "ReduceSum", g.cast(there, self.dtype if dtype is None else dtype), dim, keepdim)
    total = nansum(g, self, dim, keepdim, dtype)
    return g.op("Div", total, count).known(total.dtype, total.shape)


@form(aten.median)
def median(g: Builder, self: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    if self.rank == 0:
        return self if dim is None else (self, g.constant(0, flambeau.int64))
    x = self if dim is not None else g.reshape(self, [-1])
    along = 0 if dim is None else dim % self.rank
    size = x.shape[along]
    if not isinstance(size, int):
        raise NotImplementedError("the median of a dimension whose size changes")
    found = kthvalue(g, x, (size + 1) // 2, along, keepdim)
    return found[0] if dim is None else found


def top_values(g: Builder, x: Value, k: Any, dim: int, largest: bool, sorted: bool = True) -> tuple[Value, Value]:
    shape = (
        None
        if x.shape is None
        else [(k if isinstance(k, int) else None) if i == dim else s for i, s in enumerate(x.shape)]
    )
    if g.opset < 10:
        if not largest:
            raise NotImplementedError("the smallest values need opset 11 or later")
        made = g.op("TopK", x, axis_i=dim, k_i=k, outputs=2)
    elif g.opset < 11:
        made = g.op("TopK", x, g.ints([k]), axis_i=dim, outputs=2)
    else:
        made = g.op("TopK", x, g.ints([k]), axis_i=dim, largest_i=int(largest), sorted_i=int(sorted), outputs=2)
    return made[0].known(x.dtype, shape), made[1].known(flambeau.int64, shape)


@form(aten.topk)
def topk(g: Builder, self: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if self.rank == 0:
        return self, g.constant(0, flambeau.int64)
    return top_values(g, self, k, dim % self.rank, largest, sorted)


@form(aten.sort)
def sort(g: Builder, self: Value, dim: int = -1, descending: bool = False, stable: Any = None) -> Any:
    if self.rank == 0:
        return self, g.constant(0, flambeau.int64)
    x = g.cast(self, flambeau.int32) if self.dtype == flambeau.bool else self
    values, places = top_values(g, x, g.size(self, dim), dim % self.rank, descending)
    return g.cast(values, self.dtype), places


@form(aten.argsort)
def argsort(g: Builder, self: Value, dim: int = -1, descending: bool = False, stable: Any = None) -> Value:
    return sort(g, self, dim, descending)[1]


@form(aten.kthvalue)
def kthvalue(g: Builder, self: Value, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    dim = dim % max(self.rank or 1, 1)
    values, places = top_values(g, self, k, dim, False)
    found = [g.slice(v, [dim], [k - 1], [k]) for v in (values, places)]
    return tuple(v if keepdim else g.squeeze(v, [dim]) for v in found)


@form(aten.count_nonzero)
def count_nonzero(g: Builder, self: Value, dim: Any = None) -> Value:
    return _reduced(g, "ReduceSum", g.cast(truth(g, self), flambeau.int64), dim, False)


@form(aten.equal)
def equal(g: Builder, self: Value, other: Value) -> Value:
    same = g.cast(compare(g, "Equal", self, other), flambeau.int32)
    return g.cast(g.reduce("ReduceMin", same, None, False), flambeau.bool)


@form(aten.bincount)
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
