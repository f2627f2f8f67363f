"""Operators that change how elements are arranged, and those that make tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau

from ..builder import LARGEST, Builder, Value
from ..registry import aten, form
from .pointwise import promoted


def _wrapped(x: Value, dim: int, extra: int = 0) -> int:
    return dim % max((x.rank or 0) + extra, 1)


@form(aten.flatten)
def flatten(g: Builder, self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    if self.rank == 0:
        return g.reshape(self, [1])
    start, end = _wrapped(self, start_dim), _wrapped(self, end_dim)
    if start == end:
        return self
    if start == 1 and end == self.rank - 1:
        rest = self.shape[1:]
        fixed = all(isinstance(s, int) for s in rest)
        return g.op("Flatten", self, axis_i=1).known(self.dtype, (self.shape[0], math.prod(rest) if fixed else None))
    if all(isinstance(s, int) for s in self.shape):
        return g.reshape(self, [*self.shape[:start], math.prod(self.shape[start : end + 1]), *self.shape[end + 1 :]])
    sizes = [*(g.size(self, d) for d in range(start)), -1, *(g.size(self, d) for d in range(end + 1, self.rank))]
    return g.reshape(self, sizes)


def unsqueeze(g: Builder, self: Value, dim: int) -> Value:
    return g.unsqueeze(self, [_wrapped(self, dim, 1)])


@form(aten.squeeze)
def squeeze(g: Builder, self: Value, dim: Any = None) -> Value:
    if self.rank is None:
        return g.squeeze(self, None if dim is None else [dim] if isinstance(dim, int) else list(dim))
    dims = range(self.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    dims = [_wrapped(self, d) for d in dims]
    ones = [d for d in dims if self.rank and self.shape[d] == 1]
    return g.squeeze(self, ones) if ones else self


def permute(g: Builder, self: Value, dims: Any) -> Value:
    order = [_wrapped(self, d) for d in dims]
    if not order:
        return self
    shape = None if self.shape is None else [self.shape[d] for d in order]
    return g.op("Transpose", self, perm_i=order).known(self.dtype, shape)


def transpose(g: Builder, self: Value, dim0: int = 0, dim1: int = 1, axis0: Any = None, axis1: Any = None) -> Value:
    a, b = (dim0, dim1) if axis0 is None else (axis0, axis1)
    if self.rank == 0:
        return self
    order = list(range(self.rank))
    a, b = _wrapped(self, a), _wrapped(self, b)
    order[a], order[b] = order[b], order[a]
    return self if a == b else permute(g, self, order)


@form(aten.t, aten.numpy_T, aten.mT, aten.mH, aten.adjoint, aten.matrix_H)
def t(g: Builder, self: Value, name: str = "") -> Value:
    if (self.rank or 0) < 2:
        return self
    return permute(g, self, list(range(self.rank))[::-1]) if name.endswith("_T") else transpose(g, self, -2, -1)


@form(aten.movedim)
def movedim(g: Builder, self: Value, source: Any, destination: Any) -> Value:
    if isinstance(source, int):
        source, destination = [source], [destination]
    source, destination = ([_wrapped(self, d) for d in dims] for dims in (source, destination))
    order = [d for d in range(self.rank) if d not in source]
    for to, d in sorted(zip(destination, source)):
        order.insert(to, d)
    return permute(g, self, order)


@form(aten.expand)
def expand(g: Builder, self: Value, size: Any) -> Value:
    if isinstance(size, Value):
        return g.op("Expand", self, size).known(self.dtype, None)
    rank = self.rank or 0
    sizes = [1 if s == -1 and isinstance(s, int) else s for s in size]  # 1 keeps what is there
    made = g.expand(self, sizes)
    shape = list(made.shape) if made.shape is not None else [None] * len(sizes)
    for i, s in enumerate(size):
        if isinstance(s, int) and s == -1:
            shape[i] = self.shape[i - len(size) + rank]
    return made.known(self.dtype, shape)


@form(aten.broadcast_tensors)
def broadcast_tensors(g: Builder, tensors: list[Value]) -> list[Value]:
    from .pointwise import broadcast  # noqa: PLC0415

    shape = broadcast(*tensors)
    if shape is None or not all(isinstance(s, int) for s in shape):
        raise NotImplementedError("broadcast_tensors of sizes that change")
    return [g.expand(x, list(shape)) for x in tensors]


def cat(g: Builder, tensors: list[Value], dim: int = 0) -> Value:
    parts = [p for p in tensors if not (p.rank == 1 and p.shape[0] == 0 and any((q.rank or 0) > 1 for q in tensors))]
    dtype = promoted(*parts) if len(parts) > 1 else parts[0].dtype
    dim = _wrapped(parts[0], dim)
    parts = [g.cast(p, dtype) for p in parts]
    shape = None
    if all(p.shape is not None for p in parts):
        sizes = [p.shape[dim] for p in parts]
        total = sum(sizes) if all(isinstance(s, int) for s in sizes) else None
        shape = [total if i == dim else s for i, s in enumerate(parts[0].shape)]
    return g.op("Concat", *parts, axis_i=dim).known(dtype, shape)


def parts(g: Builder, x: Value, sizes: list[Any], dim: int) -> list[Value]:
    """Cut a tensor into parts of these sizes."""
    made, at = [], 0
    total = 0
    for n in sizes:
        total = g.arithmetic("Add", total, n)
    if all(isinstance(n, int) for n in sizes):
        if g.opset < 13:
            out = g.op("Split", x, axis_i=dim, split_i=sizes, outputs=len(sizes))
        elif g.opset >= 18 and len(set(sizes)) == 1 and len(sizes) == 1:
            out = g.op("Identity", x)
        else:
            out = g.op("Split", x, g.ints(sizes), axis_i=dim, outputs=len(sizes))
        out = out if isinstance(out, tuple) else (out,)
        for value, n in zip(out, sizes):
            value.known(x.dtype, None if x.shape is None else [n if i == dim else s for i, s in enumerate(x.shape)])
        return list(out)
    start: Any = at
    for n in sizes:
        end = g.arithmetic("Add", start, n)
        made.append(g.slice(x, [dim], [start], [end]))
        start = end
    return made


def _fixed(x: Value, dim: int, what: str) -> int:
    size = x.shape[dim] if x.shape is not None else None
    if not isinstance(size, int):
        raise NotImplementedError(f"{what} along a dimension whose size changes")
    return size


@form(aten.split, aten.unsafe_split, aten.split_with_sizes, aten.unsafe_split_with_sizes, aten.split_with_sizes_copy)
def split(g: Builder, self: Value, split_size: Any = None, split_sizes: Any = None, dim: int = 0) -> list[Value]:
    dim = _wrapped(self, dim)
    sizes = split_sizes if split_sizes is not None else split_size
    if isinstance(sizes, int):
        total = _fixed(self, dim, "split")
        sizes = [min(sizes, total - at) for at in range(0, total, sizes)] or [0]
    return parts(g, self, list(sizes), dim)


@form(aten.chunk, aten.unsafe_chunk, aten.tensor_split)
def chunk(
    g: Builder, self: Value, chunks: Any = None, dim: int = 0, sections: Any = None, indices: Any = None, name: str = ""
) -> list[Value]:
    dim = _wrapped(self, dim)
    total = _fixed(self, dim, "chunk")
    if indices is not None:
        cuts = [0, *indices, total]
        return parts(g, self, [max(b - a, 0) for a, b in zip(cuts, cuts[1:])], dim)
    if name.endswith("tensor_split"):
        if not isinstance(sections, int):
            raise NotImplementedError("tensor_split by a tensor")
        base, extra = divmod(total, sections)
        return parts(g, self, [base + (i < extra) for i in range(sections)], dim)
    each = -(-total // chunks)
    return split(g, self, max(each, 1), dim=dim)


@form(aten.unbind, aten.unbind_copy)
def unbind(g: Builder, self: Value, dim: int = 0) -> list[Value]:
    dim = _wrapped(self, dim)
    count = _fixed(self, dim, "unbind")
    return [g.squeeze(p, [dim]) for p in (parts(g, self, [1] * count, dim) if count != 1 else [self])]


@form(aten.hsplit, aten.vsplit, aten.dsplit)
def hsplit(g: Builder, self: Value, sections: Any = None, indices: Any = None, name: str = "") -> list[Value]:
    dim = {"h": 1 if (self.rank or 0) > 1 else 0, "v": 0, "d": 2}[name.rpartition("::")[2][0]]
    return chunk(g, self, dim=dim, sections=sections, indices=indices, name="tensor_split")


@form(aten.narrow, aten.narrow_copy)
def narrow(g: Builder, self: Value, dim: int, start: Any, length: Any) -> Value:
    return g.slice(self, [_wrapped(self, dim)], [start], [g.arithmetic("Add", start, length)])


def flip(g: Builder, self: Value, dims: Any = None, name: str = "") -> Value:
    dims = [1] if name.endswith("lr") else [0] if name.endswith("ud") else dims
    dims = [_wrapped(self, d) for d in dims]
    if not dims:
        return self
    return g.slice(self, dims, [-1] * len(dims), [-LARGEST] * len(dims), [-1] * len(dims)).known(self.dtype, self.shape)


@form(aten.rot90)
def rot90(g: Builder, self: Value, k: int = 1, dims: Any = (0, 1)) -> Value:
    a, b = dims
    k %= 4
    if k == 1:
        return transpose(g, flip(g, self, [b]), a, b)
    if k == 2:
        return flip(g, self, [a, b])
    return flip(g, transpose(g, self, a, b), [b]) if k == 3 else self


@form(aten.tril, aten.triu)
def tril(g: Builder, self: Value, diagonal: Any = 0, name: str = "") -> Value:
    upper = int(name.endswith("triu"))
    x = self
    if g.opset < 14:
        rows, columns = (g.size(x, d) for d in (-2, -1))
        if not isinstance(rows, int) or not isinstance(columns, int):
            raise NotImplementedError("tril and triu of sizes that change need opset 14 or later")
        ones = np.ones((rows, columns), bool)
        mask = np.triu(ones, diagonal) if upper else np.tril(ones, diagonal)
        return g.op("Where", g.constant(mask), x, g.number(0, x)).known(x.dtype, x.shape)
    small = x.dtype in (flambeau.int8, flambeau.int16, flambeau.uint8, flambeau.bfloat16)
    if small:
        x = g.cast(x, flambeau.float32)
    k = g.number(diagonal, flambeau.int64)
    made = g.op("Trilu", x, k, upper_i=upper).known(x.dtype, self.shape)
    return g.cast(made, self.dtype)


@form(aten.diagonal, aten.diag, aten.diagonal_copy)
def diagonal(g: Builder, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1, diagonal: Any = None) -> Value:
    offset = diagonal if diagonal is not None else offset
    if self.rank == 1:
        return diag_embed(g, self, offset)
    dim1, dim2 = _wrapped(self, dim1), _wrapped(self, dim2)
    order = [d for d in range(self.rank) if d not in (dim1, dim2)] + [dim1, dim2]
    x = permute(g, self, order)
    rows, columns = _fixed(x, -2, "diagonal"), _fixed(x, -1, "diagonal")
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    places = np.array([(i - min(offset, 0)) * columns + i + max(offset, 0) for i in range(count)], np.int64)
    flat = g.reshape(x, [*(g.size(x, d) for d in range(x.rank - 2)), rows * columns])
    return g.op("Gather", flat, g.constant(places), axis_i=x.rank - 2).known(x.dtype, [*x.shape[:-2], count])


@form(aten.linalg_diagonal)
def linalg_diagonal(g: Builder, A: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:  # noqa: N803  PyTorch's name
    return diagonal(g, A, offset, dim1, dim2)


@form(aten.diag_embed)
def diag_embed(g: Builder, self: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    n = _fixed(self, -1, "diag_embed")
    wide = n + abs(offset)
    picks = np.zeros((wide, wide), np.int64)
    mask = np.zeros((wide, wide), bool)
    for i in range(n):
        row, column = i - min(offset, 0), i + max(offset, 0)
        picks[row, column], mask[row, column] = i, True
    x = g.op("Gather", self, g.constant(picks), axis_i=self.rank - 1)
    made = g.op("Where", g.constant(mask), x, g.number(0, self)).known(self.dtype, [*self.shape[:-1], wide, wide])
    rank = self.rank + 1
    a, b = dim1 % rank, dim2 % rank
    return made if (a, b) == (rank - 2, rank - 1) else movedim(g, made, [rank - 2, rank - 1], [a, b])


@form(aten.channel_shuffle)
def pixel_unshuffle(g: Builder, self: Value, downscale_factor: int = 1, groups: int = 1, name: str = "") -> Value:
    if name.endswith("channel_shuffle"):
        sizes = g.sizes(self)
        x = g.reshape(self, [sizes[0], groups, sizes[1] // groups, *sizes[2:]])
        x = g.op("Transpose", x, perm_i=[0, 2, 1, *range(3, self.rank + 1)]).known(self.dtype, None)
        return g.reshape(x, sizes).known(self.dtype, self.shape)
    n, c, h, w = g.sizes(self)
    r = downscale_factor
    h, w = g.arithmetic("Div", h, r), g.arithmetic("Div", w, r)
    x = g.reshape(self, [n, c, h, r, w, r])
    x = g.op("Transpose", x, perm_i=[0, 1, 3, 5, 2, 4]).known(self.dtype, None)
    return g.reshape(x, [n, c * r * r, h, w])


@form(aten.meshgrid)
def meshgrid(g: Builder, tensors: list[Value], indexing: str = "ij") -> list[Value]:
    given = [g.reshape(x, [-1]).known(x.dtype, x.shape if x.rank == 1 else (1,)) for x in tensors]
    swapped = indexing == "xy" and len(given) > 1
    if swapped:
        given[0], given[1] = given[1], given[0]
    sizes = [g.size(x, 0) for x in given]
    made = []
    for i, x in enumerate(given):
        shaped = g.unsqueeze(x, [d for d in range(len(given)) if d != i])
        made.append(g.expand(shaped, sizes))
    if swapped:
        made[0], made[1] = made[1], made[0]
    return made


@form(aten.as_strided)
def as_strided(g: Builder, self: Value, size: Any, stride: Any, storage_offset: Any = None) -> Value:
    if not all(isinstance(n, int) for n in (*size, *stride)):
        raise NotImplementedError("as_strided of sizes that change")
    places = np.full((1,) * len(size), storage_offset or 0, np.int64)
    for d, (n, s) in enumerate(zip(size, stride)):
        places = places + (np.arange(n) * s).reshape([-1 if i == d else 1 for i in range(len(size))])
    flat = g.reshape(self, [-1])
    return g.op("Gather", flat, g.constant(places.reshape(size)), axis_i=0).known(self.dtype, tuple(size))


# -- sizes as values ------------------------------------------------------------------------------------------------------------------


@form(aten.size, aten.sym_size)
def size(g: Builder, self: Value, dim: int | None = None) -> Any:
    return g.sizes(self) if dim is None else g.size(self, dim)


@form(aten.numel, aten.sym_numel)
def numel(g: Builder, self: Value) -> Any:
    return g.numel(self)


@form(aten.dim)
def dim(g: Builder, self: Value) -> int:
    return self.rank or 0


@form(aten._shape_as_tensor)
def shape_as_tensor(g: Builder, self: Value) -> Value:
    return g.shape_of(self)


@form(
    aten.item,
    aten._local_scalar_dense,
    aten.Int,
    aten.Float,
    aten.Bool,
    aten.IntImplicit,
    aten.FloatImplicit,
    aten.ScalarImplicit,
)
def item(g: Builder, self: Any = None, a: Any = None, name: str = "") -> Any:
    x = self if self is not None else a
    if not isinstance(x, Value):
        return {"Int": int, "Float": float, "Bool": bool}.get(name.rpartition("::")[2], lambda v: v)(x)
    if x.rank:
        x = g.squeeze(x)
        x.shape = ()
    wanted = {"aten::Int": flambeau.int64, "aten::Float": flambeau.float32, "aten::Bool": flambeau.bool}.get(name)
    return x if wanted is None else g.recast(x, wanted)
