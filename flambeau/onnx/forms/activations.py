"""Activations."""

from __future__ import annotations

import math
from typing import Any

from ..builder import Builder, Value
from ..registry import aten, form
from .pointwise import as_float, clamp, of_same_shape


@form(aten.relu6)
def relu6(g: Builder, self: Value) -> Value:
    return hardtanh(g, self, 0, 6)


@form(aten.hardtanh)
def hardtanh(g: Builder, self: Value, min_val: Any = -1, max_val: Any = 1) -> Value:
    if g.opset < 11:
        return of_same_shape(self, g.op("Clip", self, min_f=min_val, max_f=max_val))
    return of_same_shape(self, g.op("Clip", self, g.number(min_val, self), g.number(max_val, self)))


@form(aten.leaky_relu)
def leaky_relu(g: Builder, self: Value, negative_slope: float = 0.01) -> Value:
    return of_same_shape(self, g.op("LeakyRelu", self, alpha_f=negative_slope))


@form(aten.elu)
def elu(g: Builder, self: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    x = self
    if input_scale != 1:
        low = g.op(
            "Mul",
            g.op("Sub", g.op("Exp", g.op("Mul", x, g.number(input_scale, x))), g.number(1, x)),
            g.number(alpha, x),
        )
        made = g.op("Where", g.op("Greater", x, g.number(0, x)), x, low)
    else:
        made = g.op("Elu", x, alpha_f=alpha)
    return of_same_shape(self, made if scale == 1 else g.op("Mul", made, g.number(scale, x)))


@form(aten.celu)
def celu(g: Builder, self: Value, alpha: float = 1.0) -> Value:
    return of_same_shape(self, g.op("Celu", self, alpha_f=alpha))


@form(aten.selu)
def selu(g: Builder, self: Value) -> Value:
    return of_same_shape(self, g.op("Selu", self))


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


@form(aten.silu)
def silu(g: Builder, self: Value) -> Value:
    return of_same_shape(self, g.op("Mul", self, g.op("Sigmoid", self)))


@form(aten.mish)
def mish(g: Builder, self: Value) -> Value:
    return of_same_shape(self, g.op("Mul", self, g.op("Tanh", g.op("Softplus", self))))


@form(aten.softplus)
def softplus(g: Builder, self: Value, beta: float = 1, threshold: float = 20) -> Value:
    if beta == 1 and threshold == 20:  # where the formula is a straight line to the last digit
        return of_same_shape(self, g.op("Softplus", self))
    b = g.number(beta, self)
    scaled = g.op("Mul", self, b)
    curve = g.op("Div", g.op("Softplus", scaled), b)
    return of_same_shape(self, g.op("Where", g.op("Greater", scaled, g.number(threshold, self)), self, curve))


@form(aten.hardsigmoid)
def hardsigmoid(g: Builder, self: Value) -> Value:
    return of_same_shape(self, g.op("HardSigmoid", self, alpha_f=1 / 6))


@form(aten.hardswish)
def hardswish(g: Builder, self: Value) -> Value:
    if g.opset >= 14:
        return of_same_shape(self, g.op("HardSwish", self))
    return of_same_shape(self, g.op("Mul", self, g.op("HardSigmoid", self, alpha_f=1 / 6)))


@form(aten.hardshrink, aten.softshrink)
def _shrink(g: Builder, self: Value, lambd: Any = 0.5, name: str = "") -> Value:
    bias = lambd if name.endswith("softshrink") else 0.0
    return of_same_shape(self, g.op("Shrink", self, lambd_f=lambd, bias_f=bias))


@form(aten.special_ndtr)
def ndtr(g: Builder, self: Value) -> Value:
    x = as_float(g, self)
    curve = g.op("Erf", g.op("Mul", x, g.number(math.sqrt(0.5), x)))
    return of_same_shape(x, g.op("Mul", g.op("Add", curve, g.number(1, x)), g.number(0.5, x)))


@form(aten.log_sigmoid)
def log_sigmoid(g: Builder, self: Value) -> Value:
    return of_same_shape(self, g.op("Neg", g.op("Softplus", g.op("Neg", self))))


@form(aten.threshold)
def threshold(g: Builder, self: Value, threshold: Any, value: Any) -> Value:
    return of_same_shape(
        self, g.op("Where", g.op("Greater", self, g.number(threshold, self)), self, g.number(value, self))
    )


@form(aten.prelu)
def prelu(g: Builder, self: Value, weight: Value) -> Value:
    if self.rank is not None and self.rank > 2 and weight.rank == 1:
        weight = g.unsqueeze(weight, list(range(1, self.rank - 1)))
    return of_same_shape(self, g.op("PRelu", self, weight))


@form(aten.rrelu)
def rrelu(g: Builder, self: Value, lower: float = 1 / 8, upper: float = 1 / 3) -> Value:
    return leaky_relu(g, self, (lower + upper) / 2)


@form(aten.glu)
def glu(g: Builder, self: Value, dim: int = -1) -> Value:
    size = g.size(self, dim)
    half = size // 2 if isinstance(size, int) else g.arithmetic("Div", size, 2)
    a = g.slice(self, [dim], [0], [half])
    b = g.slice(self, [dim], [half], [size])
    return g.op("Mul", a, g.op("Sigmoid", b)).known(self.dtype, a.shape)


@form(aten.logit, aten.special_logit)
def logit(g: Builder, self: Value, eps: float | None = None) -> Value:
    x = self if eps is None else clamp(g, self, eps, 1 - eps)
    return of_same_shape(self, g.op("Log", g.op("Div", x, g.op("Sub", g.number(1, x), x))))
