"""Operators that work element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau

from ...core.dtype import dtype as DType  # noqa: N812
from ..builder import Builder, Value
from ..registry import aten, form


def example(value: Any) -> Any:
    """What type promotion looks at: a tensor without memory, or the number itself."""
    if isinstance(value, Value):
        shape = (0,) if value.rank != 0 else ()
        return flambeau.empty(shape, dtype=value.dtype, device="meta")
    return value


def promoted(*values: Any) -> DType:
    """The dtype in which an operator of these computes."""
    examples = [example(v) for v in values if v is not None]
    if len(examples) == 1:
        return examples[0].dtype if isinstance(values[0], Value) else flambeau.result_type(examples[0], examples[0])
    found = flambeau.result_type(examples[0], examples[1])
    for other in examples[2:]:
        found = flambeau.promote_types(
            found, flambeau.result_type(flambeau.empty(0, dtype=found, device="meta"), other)
        )
    return found


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


def _unary(name: str, kind: str, floats: bool = True) -> None:
    @form(getattr(aten, name))
    def run(g: Builder, self: Value) -> Value:
        x = as_float(g, self) if floats else self
        return g.op(kind, x).known(x.dtype, x.shape)


for _name, _kind in {
    "acos": "Acos",
    "acosh": "Acosh",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "log": "Log",
    "reciprocal": "Reciprocal",
    "sigmoid": "Sigmoid",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
}.items():
    _unary(_name, _kind)
for _name, _kind in {
    "abs": "Abs",
    "neg": "Neg",
    "sign": "Sign",
    "sgn": "Sign",
    "relu": "Relu",
}.items():
    _unary(_name, _kind, floats=False)


def _rounding(name: str, kind: str) -> None:
    @form(getattr(aten, name))
    def run(g: Builder, self: Value) -> Value:
        return self if _integral(self.dtype) else g.op(kind, self).known(self.dtype, self.shape)


_rounding("ceil", "Ceil")
_rounding("floor", "Floor")


@form(aten.round, aten.special_round)
def round_(g: Builder, self: Value, decimals: int = 0) -> Value:
    if _integral(self.dtype):
        return self
    if not decimals:
        return g.op("Round", self).known(self.dtype, self.shape)
    scale = g.number(10.0**decimals, self)
    return g.op("Div", g.op("Round", g.op("Mul", self, scale)), scale).known(self.dtype, self.shape)


@form(aten.trunc, aten.fix)
def trunc(g: Builder, self: Value) -> Value:
    if _integral(self.dtype):
        return self
    return g.op("Mul", g.op("Sign", self), g.op("Floor", g.op("Abs", self))).known(self.dtype, self.shape)


@form(aten.frac)
def frac(g: Builder, self: Value) -> Value:
    return g.op("Sub", self, trunc(g, self)).known(self.dtype, self.shape)


def _scaled(name: str, before: Callable | None, kind: str, after: Callable | None) -> None:
    @form(getattr(aten, name))
    def run(g: Builder, self: Value) -> Value:
        x = as_float(g, self)
        y = before(g, x) if before else x
        y = g.op(kind, y)
        return (after(g, y, x) if after else y).known(x.dtype, x.shape)


_LN2, _LN10 = math.log(2), math.log(10)
_scaled("log2", None, "Log", lambda g, y, x: g.op("Div", y, g.number(_LN2, x)))
_scaled("log10", None, "Log", lambda g, y, x: g.op("Div", y, g.number(_LN10, x)))
_scaled("log1p", lambda g, x: g.op("Add", x, g.number(1, x)), "Log", None)
_scaled("expm1", None, "Exp", lambda g, y, x: g.op("Sub", y, g.number(1, x)))
_scaled("exp2", lambda g, x: g.op("Mul", x, g.number(_LN2, x)), "Exp", None)
_scaled("rsqrt", None, "Sqrt", lambda g, y, x: g.op("Reciprocal", y))
_scaled("erfc", None, "Erf", lambda g, y, x: g.op("Sub", g.number(1, x), y))
_scaled("deg2rad", lambda g, x: g.op("Mul", x, g.number(math.pi / 180, x)), "Identity", None)
_scaled("rad2deg", lambda g, x: g.op("Mul", x, g.number(180 / math.pi, x)), "Identity", None)


@form(aten.sinc)
def sinc(g: Builder, self: Value) -> Value:
    x = as_float(g, self)
    y = g.op("Mul", x, g.number(math.pi, x))
    zero = g.op("Equal", x, g.number(0, x))
    return g.op("Where", zero, g.number(1, x), g.op("Div", g.op("Sin", y), y)).known(x.dtype, x.shape)


@form(aten.square)
def square(g: Builder, self: Value) -> Value:
    return g.op("Mul", self, self).known(self.dtype, self.shape)


@form(aten.isnan)
def isnan(g: Builder, self: Value) -> Value:
    return g.op("IsNaN", as_float(g, self)).known(flambeau.bool, self.shape)


@form(aten.isinf)
def isinf(g: Builder, self: Value) -> Value:
    return g.op("IsInf", g.cast(as_float(g, self), flambeau.float32)).known(flambeau.bool, self.shape)


@form(aten.isneginf, aten.isposinf)
def _signed_inf(g: Builder, self: Value, name: str = "") -> Value:
    positive = name.endswith("isposinf")
    x = g.cast(as_float(g, self), flambeau.float32)
    return g.op("IsInf", x, detect_positive_i=int(positive), detect_negative_i=int(not positive)).known(
        flambeau.bool, self.shape
    )


@form(aten.isfinite)
def isfinite(g: Builder, self: Value) -> Value:
    odd = g.op("Or", isnan(g, self), isinf(g, self))
    return g.op("Not", odd).known(flambeau.bool, self.shape)


@form(aten.signbit)
def signbit(g: Builder, self: Value) -> Value:
    return g.op("Less", self, g.number(0, self)).known(flambeau.bool, self.shape)


# -- two operands -----------------------------------------------------------------------------------------------------------


def binary(g: Builder, kind: str, a: Any, b: Any) -> Value:
    x, y = together(g, a, b)
    return g.op(kind, x, y).known(x.dtype, broadcast(x, y))


def _with_alpha(g: Builder, kind: str, a: Any, b: Any, alpha: Any) -> Value:
    x, y = together(g, a, b)
    if x.dtype == flambeau.bool:
        return g.op("Or", x, y).known(x.dtype, broadcast(x, y))
    if alpha != 1:
        y = g.op("Mul", y, g.number(alpha, y)).known(y.dtype, y.shape)
    return g.op(kind, x, y).known(x.dtype, broadcast(x, y))


@form(aten.add)
def add(g: Builder, self: Any, other: Any, alpha: Any = 1) -> Any:
    if isinstance(self, list):
        return self + other
    return _with_alpha(g, "Add", self, other, alpha)


@form(aten.sub, aten.subtract)
def sub(g: Builder, self: Any, other: Any, alpha: Any = 1) -> Value:
    return _with_alpha(g, "Sub", self, other, alpha)


@form(aten.rsub)
def rsub(g: Builder, self: Any, other: Any, alpha: Any = 1) -> Value:
    return _with_alpha(g, "Sub", other, self, alpha)


@form(aten.mul, aten.multiply)
def mul(g: Builder, self: Any, other: Any) -> Value:
    x, y = together(g, self, other)
    return g.op("And" if x.dtype == flambeau.bool else "Mul", x, y).known(x.dtype, broadcast(x, y))


@form(aten.div, aten.divide, aten.true_divide)
def div(g: Builder, self: Any, other: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode == "floor":
        return floor_divide(g, self, other)
    x, y = together(g, self, other)
    if rounding_mode == "trunc":
        out = g.op("Div", x, y).known(x.dtype, broadcast(x, y))
        return out if _integral(x.dtype) else trunc(g, out)
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


@form(aten.remainder, aten.fmod)
def remainder(g: Builder, self: Any, other: Any, name: str = "") -> Value:
    x, y = together(g, self, other)
    shape = broadcast(x, y)
    if name.endswith("fmod"):
        return g.op("Mod", x, y, fmod_i=1).known(x.dtype, shape)
    if _integral(x.dtype):
        return g.op("Mod", x, y).known(x.dtype, shape)
    return g.op("Sub", x, g.op("Mul", g.op("Floor", g.op("Div", x, y)), y)).known(x.dtype, shape)


@form(aten.pow, aten.float_power)
def pow_(g: Builder, self: Any, exponent: Any, name: str = "") -> Value:
    dtype = flambeau.float64 if name.endswith("float_power") else promoted(self, exponent)
    x = g.number(self, dtype)
    if isinstance(exponent, (int, float)) and g.opset >= 12 and dtype.is_floating_point:
        y = g.constant(float(exponent), dtype)
    else:
        y = g.number(exponent, dtype)
    return g.op("Pow", x, y).known(dtype, broadcast(x, y))


@form(aten.maximum, aten.minimum, aten.fmax, aten.fmin)
def _extreme(g: Builder, self: Value, other: Value, name: str = "") -> Value:
    x, y = together(g, self, other)
    kind = "Max" if name.endswith("max") or name.endswith("maximum") else "Min"
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


@form(aten.hypot)
def hypot(g: Builder, self: Value, other: Value) -> Value:
    x, y = together(g, self, other)
    return g.op("Sqrt", g.op("Add", g.op("Mul", x, x), g.op("Mul", y, y))).known(x.dtype, broadcast(x, y))


@form(aten.copysign)
def copysign(g: Builder, self: Any, other: Any) -> Value:
    x, y = (as_float(g, v) for v in together(g, self, other))
    size = g.op("Abs", x)
    return g.op("Where", g.op("Less", y, g.number(0, y)), g.op("Neg", size), size).known(x.dtype, broadcast(x, y))


@form(aten.heaviside)
def heaviside(g: Builder, self: Value, values: Value) -> Value:
    x, v = together(g, self, values)
    zero = g.number(0, x)
    positive = g.cast(g.op("Greater", x, zero).known(flambeau.bool, x.shape), x.dtype)
    return g.op("Where", g.op("Equal", x, zero), v, positive).known(x.dtype, broadcast(x, v))


@form(aten.logaddexp)
def logaddexp(g: Builder, self: Value, other: Value) -> Value:
    x, y = together(g, self, other)
    top = g.op("Max", x, y)
    parts = g.op("Add", g.op("Exp", g.op("Sub", x, top)), g.op("Exp", g.op("Sub", y, top)))
    made = g.op("Add", g.op("Log", parts), top)
    same = g.op("Add", x, g.number(math.log(2), x))  # two infinities have no difference
    return g.op("Where", g.op("Equal", x, y), same, made).known(x.dtype, broadcast(x, y))


@form(aten.xlogy, aten.special_xlogy)
def xlogy(g: Builder, self: Any, other: Any) -> Value:
    x, y = (as_float(g, v) for v in together(g, self, other))
    zero = g.number(0, x)
    plain = g.op("Where", g.op("Equal", x, zero), zero, g.op("Mul", x, g.op("Log", y)))
    return g.op("Where", g.op("IsNaN", y), y, plain).known(x.dtype, broadcast(x, y))


def of_same_shape(x: Value, made: Value) -> Value:
    return made.known(x.dtype, x.shape)


# -- clamps ---------------------------------------------------------------------------------------------------------------------


@form(aten.clamp, aten.clip)
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


@form(aten.clamp_min)
def clamp_min(g: Builder, self: Value, min: Any) -> Value:
    return clamp(g, self, min)


@form(aten.clamp_max)
def clamp_max(g: Builder, self: Value, max: Any) -> Value:
    return clamp(g, self, None, max)


@form(aten.lerp)
def lerp(g: Builder, self: Value, end: Value, weight: Any) -> Value:
    return g.op("Add", self, g.op("Mul", g.op("Sub", end, self), g.number(weight, self))).known(
        self.dtype, broadcast(self, end)
    )


@form(aten.addcmul)
def addcmul(g: Builder, self: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    return add(g, self, mul(g, tensor1, tensor2), value)


@form(aten.addcdiv)
def addcdiv(g: Builder, self: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    return add(g, self, div(g, tensor1, tensor2), value)


@form(aten.nan_to_num)
def nan_to_num(
    g: Builder, self: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    if not self.dtype.is_floating_point:
        return self
    info = flambeau.finfo(self.dtype)
    x = g.op("Where", g.op("IsNaN", self), g.number(nan or 0.0, self), self)
    for sign, given, default in ((1, posinf, info.max), (0, neginf, info.min)):
        found = g.op(
            "IsInf",
            g.cast(x.known(self.dtype, self.shape), flambeau.float32),
            detect_positive_i=sign,
            detect_negative_i=1 - sign,
        )
        x = g.op("Where", found, g.number(default if given is None else given, self), x)
    return x.known(self.dtype, self.shape)


# -- the same value ------------------------------------------------------------------------------------------------------------------


@form(
    aten.detach,
    aten.detach_,
    aten.alias,
    aten.contiguous,
    aten.lift_fresh,
    aten.lift_fresh_copy,
    aten.positive,
    aten.resolve_conj,
    aten.resolve_neg,
    aten.conj,
    aten.conj_physical,
    aten.pin_memory,
    aten.real,
    aten.requires_grad_,
)
def same(g: Builder, self: Value) -> Value:
    if self.dtype is not None and self.dtype.is_complex:
        raise NotImplementedError("complex numbers")
    return self


@form(aten.clone)
def clone(g: Builder, self: Value) -> Value:
    return g.op("Identity", self).known(self.dtype, self.shape)


@form(aten.dropout, aten.dropout_, aten.feature_dropout, aten.alpha_dropout, aten.feature_alpha_dropout)
def dropout(g: Builder, input: Value, p: float, train: bool, name: str = "") -> Value:
    if not train:
        return input
    if not name.rstrip("_").endswith("::dropout"):
        raise NotImplementedError(f"{name} while training")
    if g.opset < 12:
        return of_same_shape(input, g.op("Dropout", input, ratio_f=p))
    return of_same_shape(input, g.op("Dropout", input, g.number(p, flambeau.float32), g.constant(True, flambeau.bool)))


@form(aten.to, aten.type_as, aten._to_copy)
def to(g: Builder, self: Value, dtype: Any = None, other: Any = None) -> Value:
    dtype = other.dtype if isinstance(other, Value) else dtype
    return self if dtype is None else g.cast(self, dtype)
