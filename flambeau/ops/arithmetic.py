"""Arithmetic: the operators behind + - * / and their in-place forms."""

from __future__ import annotations

from typing import Any

from ..core import dtype as dt
from ..core.tensor import Tensor
from ..expr import functions as f
from .declare import composite, pointwise
from .formula import Pointwise, compare, integral, promote_float
from .formula import select as select_rule


def _check_alpha(name: str) -> Any:
    def check(impl: Pointwise, operands: tuple) -> None:
        if all((x.dtype if isinstance(x, Tensor) else None) is dt.bool_ for x in operands) and name == "sub":
            raise RuntimeError(
                "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator"
                " instead."
            )

    return check


@pointwise
def add(input, other, alpha=1):
    """input + alpha * other"""
    return input + other if alpha is None else input + f.as_expr(alpha) * other


@pointwise(check=_check_alpha("sub"), aliases=("subtract",))
def sub(input, other, alpha=1):
    """input - alpha * other"""
    return input - f.as_expr(alpha) * other


@pointwise(aliases=("multiply",))
def mul(input, other):
    """input * other"""
    return input * other


@pointwise(rule=promote_float, aliases=("true_divide", "divide"), label="DivBackward0")
def div(input, other):
    """input / other"""
    return input / other


@pointwise(grad=lambda g, input, out: (-g,), aliases=("negative",))
def neg(input):
    """-input"""
    return -input


@pointwise
def remainder(input, other):
    """The remainder with the divisor's sign."""
    return input % other


@pointwise
def floor_divide(input, other):
    """The quotient, rounded down."""
    return input // other


@pointwise
def pow(input, exponent):
    """input ** exponent"""
    return input**exponent


@pointwise
def square(input):
    """input * input"""
    return input * input


@pointwise
def abs(input):
    """The absolute value."""
    return f.abs_(input)


@pointwise
def maximum(input, other):
    """The larger of two; nan wins."""
    return f.maximum(input, other)


@pointwise
def minimum(input, other):
    """The smaller of two; nan wins."""
    return f.minimum(input, other)


@pointwise(rule=promote_float, grad=lambda g, input, out: (g * f.conj(out),))
def exp(input):
    """e ** input"""
    return f.exp(input)


@pointwise(rule=promote_float)
def log(input):
    """The natural logarithm."""
    return f.log(input)


@pointwise(rule=promote_float, grad=lambda g, input, out: (g / f.conj(2 * out),))
def sqrt(input):
    """The square root."""
    return f.sqrt(input)


@pointwise(rule=promote_float, grad=lambda g, input, out: (g * f.conj(-0.5 * out * out * out),))
def rsqrt(input):
    """1 / sqrt(input)"""
    return f.rsqrt(input)


@pointwise(rule=promote_float, grad=lambda g, input, out: (g * f.conj(-out * out),))
def reciprocal(input):
    """1 / input"""
    return 1 / input


@pointwise(rule=promote_float)
def sin(input):
    """The sine."""
    return f.sin(input)


@pointwise(rule=promote_float)
def cos(input):
    """The cosine."""
    return f.cos(input)


@pointwise(
    rule=promote_float, grad=lambda g, input, out: (g * f.conj(1 - out * out),), namespaces=("torch", "nn.functional")
)
def tanh(input):
    """The hyperbolic tangent."""
    return f.tanh(input)


@pointwise(
    rule=promote_float, grad=lambda g, input, out: (g * f.conj((1 - out) * out),), namespaces=("torch", "nn.functional")
)
def sigmoid(input):
    """1 / (1 + exp(-input))"""
    return f.sigmoid(input)


@pointwise(grad=lambda g, input, out: (f.where(out > 0, g, 0),))
def relu(input):
    """max(input, 0)"""
    return f.maximum(input, 0)


@pointwise(rule=compare, differentiable=False)
def eq(input, other):
    """input == other"""
    return input == other


@pointwise(rule=compare, differentiable=False, aliases=("not_equal",))
def ne(input, other):
    """input != other"""
    return input != other


@pointwise(rule=compare, differentiable=False, aliases=("less",))
def lt(input, other):
    """input < other"""
    return input < other


@pointwise(rule=compare, differentiable=False, aliases=("less_equal",))
def le(input, other):
    """input <= other"""
    return input <= other


@pointwise(rule=compare, differentiable=False, aliases=("greater",))
def gt(input, other):
    """input > other"""
    return input > other


@pointwise(rule=compare, differentiable=False, aliases=("greater_equal",))
def ge(input, other):
    """input >= other"""
    return input >= other


@pointwise(rule=compare, differentiable=False)
def isnan(input):
    """Whether an element is not a number."""
    return f.isnan(input)


@pointwise(rule=compare, differentiable=False)
def logical_not(input):
    """Whether an element is zero."""
    return f.logical_not(input)


@pointwise(rule=compare, differentiable=False)
def logical_and(input, other):
    """Whether both are nonzero."""
    return (input != 0) & (other != 0)


@pointwise(rule=compare, differentiable=False)
def logical_or(input, other):
    """Whether one is nonzero."""
    return (input != 0) | (other != 0)


@pointwise(rule=integral, differentiable=False)
def bitwise_and(input, other):
    """input & other"""
    return input & other


@pointwise(rule=integral, differentiable=False)
def bitwise_or(input, other):
    """input | other"""
    return input | other


@pointwise(rule=integral, differentiable=False)
def bitwise_xor(input, other):
    """input ^ other"""
    return input ^ other


@pointwise(rule=integral, differentiable=False)
def bitwise_not(input):
    """~input"""
    return ~input


@pointwise(rule=select_rule, method=False, inplace=False)
def where(condition, input, other):
    """input where condition holds, else other."""
    return f.where(condition, input, other)


@composite(name="where", function=False)
def where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """self where condition holds, else other."""
    return where(condition, self, other)


@composite(inplace=True, out=True, aliases=("clip",))
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """input limited to the range from min to max."""
    if min is not None:
        input = maximum(input, min)
    return input if max is None else minimum(input, max)
