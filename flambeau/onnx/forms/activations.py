"""Activations."""

from __future__ import annotations

import math
from typing import Any

from ..builder import Builder, Value
from ..registry import aten, form
from .pointwise import as_float, of_same_shape


def leaky_relu(g: Builder, self: Value, negative_slope: float = 0.01) -> Value:
    return of_same_shape(self, g.op("LeakyRelu", self, alpha_f=negative_slope))


@form(aten.gelu)
def gelu(g: Builder, self: Value, approximate: str = "none") -> Value:
    x = self
    if g.opset >= 20:
        return of_same_shape(x, g.op("Gelu", x, approximate_s=approximate))
    if approximate == "tanh":
        inner = g.op("Add", x, g.op("Mul", g.number(0.044715, x), g.op("Mul", x, g.op("Mul", x, x))))
        curve = g.op("Tanh", g.op("Mul", g.number(math.sqrt(2 / math.pi), x), inner))
    else:
        curve = g.op("Erf", g.op("Div", x, g.number(math.sqrt(2), x)))
    return of_same_shape(x, g.op("Mul", g.op("Mul", x, g.op("Add", curve, g.number(1, x))), g.number(0.5, x)))


@form(aten.softshrink)
def _shrink(g: Builder, self: Value, lambd: Any = 0.5, name: str = "") -> Value:
    bias = lambd if name.endswith("softshrink") else 0.0
    return of_same_shape(self, g.op("Shrink", self, lambd_f=lambd, bias_f=bias))


@form(aten.special_ndtr)
def ndtr(g: Builder, self: Value) -> Value:
    x = as_float(g, self)
    curve = g.op("Erf", g.op("Mul", x, g.number(math.sqrt(0.5), x)))
    return of_same_shape(x, g.op("Mul", g.op("Add", curve, g.number(1, x)), g.number(0.5, x)))


@form(aten.rrelu)
def rrelu(g: Builder, self: Value, lower: float = 1 / 8, upper: float = 1 / 3) -> Value:
    return leaky_relu(g, self, (lower + upper) / 2)
