"""Operators that work element by element."""

from __future__ import annotations

import math
from typing import Any

import flambeau

from ...core.dtype import dtype as DType  # noqa: N812
from ..builder import Builder, Value
from ..registry import aten, form
from ..torchlib.calls import promoted


def as_float(g: Builder, x: Value) -> Value:
    return g.cast(x, flambeau.get_default_dtype()) if _integral(x.dtype) else x


def _integral(dtype: DType | None) -> bool:
    return dtype is not None and not dtype.is_floating_point and not dtype.is_complex


def together(g: Builder, *values: Any) -> list[Value]:
    """Operands in their common dtype."""
    dtype = promoted(*values)
    return [g.number(v, dtype) for v in values]


def broadcast(*values: Any) -> tuple | None:
    """The shape that operands have together, as far as it is known."""
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


# -- two operands -----------------------------------------------------------------------------------------------------------


def _with_alpha(g: Builder, kind: str, a: Any, b: Any, alpha: Any) -> Value:
    x, y = together(g, a, b)
    if x.dtype == flambeau.bool:
        return g.op("Or", x, y).known(x.dtype, broadcast(x, y))
    if alpha != 1:
        y = g.op("Mul", y, g.number(alpha, y)).known(y.dtype, y.shape)
    return g.op(kind, x, y).known(x.dtype, broadcast(x, y))


def add(g: Builder, self: Any, other: Any, alpha: Any = 1) -> Any:
    if isinstance(self, list):
        return self + other
    return _with_alpha(g, "Add", self, other, alpha)


def sub(g: Builder, self: Any, other: Any, alpha: Any = 1) -> Value:
    return _with_alpha(g, "Sub", self, other, alpha)


@form(aten.rsub)
def rsub(g: Builder, self: Any, other: Any, alpha: Any = 1) -> Value:
    return _with_alpha(g, "Sub", other, self, alpha)


def mul(g: Builder, self: Any, other: Any) -> Value:
    x, y = together(g, self, other)
    return g.op("And" if x.dtype == flambeau.bool else "Mul", x, y).known(x.dtype, broadcast(x, y))


def div(g: Builder, self: Any, other: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode == "floor":
        return floor_divide(g, self, other)
    x, y = together(g, self, other)
    x, y = as_float(g, x), as_float(g, y)
    return g.op("Div", x, y).known(x.dtype, broadcast(x, y))


@form(aten.floor_divide, aten.floordiv)
def floor_divide(g: Builder, self: Any, other: Any) -> Value:
    x, y = together(g, self, other)
    shape = broadcast(x, y)
    out = g.op("Div", x, y).known(x.dtype, shape)
    if not _integral(x.dtype):
        return g.op("Floor", out).known(x.dtype, shape)
    zero = g.number(0, x)  # integers are divided towards zero: one less where a remainder has the other sign
    rest = g.op("Sub", x, g.op("Mul", out, y))
    lower = g.op(
        "And", g.op("Not", g.op("Equal", rest, zero)), g.op("Xor", g.op("Less", rest, zero), g.op("Less", y, zero))
    )
    return g.op("Sub", out, g.cast(lower.known(flambeau.bool, shape), x.dtype)).known(x.dtype, shape)


@form(aten.pow, aten.float_power)
def pow_(g: Builder, self: Any, exponent: Any, name: str = "") -> Value:
    dtype = flambeau.float64 if name.endswith("float_power") else promoted(self, exponent)
    x = g.number(self, dtype)
    if isinstance(exponent, (int, float)) and g.opset >= 12 and dtype.is_floating_point:
        y = g.constant(float(exponent), dtype)
    else:
        y = g.number(exponent, dtype)
    return g.op("Pow", x, y).known(dtype, broadcast(x, y))


@form(aten.fmax, aten.fmin)
def _extreme(g: Builder, self: Value, other: Value, name: str = "") -> Value:
    x, y = together(g, self, other)
    kind = "Max" if "max" in name else "Min"
    shape = broadcast(x, y)
    out = g.op(kind, x, y).known(x.dtype, shape)
    if "fm" in name and x.dtype.is_floating_point:
        out = g.op("Where", g.op("IsNaN", x), y, g.op("Where", g.op("IsNaN", y), x, out)).known(x.dtype, shape)
    return out


@form(aten.atan2, aten.arctan2)
def atan2(g: Builder, self: Value, other: Value) -> Value:
    y, x = (as_float(g, v) for v in together(g, self, other))
    shape = broadcast(x, y)
    zero, pi = g.number(0, x), g.number(math.pi, x)
    angle = g.op("Atan", g.op("Div", y, x))
    turned = g.op("Where", g.op("Less", y, zero), g.op("Sub", angle, pi), g.op("Add", angle, pi))
    out = g.op("Where", g.op("Less", x, zero), turned, angle)
    both = g.op("And", g.op("Equal", x, zero), g.op("Equal", y, zero))
    return g.op("Where", both, g.op("Mul", zero, x), out).known(x.dtype, shape)


@form(aten.copysign)
def copysign(g: Builder, self: Any, other: Any) -> Value:
    x, y = (as_float(g, v) for v in together(g, self, other))
    size = g.op("Abs", x)
    return g.op("Where", g.op("Less", y, g.number(0, y)), g.op("Neg", size), size).known(x.dtype, broadcast(x, y))


def of_same_shape(x: Value, made: Value) -> Value:
    return made.known(x.dtype, x.shape)


# -- clamps ---------------------------------------------------------------------------------------------------------------------


def clamp(g: Builder, self: Value, min: Any = None, max: Any = None) -> Value:
    dtype = promoted(*[v for v in (self, min, max) if v is not None])
    x = g.number(self, dtype)
    fixed = all(not isinstance(v, Value) or v.rank == 0 for v in (min, max))
    if fixed and g.opset >= 12 and dtype != flambeau.bool:
        low, high = (None if v is None else g.number(v, dtype) for v in (min, max))
        return g.op("Clip", x, low, high).known(dtype, x.shape)
    for kind, bound in (("Max", min), ("Min", max)):
        if bound is not None:
            y = g.number(bound, dtype)
            x = g.op(kind, x, y).known(dtype, broadcast(x, y))
    return x


# -- the same value ------------------------------------------------------------------------------------------------------------------


@form(aten.detach_, aten.lift_fresh, aten.lift_fresh_copy, aten.pin_memory, aten.requires_grad_)
def same(g: Builder, self: Value) -> Value:
    if self.dtype is not None and self.dtype.is_complex:
        raise NotImplementedError("complex numbers")
    return self


@form(aten.dropout, aten.dropout_, aten.feature_dropout, aten.alpha_dropout, aten.feature_alpha_dropout)
def dropout(g: Builder, input: Value, p: float, train: bool, name: str = "") -> Value:
    if not train:
        return input
    if not name.rstrip("_").endswith("::dropout"):
        raise NotImplementedError(f"{name} while training")
    if g.opset < 12:
        return of_same_shape(input, g.op("Dropout", input, ratio_f=p))
    return of_same_shape(input, g.op("Dropout", input, g.number(p, flambeau.float32), g.constant(True, flambeau.bool)))


@form(aten.to, aten._to_copy)
def to(g: Builder, self: Value, dtype: Any = None, other: Any = None) -> Value:
    dtype = other.dtype if isinstance(other, Value) else dtype
    return self if dtype is None else g.cast(self, dtype)
