"""Operators that work element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau

from ...core.tensor import Tensor
from ...nn import functional as F  # noqa: N812
from ..dtypes import DTYPE, NUMBER, tensor_of
from .table import NODES, Call, node

_SAME_NAME = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Det Erf Exp Floor IsNaN Log Neg Reciprocal Relu Round Sigmoid Sign Sin
Sinh Sqrt Tan Tanh"""
OF_ONE: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(flambeau, name.lower()) for name in _SAME_NAME.split()},
    "Not": flambeau.logical_not, "BitwiseNot": flambeau.bitwise_not,
    "Softplus": F.softplus, "Softsign": F.softsign, "HardSwish": F.hardswish, "Mish": F.mish,
}  # fmt: skip
_BINARY = {
    "Sub": flambeau.sub, "Mul": flambeau.mul, "And": flambeau.logical_and, "Or": flambeau.logical_or, "Xor": flambeau.logical_xor,
    "Equal": flambeau.eq, "Less": flambeau.lt, "LessOrEqual": flambeau.le, "Greater": flambeau.gt, "GreaterOrEqual": flambeau.ge,
    "BitwiseAnd": flambeau.bitwise_and, "BitwiseOr": flambeau.bitwise_or, "BitwiseXor": flambeau.bitwise_xor, "MatMul": flambeau.matmul,
}  # fmt: skip


def _declare_plain(name: str, function: Callable, count: int) -> None:
    def one(call: Call, x: Tensor) -> Tensor:
        return function(x)

    def two(call: Call, a: Tensor, b: Tensor, axis: int | None = None, broadcast: int = 1) -> Tensor:
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):  # strings are compared
            return tensor_of(np.asarray(a) == np.asarray(b))
        return function(*aligned(a, b, axis, broadcast))

    NODES[name] = one if count == 1 else two


def aligned(a: Tensor, b: Tensor, axis: int | None, broadcast: int = 1) -> tuple[Tensor, Tensor]:
    """Broadcast as the oldest opsets do: the second operand is aligned with an axis of the first."""
    if axis is not None and b.dim() < a.dim():
        axis %= a.dim()
        b = b.reshape(*b.shape, *([1] * (a.dim() - axis - b.dim())))
    return a, b


for _count, _functions in ((1, OF_ONE), (2, _BINARY)):
    for _name, _function in _functions.items():
        _declare_plain(_name, _function, _count)


@node("Identity")
def identity(call: Call, x: Any) -> Any:
    return x


@node("Add")
def add(call: Call, a: Tensor, b: Tensor, axis: int | None = None, broadcast: int = 1) -> Tensor:
    a, b = aligned(a, b, axis)
    return flambeau.add(a, b)


@node("Div")
def div(call: Call, a: Tensor, b: Tensor, axis: int | None = None, broadcast: int = 1) -> Tensor:
    a, b = aligned(a, b, axis)
    return flambeau.div(a, b) if a.is_floating_point() else flambeau.div(a, b, rounding_mode="trunc")


@node("Mod")
def mod(call: Call, a: Tensor, b: Tensor, fmod: int = 0) -> Tensor:
    return flambeau.fmod(a, b) if fmod else flambeau.remainder(a, b)


@node("Pow")
def pow_(call: Call, a: Tensor, b: Tensor, axis: int | None = None, broadcast: int = 1) -> Tensor:
    a, b = aligned(a, b, axis)
    if a.is_floating_point() or not b.is_floating_point():
        return flambeau.pow(a, b.to(a.dtype) if a.is_floating_point() else b).to(a.dtype)
    return flambeau.pow(a.to(b.dtype), b).to(a.dtype)


@node("BitShift")
def bit_shift(call: Call, a: Tensor, b: Tensor, direction: str) -> Tensor:
    wide = a.to(flambeau.int64) if a.dtype != flambeau.uint64 else tensor_of(a.numpy().astype(np.int64))
    shift = b.to(flambeau.int64)
    made = wide << shift if direction == "LEFT" else wide >> shift
    if a.dtype in (flambeau.uint16, flambeau.uint32, flambeau.uint64):
        return tensor_of(made.numpy().astype(a.numpy().dtype))
    return made.to(a.dtype)


def _declare_folded(name: str, function: Callable) -> None:
    @node(name)
    def run(call: Call, *values: Tensor) -> Tensor:
        return functools.reduce(function, values)


_declare_folded("Sum", flambeau.add)
_declare_folded("Max", flambeau.maximum)
_declare_folded("Min", flambeau.minimum)


@node("Mean")
def mean(call: Call, *values: Tensor) -> Tensor:
    return functools.reduce(flambeau.add, values) / len(values)


@node("Where")
def where(call: Call, c: Tensor, x: Any, y: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.where(c.numpy(), x, y)
    return flambeau.where(c, x, y)


@node("IsInf")
def is_inf(call: Call, x: Tensor, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    found = flambeau.isinf(x.float() if x.dtype.itemsize == 1 else x)
    if not detect_negative:
        found = found & (x.float() > 0)
    return found if detect_positive else found & (x.float() < 0)


@node("Cast")
def cast(call: Call, x: Any, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    if to == 8:
        return np.array([str(v) for v in x.reshape(-1).tolist()], object).reshape(tuple(x.shape))
    if to not in DTYPE:
        raise NotImplementedError(f"Cast to ONNX's type {to}")
    if isinstance(x, np.ndarray):
        numbers = [float(v) for v in x.reshape(-1)]
        return flambeau.tensor(numbers, dtype=flambeau.float64).to(DTYPE[to]).reshape(x.shape)
    wanted = DTYPE[to]
    if wanted.is_floating_point and wanted.itemsize == 1 and saturate and x.is_floating_point():
        limit = flambeau.finfo(wanted).max
        real = x.float()
        return flambeau.where(flambeau.isnan(real), real, real.clamp(-limit, limit)).to(wanted)
    return x.to(wanted)


@node("CastLike")
def cast_like(call: Call, x: Any, like: Any, saturate: int = 1, round_mode: str = "up") -> Any:
    return cast(call, x, 8 if isinstance(like, np.ndarray) else NUMBER[like.dtype], saturate)


@node("BitCast")
def bit_cast(call: Call, x: Tensor, to: int) -> Tensor:
    return x.view(DTYPE[to])


@node("Clip")
def clip(call: Call, x: Tensor, low: Any = None, high: Any = None, min: Any = None, max: Any = None) -> Tensor:
    low, high = min if low is None else low, max if high is None else high
    made = x
    for bound, function in ((low, flambeau.maximum), (high, flambeau.minimum)):
        if bound is not None:
            made = function(made, flambeau.as_tensor(bound, dtype=x.dtype))
    return made


# -- activations ------------------------------------------------------------------------------------------------------------------


@node("Elu")
def elu(call: Call, x: Tensor, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@node("Celu")
def celu(call: Call, x: Tensor, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@node("Selu")
def selu(
    call: Call, x: Tensor, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    return gamma * flambeau.where(x > 0, x, alpha * (flambeau.exp(x) - 1))


@node("LeakyRelu")
def leaky_relu(call: Call, x: Tensor, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


@node("PRelu")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    if slope.dim() == 1 and x.dim() > 2 and slope.numel() == x.shape[1] and call.opset < 7:
        slope = slope.reshape(-1, *([1] * (x.dim() - 2)))
    return flambeau.where(x > 0, x, slope * x)


@node("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return flambeau.clamp(alpha * x + beta, 0, 1)


@node("Gelu")
def gelu(call: Call, x: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


def _apply_along(call: Call, x: Tensor, axis: int | None, function: Callable) -> Tensor:
    """Apply `function` along one axis; before opset 13, over that axis and all later ones, flattened."""
    if call.opset >= 13:
        return function(x, -1 if axis is None else axis)
    axis = (1 if axis is None else axis) % max(x.dim(), 1)
    return function(x.flatten(axis), axis).reshape(x.shape)


@node("Softmax")
def softmax(call: Call, x: Tensor, axis: int | None = None) -> Tensor:
    return _apply_along(call, x, axis, lambda y, a: flambeau.softmax(y, a))


@node("LogSoftmax")
def log_softmax(call: Call, x: Tensor, axis: int | None = None) -> Tensor:
    return _apply_along(call, x, axis, lambda y, a: flambeau.log_softmax(y, a))


@node("Hardmax")
def hardmax(call: Call, x: Tensor, axis: int | None = None) -> Tensor:
    def best(y: Tensor, a: int) -> Tensor:
        return flambeau.zeros_like(y).scatter(a, y.argmax(a, keepdim=True), 1)

    return _apply_along(call, x, axis, best)


@node("Dropout")
def dropout(
    call: Call, x: Tensor, p_input: Any = None, training: Any = None, seed: int | None = None, is_test: int = 0,
    ratio: float = 0.5,
) -> Any:  # fmt: skip
    p = float(ratio if p_input is None else p_input)
    on = training is not None and bool(training)
    if not on or p == 0:
        return x, flambeau.ones_like(x, dtype=flambeau.bool)
    kept = flambeau.rand_like(x) >= p
    return x * kept / (1 - p), kept
