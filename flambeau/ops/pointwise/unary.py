"""Elementary functions of one number: exponentials, logarithms, roots, trigonometric and hyperbolic functions."""

from __future__ import annotations

import math
from typing import Any

from ...expr import functions as f
from ..kinds import mkldnn_takes
from ..machinery.declare import pointwise
from ..machinery.dtype_rules import promote_float
from ..machinery.formula import Pointwise
from ..machinery.quirks import Quirks

_LOG2 = math.log(2)


# -- exponentials, logarithms, roots -------------------------------------------------------------------------------------


@pointwise(rule=promote_float, grad=lambda g, input, out: (g * f.conj(out),), autocast_cuda="float32")
def exp(input):
    """e ** input"""
    return f.exp(input)


@pointwise(rule=promote_float, grad=lambda g, input, out: (g * f.conj(out * _LOG2),), aliases=("special.exp2",))
def exp2(input):
    """2 ** input"""
    return f.exp2(input)


@pointwise(
    rule=promote_float,
    grad=lambda g, input, out: (g * f.conj(out + 1),),
    aliases=("special.expm1",),
    autocast_cuda="float32",
)
def expm1(input):
    """exp(input) - 1, accurate near zero"""
    return f.expm1(input)


@pointwise(rule=promote_float, autocast_cuda="float32")
def log(input):
    """The natural logarithm."""
    return f.log(input)


@pointwise(rule=promote_float, autocast_cuda="float32")
def log2(input):
    """The logarithm to base 2."""
    return f.log2(input)


@pointwise(rule=promote_float, autocast_cuda="float32")
def log10(input):
    """The logarithm to base 10."""
    return f.log10(input)


@pointwise(
    rule=promote_float, aliases=("special.log1p",), quirks=Quirks(label="Log1PBackward0"), autocast_cuda="float32"
)
def log1p(input):
    """log(1 + input), accurate near zero"""
    return f.log1p(input)


@pointwise(rule=promote_float, grad=lambda g, input, out: (g / f.conj(2 * out),))
def sqrt(input):
    """The square root."""
    return f.sqrt(input)


@pointwise(
    rule=promote_float, grad=lambda g, input, out: (-0.5 * g * f.conj(out * out * out),), autocast_cuda="float32"
)
def rsqrt(input):
    """1 / sqrt(input)"""
    return f.rsqrt(input)


# -- trigonometric and hyperbolic functions ------------------------------------------------------------------------------


@pointwise(rule=promote_float)
def sin(input):
    """The sine."""
    return f.sin(input)


@pointwise(rule=promote_float)
def cos(input):
    """The cosine."""
    return f.cos(input)


@pointwise(rule=promote_float, grad=lambda g, input, out: (g * f.conj(1 + out * out),), autocast_cuda="float32")
def tan(input):
    """The tangent."""
    return f.tan(input)


@pointwise(rule=promote_float, aliases=("arcsin",), autocast_cuda="float32")
def asin(input):
    """The angle whose sine is the input."""
    return f.asin(input)


@pointwise(rule=promote_float, aliases=("arccos",), autocast_cuda="float32")
def acos(input):
    """The angle whose cosine is the input."""
    return f.acos(input)


@pointwise(rule=promote_float, aliases=("arctan",))
def atan(input):
    """The angle whose tangent is the input."""
    return f.atan(input)


@pointwise(rule=promote_float, autocast_cuda="float32")
def sinh(input):
    """The hyperbolic sine."""
    return f.sinh(input)


@pointwise(rule=promote_float, autocast_cuda="float32")
def cosh(input):
    """The hyperbolic cosine."""
    return f.cosh(input)


@pointwise(
    rule=promote_float,
    grad=lambda g, input, out: (g * f.conj(1 - out * out),),
    aten_backward="tanh_backward(grad, result)",
)
def tanh(input):
    """The hyperbolic tangent."""
    return f.tanh(input)


@pointwise(rule=promote_float, aliases=("arcsinh",), quirks=Quirks(inplace_label="AsinhBackward1"))
def asinh(input):
    """The inverse of sinh."""
    return f.asinh(input)


@pointwise(rule=promote_float, aliases=("arccosh",), quirks=Quirks(inplace_label="AcoshBackward1"))
def acosh(input):
    """The inverse of cosh."""
    return f.acosh(input)


@pointwise(rule=promote_float, aliases=("arctanh",), quirks=Quirks(inplace_label="AtanhBackward1"))
def atanh(input):
    """The inverse of tanh."""
    return f.atanh(input)


def _atan2_gradient(g, input, other, out):
    squares = input * input + other * other
    share = f.where(squares == 0, 0, g / squares)  # at the origin, where the angle jumps, the slope is taken to be 0
    return share * other, -share * input


@pointwise(
    rule=promote_float, kinds="bif", numbers=(), grad=_atan2_gradient, aliases=("arctan2",), autocast_cuda="widest"
)
def atan2(input, other):
    """The angle of the point (other, input)."""
    return f.atan2(input, other)


def _sinc_gradient(g, input, out):
    angle = math.pi * input
    slope = (f.cos(angle) - f.sin(angle) / angle) / input
    return (f.where(input == 0, 0, g * f.conj(slope)),)


@pointwise(rule=promote_float, grad=_sinc_gradient, aliases=("special.sinc",))
def sinc(input):
    """sin(pi * input) / (pi * input), and 1 at zero"""
    angle = math.pi * input
    return f.where(input == 0, 1, f.sin(angle) / angle)


def _no_complex(op: Pointwise, operands: tuple[Any, ...]) -> None:
    if operands[0].dtype.is_complex:
        raise RuntimeError(f"{op.name} is not supported for complex tensors.")


@pointwise(rule=promote_float, check=_no_complex, quirks=Quirks(label="Deg2RadBackward0"))
def deg2rad(input):
    """Degrees to radians."""
    return input * (math.pi / 180)


@pointwise(rule=promote_float, check=_no_complex, quirks=Quirks(label="Rad2DegBackward0"))
def rad2deg(input):
    """Radians to degrees."""
    return input * (180 / math.pi)


# -- the logistic function -----------------------------------------------------------------------------------------------


@pointwise(
    rule=promote_float,
    grad=lambda g, input, out: (g * f.conj((1 - out) * out),),
    aliases=("special.expit",),
    aten_backward="sigmoid_backward(grad, result)",
)
def sigmoid(input):
    """1 / (1 + exp(-input))"""
    return f.sigmoid(input)


def _logit_gradient(g, input, eps, out):
    slope = g / (input * (1 - input))
    if eps is None:
        return (f.where((input < 0) | (input > 1), math.nan, slope),)
    return (f.where((input < eps) | (input > 1 - eps), 0, slope),)


@pointwise(
    rule=promote_float,
    kinds="bif",
    grad=_logit_gradient,
    aliases=("special.logit",),
    aten_backward="logit_backward(grad, self, eps)",
)
def logit(input, eps=None, compute=None):
    """log(input / (1 - input)), with input limited to [eps, 1 - eps] if eps is given"""
    if eps is not None:
        input = f.rounded(f.where(input < eps, eps, f.where(input > 1 - eps, 1 - eps, input)), compute)
    return f.log(f.rounded(input / f.rounded(1 - input, compute), compute))


mkldnn_takes("sigmoid", "tanh")
