"""Operators that work element by element, and tensors created from numbers."""

from __future__ import annotations

from typing import Any

import flambeau

from ...core.dtype import dtype as DType  # noqa: N812
from ..builder import Builder, Value
from ..registry import aten, form
from ..torchlib.calls import promoted


def together(g: Builder, *values: Any) -> list[Value]:
    """Return the operands in their common dtype."""
    dtype = promoted(*values)
    return [g.number(v, dtype) for v in values]


def broadcast(*values: Any) -> tuple | None:
    """Return the broadcast shape of operands, as far as it is known."""
    shapes = [v.shape if isinstance(v, Value) else () for v in values]
    if any(s is None for s in shapes):
        return None
    rank = max(len(s) for s in shapes)
    out: list[Any] = []
    for i in range(rank):
        sizes = [s[len(s) - rank + i] for s in shapes if len(s) - rank + i >= 0]
        sizes = [s for s in sizes if s != 1]
        out.append(1 if not sizes else next((s for s in sizes if isinstance(s, int)), sizes[0]))
    return tuple(out)


@form(aten.rsub)
def rsub(g: Builder, self: Any, other: Any, alpha: Any = 1) -> Value:
    x, y = together(g, other, self)
    if alpha != 1:
        y = g.op("Mul", y, g.number(alpha, y)).known(y.dtype, y.shape)
    return g.op("Sub", x, y).known(x.dtype, broadcast(x, y))


@form(aten.detach_, aten.lift_fresh, aten.lift_fresh_copy, aten.pin_memory, aten.requires_grad_)
def same(g: Builder, self: Value) -> Value:
    if self.dtype is not None and self.dtype.is_complex:
        raise NotImplementedError("complex numbers")
    return self


@form(aten.gelu)
def gelu(g: Builder, self: Value, approximate: str = "none") -> Value:
    return g.op("Gelu", self, approximate_s=approximate).known(self.dtype, self.shape)


@form(aten.softshrink)
def softshrink(g: Builder, self: Value, lambd: Any = 0.5) -> Value:
    return g.op("Shrink", self, lambd_f=lambd, bias_f=lambd).known(self.dtype, self.shape)


@form(aten.tensor, aten.as_tensor)
def tensor(g: Builder, data: Any, dtype: DType | None = None) -> Value:
    if isinstance(data, (list, tuple)) and any(isinstance(v, Value) for v in data):
        data = g.ints(data)
    if isinstance(data, Value):
        return data if dtype is None else g.cast(data, dtype)
    return g.constant(data, dtype if dtype is not None else flambeau.tensor(data).dtype)


@form(aten.arange)
def arange(g: Builder, end: Any, start: Any = 0, step: Any = 1, dtype: DType | None = None) -> Value:
    if dtype is None:
        floats = any(
            isinstance(n, float) or (isinstance(n, Value) and n.dtype.is_floating_point) for n in (start, end, step)
        )
        dtype = flambeau.get_default_dtype() if floats else flambeau.int64
    return g.range(start, end, step, dtype)
