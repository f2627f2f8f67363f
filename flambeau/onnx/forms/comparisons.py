"""Comparisons, logic and bits."""

from __future__ import annotations

from typing import Any

import flambeau

from ..builder import Builder, Value
from ..registry import aten, form
from .pointwise import broadcast, together


def compare(g: Builder, kind: str, a: Any, b: Any) -> Value:
    x, y = together(g, a, b)
    if x.dtype == flambeau.bool and kind != "Equal":
        x, y = g.cast(x, flambeau.int32), g.cast(y, flambeau.int32)
    shape = broadcast(x, y)
    return g.op(kind, x, y).known(flambeau.bool, shape)


def truth(g: Builder, x: Any) -> Value:
    x = g.value(x)
    return g.cast(x, flambeau.bool)


@form(aten.where)
def where(g: Builder, condition: Value, self: Any = None, other: Any = None) -> Any:
    if self is None:
        from .indexing import nonzero_columns  # noqa: PLC0415

        return nonzero_columns(g, condition)
    x, y = together(g, self, other)
    c = truth(g, condition)
    return g.op("Where", c, x, y).known(x.dtype, broadcast(c, x, y))
