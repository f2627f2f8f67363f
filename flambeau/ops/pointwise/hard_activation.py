"""Piecewise linear activation functions: hardsigmoid, hardswish, hardshrink, softshrink."""

from __future__ import annotations

from typing import Any

from ...core.numeric_limits import finfo
from ...core.tensor import Tensor
from ...expr import functions as f
from ..machinery.aten_form import aten_parts
from ..machinery.declare import pointwise
from ..machinery.formula import Pointwise
from .activation import FUNCTIONAL, with_inplace

# -- piecewise linear and shrinking --------------------------------------------------------------------------------------


@pointwise(
    name="hardsigmoid",
    function=False,
    kinds="f",
    method=False,
    grad=lambda g, input, out: (f.where((input > -3) & (input < 3), g * (1 / 6), 0),),
    inplace_grad=lambda g, input, out: (f.where((out > 0) & (out < 1), g * (1 / 6), 0),),
    aten_backward="hardsigmoid_backward(grad, self)",
)
def _hardsigmoid(input):
    """input / 6 + 1/2, limited to [0, 1]"""
    return f.minimum(f.maximum(input + 3, 0), 6) / 6


hardsigmoid = with_inplace(_hardsigmoid)


def _six_times_gate(aten: Any, self: Tensor) -> Tensor:
    return aten.clamp.default(aten.clamp.default(aten.add.Tensor(self, 3), 0), None, 6)


aten_parts("hardsigmoid")(lambda aten, self: aten.div.Tensor(_six_times_gate(aten, self), 6))


@pointwise(
    name="hardswish",
    function=False,
    kinds="f",
    method=False,
    grad=lambda g, input, out: (f.where(input <= -3, 0, f.where(input < 3, g * (input / 3 + 0.5), g)),),
    aten_backward="hardswish_backward(grad, self)",
)
def _hardswish(input):
    """input * hardsigmoid(input)"""
    return input * f.minimum(f.maximum(input + 3, 0), 6) / 6


hardswish = with_inplace(_hardswish)
aten_parts("hardswish")(lambda aten, self: aten.div.Tensor(aten.mul.Tensor(self, _six_times_gate(aten, self)), 6))


@pointwise(
    out="exact",
    kinds="f",
    fits=("lambd",),
    namespaces=("torch", "nn.functional"),
    inplace=False,
    grad=lambda g, input, lambd, out: (f.where((input >= -lambd) & (input <= lambd), 0, g),),
    aten_backward="hardshrink_backward(grad, self, lambd)",
)
def hardshrink(input, lambd=0.5, compute=None):
    """input, but zero in [-lambd, lambd]"""
    lambd = f.rounded(lambd, compute)
    return f.where((input >= -lambd) & (input <= lambd), 0, input)


def _check_softshrink(op: Pointwise, operands: tuple[Any, ...], params: tuple[Any, ...]) -> None:
    d = operands[0].dtype
    if d.is_floating_point and not 0 <= params[0] <= finfo(d).max:
        raise RuntimeError(
            f"lambda must be in range [0, {finfo(d).max:g}] for input dtype {d.scalar_type}, but found {params[0]:g}"
        )


@pointwise(
    out="exact",
    kinds="f",
    kernel="softshrink_check",
    namespaces=FUNCTIONAL,
    method=False,
    inplace=False,
    check=_check_softshrink,
    constants={"lambd": None},
    grad=lambda g, input, lambd, out: (f.where((input >= -lambd) & (input <= lambd), 0, g),),
    aten_backward="softshrink_backward(grad, self, lambd)",
)
def softshrink(input, lambd=0.5):
    """input moved towards zero by lambd"""
    return f.where(input > lambd, input - lambd, f.where(input < -lambd, input + lambd, input * 0))  # -0.0, NaN
