"""Operators that rearrange elements, and those that create tensors."""

from __future__ import annotations

from typing import Any

import flambeau

from ..builder import Builder, Value
from ..registry import aten, form
from ..torchlib.calls import promoted


def _wrap_dim(x: Value, dim: int) -> int:
    return dim % max(x.rank or 0, 1)


@form(aten.squeeze)
def squeeze(g: Builder, self: Value, dim: Any = None, described: Any = None) -> Value:
    if self.rank is None:
        return g.squeeze(self, None if dim is None else [dim] if isinstance(dim, int) else list(dim))
    dims = range(self.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    dims = [_wrap_dim(self, d) for d in dims]
    ones = [d for d in dims if self.rank and self.shape[d] == 1]
    if described is not None and described.shape is not None and self.rank - len(ones) > len(described.shape):
        # Sizes that may change were one when the model ran: the file takes no others there.
        found = [d for d in dims if self.shape[d] == 1 or not isinstance(self.shape[d], int)]
        if dim is not None and self.rank - len(found) != len(described.shape):
            raise NotImplementedError("squeeze of sizes that change, of which not all were 1 when the model ran")
        return g.squeeze(self, None if dim is None else found)
    return g.squeeze(self, ones) if ones else self


def permute(g: Builder, self: Value, dims: Any) -> Value:
    order = [_wrap_dim(self, d) for d in dims]
    if not order:
        return self
    shape = None if self.shape is None else [self.shape[d] for d in order]
    return g.op("Transpose", self, perm_i=order).known(self.dtype, shape)


def cat(g: Builder, tensors: list[Value], dim: int = 0) -> Value:
    parts = [p for p in tensors if not (p.rank == 1 and p.shape[0] == 0 and any((q.rank or 0) > 1 for q in tensors))]
    dtype = promoted(*parts) if len(parts) > 1 else parts[0].dtype
    dim = _wrap_dim(parts[0], dim)
    parts = [g.cast(p, dtype) for p in parts]
    shape = None
    if all(p.shape is not None for p in parts):
        sizes = [p.shape[dim] for p in parts]
        total = sum(sizes) if all(isinstance(s, int) for s in sizes) else None
        shape = [total if i == dim else s for i, s in enumerate(parts[0].shape)]
    return g.op("Concat", *parts, axis_i=dim).known(dtype, shape)


def _split(g: Builder, x: Value, sizes: list[Any], dim: int) -> list[Value]:
    """Split a tensor along a dimension into parts of these sizes."""
    if not all(isinstance(n, int) for n in sizes):
        made, start = [], 0
        for n in sizes:
            end = g.arithmetic("Add", start, n)
            made.append(g.slice(x, [dim], [start], [end]))
            start = end
        return made
    if g.opset < 13:
        out = g.op("Split", x, axis_i=dim, split_i=sizes, outputs=len(sizes))
    elif len(sizes) == 1:
        out = g.op("Identity", x)
    else:
        out = g.op("Split", x, g.ints(sizes), axis_i=dim, outputs=len(sizes))
    out = out if isinstance(out, tuple) else (out,)
    shapes = [None if x.shape is None else [n if i == dim else s for i, s in enumerate(x.shape)] for n in sizes]
    return [value.known(x.dtype, shape) for value, shape in zip(out, shapes)]


def _fixed_size(x: Value, dim: int, what: str) -> int:
    size = x.shape[dim] if x.shape is not None else None
    if not isinstance(size, int):
        raise NotImplementedError(f"{what} along a dimension whose size changes")
    return size


@form(aten.split, aten.unsafe_split, aten.split_with_sizes, aten.unsafe_split_with_sizes, aten.split_with_sizes_copy)
def split(g: Builder, self: Value, split_size: Any = None, split_sizes: Any = None, dim: int = 0) -> list[Value]:
    dim = _wrap_dim(self, dim)
    sizes = split_sizes if split_sizes is not None else split_size
    if isinstance(sizes, int):
        total = _fixed_size(self, dim, "split")
        sizes = [min(sizes, total - at) for at in range(0, total, sizes)] or [0]
    return _split(g, self, list(sizes), dim)


@form(aten.unbind, aten.unbind_copy)
def unbind(g: Builder, self: Value, dim: int = 0) -> list[Value]:
    dim = _wrap_dim(self, dim)
    count = _fixed_size(self, dim, "unbind")
    return [g.squeeze(p, [dim]) for p in (_split(g, self, [1] * count, dim) if count != 1 else [self])]


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
