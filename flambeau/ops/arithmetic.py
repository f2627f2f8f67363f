"""Arithmetic: the operators behind + - * / and their in-place forms."""

from __future__ import annotations

from typing import Any

from ..core import dtype as dt
from ..core.tensor import Tensor
from ..expr import functions as f
from .declare import pointwise
from .formula import Pointwise, promote_float


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


@pointwise(rule=promote_float, method=False, inplace=False, out=False, name="true_div", label="DivBackward0")
def true_div(input, other):
    return input / other


@pointwise(grad=lambda g, input, out: (-g,), aliases=("negative",))
def neg(input):
    """-input"""
    return -input


@pointwise(rule=promote_float, grad=lambda g, input, out: (g * f.conj(out),))
def exp(input):
    """e ** input"""
    return f.exp(input)
