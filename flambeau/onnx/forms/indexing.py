"""Operators that pick elements by their places, and those that put elements there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau

from ..builder import LARGEST, Absent, Builder, Value
from ..registry import aten, form
from .comparisons import compare, truth
from .creation import filled, full_like
from .pointwise import broadcast, div
from .shapes import cat, permute, unsqueeze


def slice_(g: Builder, self: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    start = 0 if start is None else start
    end = LARGEST if end is None else end
    if isinstance(start, int) and start == 0 and isinstance(end, int) and end == LARGEST and step == 1:
        return self
    return g.slice(self, [dim % max(self.rank or 1, 1)], [start], [end], [step])


def select(g: Builder, self: Value, dim: int, index: Any) -> Value:
    dim %= max(self.rank or 1, 1)
    place = g.number(index, flambeau.int64)
    shape = None if self.shape is None else [s for i, s in enumerate(self.shape) if i != dim]
    if self.constant is not None and place.constant is not None:
        return g.constant(np.take(self.constant, int(place.constant), axis=dim))
    return g.op("Gather", self, place, axis_i=dim).known(self.dtype, shape)


@form(aten.embedding_bag)
def embedding_bag(
    g: Builder, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Value, ...]:  # fmt: skip
    indices, offsets = (g.cast(v, flambeau.int64) for v in (indices, offsets))
    starts = g.slice(offsets, [0], [0], [-1]) if include_last_offset else offsets
    places = g.range(0, g.size(indices, 0), 1, flambeau.int64)
    begun = g.op("Not", g.op("Less", g.unsqueeze(places, [1]), g.unsqueeze(starts, [0]))).known(
        flambeau.bool, (None, None)
    )
    bag = g.arithmetic("Sub", g.reduce("ReduceSum", g.cast(begun, flambeau.int64), [1], False), 1)  # of each index
    numbers = g.range(0, g.size(starts, 0), 1, flambeau.int64)
    inside = g.op("Equal", g.unsqueeze(numbers, [1]), g.unsqueeze(bag.known(flambeau.int64, (None,)), [0]))
    if padding_idx is not None:
        row = padding_idx % weight.shape[0]
        inside = g.op("And", inside, g.op("Not", g.op("Equal", indices, g.number(row, flambeau.int64))))
    inside.known(flambeau.bool, (starts.shape[0], indices.shape[0]))
    rows = g.op("Gather", weight, indices, axis_i=0).known(weight.dtype, (indices.shape[0], weight.shape[1]))
    shape = (starts.shape[0], weight.shape[1])
    share = g.cast(inside, weight.dtype)
    if mode == 2:
        low = g.op("Where", g.unsqueeze(inside, [2]), g.unsqueeze(rows, [0]), g.number(-math.inf, weight))
        most = g.reduce(
            "ReduceMax", low.known(weight.dtype, (starts.shape[0], indices.shape[0], weight.shape[1])), [1], False
        )
        made = g.op("Where", g.op("IsInf", most), g.number(0, weight), most)  # an empty bag is zeros
    else:
        if per_sample_weights is not None:
            rows = g.op("Mul", rows, g.unsqueeze(per_sample_weights, [1])).known(rows.dtype, rows.shape)
        made = g.op("MatMul", share, rows)
        if mode == 1:
            count = g.reduce("ReduceSum", share, [1], True)
            made = g.op("Div", made, g.op("Max", count, g.number(1, weight)))
    return made.known(weight.dtype, shape), *(Absent("what embedding_bag keeps for its gradient") for _ in range(3))


def gather(g: Builder, self: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    index = g.cast(index, flambeau.int64)
    if self.rank == 0:
        return g.expand(self, g.sizes(index)) if index.rank else self
    if g.opset < 11:
        raise NotImplementedError("gather needs opset 11 or later")
    if index.rank == 0:
        return g.squeeze(
            g.op("GatherElements", self, g.unsqueeze(index, [0]), axis_i=dim % self.rank).known(self.dtype, (1,)), [0]
        )
    return g.op("GatherElements", self, index, axis_i=dim % self.rank).known(self.dtype, index.shape)


@form(aten.take_along_dim)
def take_along_dim(g: Builder, self: Value, indices: Value, dim: int | None = None) -> Value:
    if dim is None:
        return gather(
            g,
            g.reshape(self, [-1]).known(self.dtype, (None,)),
            0,
            g.reshape(indices, [-1]).known(indices.dtype, (None,)),
        )
    dim %= self.rank
    if any(not isinstance(s, int) for s in (*self.shape, *indices.shape)):
        return gather(g, self, dim, indices)
    both = [max(a, b) if a and b else 0 for a, b in zip(self.shape, indices.shape)]
    wide = [s if d == dim else both[d] for d, s in enumerate(self.shape)]
    many = [s if d == dim else both[d] for d, s in enumerate(indices.shape)]
    return gather(g, g.expand(self, wide), dim, g.expand(indices, many))


@form(aten.take)
def take(g: Builder, self: Value, index: Value) -> Value:
    flat = g.reshape(self, [-1])
    return g.op("Gather", flat, index, axis_i=0).known(self.dtype, index.shape)


def nonzero_rows(g: Builder, x: Value) -> Value:
    found = g.op("NonZero", truth(g, x)).known(flambeau.int64, (x.rank, None))
    return g.op("Transpose", found, perm_i=[1, 0]).known(flambeau.int64, (None, x.rank))


def nonzero_columns(g: Builder, x: Value) -> list[Value]:
    found = g.op("NonZero", truth(g, x)).known(flambeau.int64, (x.rank, None))
    return [select(g, found, 0, d) for d in range(x.rank or 0)]


@form(aten.nonzero, aten.argwhere)
def nonzero(g: Builder, self: Value) -> Value:
    if self.rank == 0:  # as many rows as there are places, of no numbers
        rows = nonzero_rows(g, g.unsqueeze(self, [0]))
        return g.slice(rows, [1], [0], [0])
    return nonzero_rows(g, self)


@form(aten.nonzero_static)
def nonzero_static(g: Builder, self: Value, size: int, fill_value: int = -1) -> Value:
    rest = filled(g, [size, self.rank or 0], fill_value, flambeau.int64)
    rows = g.op("Concat", nonzero(g, self), rest, axis_i=0).known(flambeau.int64, (None, self.rank))
    return g.slice(rows, [0], [0], [size])


@form(aten.masked_select)
def masked_select(g: Builder, self: Value, mask: Value) -> Value:
    x, m = self, truth(g, mask)
    if not x.rank and not m.rank:
        x, m = g.unsqueeze(x, [0]), g.unsqueeze(m, [0])
    if x.shape != m.shape:
        size = g.op(
            "Shape",
            g.op(
                "Add", g.cast(m, flambeau.int32), g.op("ConstantOfShape", g.shape_of(x), value_t=np.zeros(1, np.int32))
            ),
        )
        x, m = (
            g.op("Expand", v, size).known(v.dtype, x.shape if (x.rank or 0) >= (m.rank or 0) else m.shape)
            for v in (x, m)
        )
    return g.op("GatherND", x, nonzero_rows(g, m)).known(self.dtype, (None,))


def _whole(g: Builder, x: Value, indices: list[Value | None]) -> tuple[list[Value | None], list[Value]]:
    """Indices with masks replaced by the places where they hold."""
    out: list[Value | None] = []
    for index in indices:
        if index is not None and index.dtype in (flambeau.bool, flambeau.uint8):
            out += nonzero_columns(g, index)
        else:
            out.append(None if index is None else g.cast(index, flambeau.int64))
    return out, [i for i in out if i is not None]


def _counted(g: Builder, x: Value, index: Value, dim: int) -> Value:
    """Places from 0: GatherND knows negative ones, ScatterND's users may not."""
    if index.constant is not None and (index.constant >= 0).all():
        return index
    size = g.number(g.size(x, dim), flambeau.int64)
    low = g.op("Less", index, g.constant(0, flambeau.int64))
    return g.op("Where", low, g.op("Add", index, size), index).known(flambeau.int64, index.shape)


def _spread(g: Builder, x: Value, indices: list[Value | None]) -> tuple[Value, Value, list[int], Any]:
    """The indexed dimensions of x first, and the places as rows: (x turned, places, order, shape of the places)."""
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


@form(aten.index_fill)
def index_fill(g: Builder, self: Value, dim: int, index: Value, value: Any) -> Value:
    if not self.rank:
        return g.squeeze(index_fill(g, g.unsqueeze(self, [0]), 0, index, value), [0])
    index = g.unsqueeze(index, [0]) if index.rank == 0 else index
    indices: list[Value | None] = [None] * (dim % max(self.rank or 1, 1)) + [index]
    return index_put(g, self, indices, g.number(value, self))


@form(aten.index_copy, aten.index_add)
def index_copy(g: Builder, self: Value, dim: int, index: Value, source: Value, alpha: Any = 1, name: str = "") -> Value:
    if not self.rank:
        source = source if source.rank else g.unsqueeze(source, [0])
        return g.squeeze(index_copy(g, g.unsqueeze(self, [0]), 0, index, source, alpha, name), [0])
    dim %= max(self.rank or 1, 1)
    indices: list[Value | None] = [None] * dim + [g.unsqueeze(index, [0]) if index.rank == 0 else index]
    if alpha != 1:
        source = g.op("Mul", source, g.number(alpha, source)).known(source.dtype, source.shape)
    return index_put(g, self, indices, source, accumulate=name.endswith("add"))


_REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


@form(aten.scatter, aten.scatter_reduce)
def scatter(
    g: Builder, self: Value, dim: int, index: Value, src: Any = None, value: Any = None, reduce: str | None = None,
    include_self: bool = True, name: str = "",
) -> Value:  # fmt: skip
    if name.endswith("_add"):
        reduce = "add"
    if reduce == "mean":
        return _scattered_mean(g, self, dim, index, src, include_self)
    if not include_self:
        self = scatter(g, self, dim, index, value=_neutral(_REDUCTIONS[str(reduce)], self.dtype))
    source = g.number(src if src is not None else value, self.dtype)
    if self.rank == 0:
        return g.squeeze(
            scatter(g, g.unsqueeze(self, [0]), 0, g.unsqueeze(index, [0]), g.unsqueeze(source, [0]), reduce=reduce), [0]
        )
    if source.rank == 0:
        source = g.expand(source, g.sizes(index))
    elif source.shape != index.shape:  # only as many as there are places
        source = g.slice(source, list(range(index.rank)), [0] * index.rank, g.sizes(index))
    kind = "ScatterElements" if g.opset >= 11 else "Scatter"
    extra = {} if reduce is None else {"reduction_s": _REDUCTIONS[reduce]}
    if extra and g.opset < (16 if extra["reduction_s"] in ("add", "mul") else 18):
        raise NotImplementedError(f"scatter with {reduce!r} needs opset 16 (sum, prod) or 18")
    return g.op(kind, self, index, source, axis_i=dim % self.rank, **extra).known(self.dtype, self.shape)


def _neutral(kind: str, dtype: Any) -> Any:
    """What changes nothing."""
    if kind in ("add", "mul"):
        return int(kind == "mul")
    info = flambeau.finfo(dtype) if dtype.is_floating_point else flambeau.iinfo(dtype)
    return info.min if kind == "max" else info.max


def _scattered_mean(g: Builder, x: Value, dim: int, index: Value, src: Value, include_self: bool) -> Value:
    total = scatter(g, x, dim, index, src, reduce="sum", include_self=include_self)
    own = full_like(g, x, int(include_self))
    count = scatter(g, own, dim, index, full_like(g, src, 1, x.dtype), reduce="sum")
    least = g.op("Max", count, g.number(1, count)).known(x.dtype, x.shape)
    return div(g, total, least, None if x.dtype.is_floating_point else "floor")


@form(aten.put)
def put(g: Builder, self: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    flat = g.reshape(self, [-1])
    places: list[Value | None] = [g.reshape(index, [-1])]
    made = index_put(g, flat, places, g.reshape(source, [-1]), accumulate)
    return g.op("Reshape", made, g.shape_of(self)).known(self.dtype, self.shape)


@form(aten.max_unpool2d, aten.max_unpool3d)
def max_unpool(g: Builder, self: Value, indices: Value, output_size: Any) -> Value:
    spatial = len(output_size)
    lead = [g.size(self, d) for d in range(self.rank - spatial)]
    total = math.prod(output_size)
    base = filled(g, [*lead, total], 0, self.dtype)
    rows = [g.reshape(v, [*lead, -1]).known(v.dtype, (*self.shape[:-spatial], None)) for v in (indices, self)]
    made = g.op("ScatterElements", base, *rows, axis_i=len(lead)).known(self.dtype, (*self.shape[:-spatial], total))
    return g.reshape(made, [*lead, *output_size])


@form(aten.isin)
def isin(
    g: Builder, elements: Any = None, test_elements: Any = None, test_element: Any = None, element: Any = None, invert: bool = False,
    assume_unique: bool = False,
) -> Value:  # fmt: skip
    x = g.value(elements if elements is not None else element)
    among = g.value(test_elements if test_elements is not None else test_element)
    places = g.reshape(among, [-1]).known(among.dtype, (None,))
    equal = g.cast(compare(g, "Equal", g.unsqueeze(x, [x.rank]), places), flambeau.int32)
    found = g.cast(g.reduce("ReduceMax", equal.known(flambeau.int32, (*x.shape, None)), [x.rank], False), flambeau.bool)
    return g.op("Not", found).known(flambeau.bool, x.shape) if invert else found


@form(aten.masked_scatter)
def masked_scatter(g: Builder, self: Value, mask: Value, source: Value) -> Value:
    if (mask.rank or 0) > (self.rank or 0) or mask.shape != self.shape and broadcast(self, mask) != self.shape:
        self = g.op("Expand", self, g.shape_of(mask)).known(self.dtype, mask.shape)
    m = g.expand(truth(g, mask), g.sizes(self))
    rows = nonzero_rows(g, m)
    flat = g.reshape(source, [-1]).known(source.dtype, (None,))
    count = g.op("Shape", rows)
    first = g.op(
        "Slice",
        flat,
        g.constant(np.array([0])),
        g.op("Gather", count, g.constant(np.array([0])), axis_i=0),
        g.constant(np.array([0])),
    )
    return g.op("ScatterND", self, rows, first).known(self.dtype, self.shape)


@form(aten.one_hot)
def one_hot(g: Builder, self: Value, num_classes: int = -1) -> Value:
    if self.rank == 0:
        return g.squeeze(one_hot(g, g.unsqueeze(self, [0]), num_classes), [0])
    count: Any = num_classes
    if num_classes == -1:
        count = g.arithmetic("Add", g.reduce("ReduceMax", self, None, False), 1)
    made = g.op("OneHot", self, g.ints([count]), g.constant(np.array([0, 1])), axis_i=-1)
    return made.known(flambeau.int64, [*self.shape, num_classes if num_classes != -1 else None])


@form(aten._unique2, aten.unique_dim)
def unique(
    g: Builder,
    self: Value,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    where = {} if dim is None else {"axis_i": dim}
    values, _, inverse, counts = g.op("Unique", self, sorted_i=1, outputs=4, **where)
    values.known(
        self.dtype, (None,) if dim is None else [None if i == dim % self.rank else s for i, s in enumerate(self.shape)]
    )
    inverse.known(flambeau.int64, (None,))
    if dim is None and self.rank != 1:
        inverse = g.op("Reshape", inverse, g.shape_of(self)).known(flambeau.int64, self.shape)
    return values, inverse, counts.known(flambeau.int64, (None,))


@form(aten.bucketize, aten.searchsorted)
def bucketize(
    g: Builder, self: Any = None, boundaries: Any = None, out_int32: bool = False, right: bool = False, sorted_sequence: Any = None,
    side: Any = None, sorter: Any = None,
) -> Value:  # fmt: skip
    edges = boundaries if boundaries is not None else sorted_sequence
    if sorter is not None:
        edges = g.op("GatherElements", edges, g.cast(sorter, flambeau.int64), axis_i=-1).known(edges.dtype, edges.shape)
    right = right or side == "right"
    x = g.unsqueeze(g.number(self, edges.dtype), [(self.rank if isinstance(self, Value) else 0) or 0])
    if edges.rank > 1:  # each sequence beside its own values
        edges = g.unsqueeze(edges, [-2])
    below = compare(g, "Less" if not right else "LessOrEqual", edges, x)
    dtype = flambeau.int32 if out_int32 else flambeau.int64
    return g.reduce("ReduceSum", g.cast(below, dtype), [-1 % (x.rank or 1)], False)


# -- padding ---------------------------------------------------------------------------------------------------------------------


def _negative(n: Any) -> bool:
    return isinstance(n, int) and n < 0


def padded(g: Builder, x: Value, pads: Any, mode: str = "constant", value: Any = 0) -> Value:
    """Pads as PyTorch lists them: last dimension first, before and after."""
    rank = x.rank or 0
    full = list(pads) + [0] * (2 * rank - len(pads))
    before, after = full[0::2][::-1], full[1::2][::-1]
    shape = [
        s + b + a if all(isinstance(n, int) for n in (s, b, a)) else None
        for s, b, a in zip(x.shape or (), before, after)
    ]
    if mode == "edge":  # what lies beyond is the nearest element, also where the rest is cut off
        for d, (b, a) in enumerate(zip(before, after)):
            size: Any = x.shape[d] if x.shape is not None else None
            if (_negative(b) or _negative(a)) and all(isinstance(n, int) for n in (size, b, a)):
                places = np.clip(np.arange(size + b + a) - b, 0, size - 1)
                x = g.op("Gather", x, g.constant(places), axis_i=d).known(
                    x.dtype, [len(places) if i == d else n for i, n in enumerate(x.shape)]
                )
                before[d] = after[d] = 0
    cut = [(d, b, a) for d, (b, a) in enumerate(zip(before, after)) if _negative(b) or _negative(a)]
    for d, b, a in cut:  # engines take negative pads for constants only, if at all
        x = g.slice(x, [d], [-b if _negative(b) else 0], [a if _negative(a) else LARGEST])
    before, after = ([0 if _negative(n) else n for n in ns] for ns in (before, after))
    if all(isinstance(n, int) and n == 0 for n in (*before, *after)):
        return x.known(x.dtype, shape)
    if mode == "wrap":
        for d, (b, a) in enumerate(zip(before, after)):
            if b or a:
                size = g.size(x, d)
                left = [g.slice(x, [d], [g.arithmetic("Sub", size, b)], [size])] if b else []
                x = cat(g, [*left, x, *([g.slice(x, [d], [0], [a])] if a else [])], d)
        return x.known(x.dtype, shape)
    kind = x.dtype == flambeau.bool
    y = g.cast(x, flambeau.int32) if kind else x
    if g.opset < 11:
        made = g.op("Pad", y, pads_i=before + after, mode_s=mode, **({"value_f": value} if mode == "constant" else {}))
    elif mode == "constant":
        made = g.op("Pad", y, g.ints(before + after), g.number(value, y), mode_s=mode)
    else:
        made = g.op("Pad", y, g.ints(before + after), mode_s=mode)
    made.known(y.dtype, shape)
    return g.cast(made, flambeau.bool) if kind else made


@form(aten.constant_pad_nd)
def constant_pad_nd(g: Builder, self: Value, pad: Any, value: Any = 0) -> Value:
    return padded(g, self, pad, "constant", value)


@form(aten.pad)
def pad(g: Builder, self: Value, pad: Any, mode: str = "constant", value: Any = None) -> Value:
    words = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    return padded(g, self, pad, words[mode], 0 if value is None else value)


@form(aten.reflection_pad1d, aten.reflection_pad2d, aten.reflection_pad3d)
def reflection_pad(g: Builder, self: Value, padding: Any) -> Value:
    return padded(g, self, padding, "reflect")


@form(aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d)
def replication_pad(g: Builder, self: Value, padding: Any) -> Value:
    return padded(g, self, padding, "edge")


def places_of(g: Builder, x: Value) -> Value:
    """The number of every element, in a tensor of x's shape: views of it tell which elements a view of x has."""
    if x.shape is not None and all(isinstance(s, int) for s in x.shape):
        return g.constant(np.arange(math.prod(x.shape), dtype=np.int64).reshape(x.shape))
    flat = g.range(0, g.numel(x), 1, flambeau.int64)
    return g.op("Reshape", flat, g.shape_of(x)).known(flambeau.int64, x.shape)


def put_at(g: Builder, x: Value, places: Value, values: Value) -> Value:
    """x with the elements at these places (numbers of elements) replaced."""
    flat = g.reshape(x, [-1]).known(x.dtype, (None,))
    rows = g.unsqueeze(g.reshape(places, [-1]).known(flambeau.int64, (None,)), [1])
    new = g.reshape(g.cast(values, x.dtype), [-1])
    made = g.op("ScatterND", flat, rows, new)
    return g.op("Reshape", made, g.shape_of(x)).known(x.dtype, x.shape)


__all__ = ["index", "index_put", "padded", "places_of", "put_at", "select", "slice_", "unsqueeze"]
