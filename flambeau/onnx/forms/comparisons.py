"""Comparisons, logic and bits."""

from __future__ import annotations

from typing import Any

import flambeau

from ..builder import Builder, Value
from ..registry import aten, form
from .pointwise import broadcast, floor_divide, together


def compare(g: Builder, kind: str, a: Any, b: Any) -> Value:
    x, y = together(g, a, b)
    if x.dtype == flambeau.bool and kind != "Equal":
        x, y = g.cast(x, flambeau.int32), g.cast(y, flambeau.int32)
    shape = broadcast(x, y)
    return g.op(kind, x, y).known(flambeau.bool, shape)


def negated(g: Builder, x: Value) -> Value:
    return g.op("Not", x).known(flambeau.bool, x.shape)


@form(aten.eq)
def eq(g: Builder, self: Any, other: Any) -> Value:
    return compare(g, "Equal", self, other)


@form(aten.ne, aten.not_equal)
def ne(g: Builder, self: Any, other: Any) -> Value:
    return negated(g, compare(g, "Equal", self, other))


@form(aten.lt, aten.less)
def lt(g: Builder, self: Any, other: Any) -> Value:
    return compare(g, "Less", self, other)


@form(aten.gt, aten.greater)
def gt(g: Builder, self: Any, other: Any) -> Value:
    return compare(g, "Greater", self, other)


@form(aten.le, aten.less_equal)
def le(g: Builder, self: Any, other: Any) -> Value:
    if g.opset >= 12:
        return compare(g, "LessOrEqual", self, other)
    return negated(g, compare(g, "Greater", self, other))


@form(aten.ge, aten.greater_equal)
def ge(g: Builder, self: Any, other: Any) -> Value:
    if g.opset >= 12:
        return compare(g, "GreaterOrEqual", self, other)
    return negated(g, compare(g, "Less", self, other))


def truth(g: Builder, x: Any) -> Value:
    x = g.value(x)
    return g.cast(x, flambeau.bool)


@form(aten.logical_not)
def logical_not(g: Builder, self: Value) -> Value:
    return negated(g, truth(g, self))


@form(aten.logical_and, aten.logical_or, aten.logical_xor)
def _logic(g: Builder, self: Value, other: Value, name: str = "") -> Value:
    x, y = truth(g, self), truth(g, other)
    return g.op(name.rpartition("_")[2].capitalize(), x, y).known(flambeau.bool, broadcast(x, y))


@form(aten.bitwise_not)
def bitwise_not(g: Builder, self: Value) -> Value:
    if self.dtype == flambeau.bool:
        return negated(g, self)
    if g.opset >= 18:
        return g.op("BitwiseNot", self).known(self.dtype, self.shape)
    return g.op("Sub", g.op("Neg", self), g.number(1, self)).known(self.dtype, self.shape)


@form(aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor, aten.__and__, aten.__or__, aten.__xor__)
def _bits(g: Builder, self: Any, other: Any, name: str = "") -> Value:
    x, y = together(g, self, other)
    word = name.strip("_").rpartition("_")[2].rpartition(":")[2].capitalize()
    if x.dtype != flambeau.bool and g.opset < 18:
        raise NotImplementedError("bitwise operators on integers need opset 18 or later")
    kind = word if x.dtype == flambeau.bool else f"Bitwise{word}"
    return g.op(kind, x, y).known(x.dtype, broadcast(x, y))


@form(aten.bitwise_left_shift, aten.bitwise_right_shift, aten.__lshift__, aten.__rshift__)
def _shift(g: Builder, self: Any, other: Any, name: str = "") -> Value:
    x, y = together(g, self, other)
    power = g.cast(
        g.op("Pow", g.number(2.0, flambeau.float64), g.cast(y, flambeau.float64)).known(flambeau.float64, y.shape),
        x.dtype,
    )
    if "left" in name or "lshift" in name:
        return g.op("Mul", x, power).known(x.dtype, broadcast(x, y))
    return floor_divide(g, x, power)


@form(aten.where)
def where(g: Builder, condition: Value, self: Any = None, other: Any = None) -> Any:
    if self is None:
        from .indexing import nonzero_columns  # noqa: PLC0415

        return nonzero_columns(g, condition)
    x, y = together(g, self, other)
    c = truth(g, condition)
    return g.op("Where", c, x, y).known(x.dtype, broadcast(c, x, y))


@form(aten.masked_fill)
def masked_fill(g: Builder, self: Value, mask: Value, value: Any) -> Value:
    return g.op("Where", truth(g, mask), g.number(value, self), self).known(self.dtype, broadcast(mask, self))
