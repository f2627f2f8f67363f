"""Special functions: error functions, the gamma family, products with logarithms. Most live in flambeau.special too."""

from __future__ import annotations

import math
from typing import Any

from ..core.dtype import dtype
from ..core.promotion import get_default_dtype
from ..core.tensor import Tensor
from ..expr import Expr
from ..expr import functions as f
from .declare import composite, pointwise
from .dtype_rules import promote_float
from .formula import Pointwise

_SPECIAL = ("special",)
_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)
_INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
_SQRT_HALF = math.sqrt(0.5)


# -- error functions -----------------------------------------------------------------------------------------------------


@pointwise(
    rule=promote_float,
    kinds="bif",
    kernel="erf_vml_cpu",
    aliases=("special.erf",),
    grad=lambda g, input, out: (_TWO_OVER_SQRT_PI * f.exp(-(input * input)) * g,),
)
def erf(input):
    """The error function."""
    return f.erf(input)


@pointwise(
    rule=promote_float,
    kinds="bif",
    kernel="erfc_vml_cpu",
    aliases=("special.erfc",),
    grad=lambda g, input, out: (-_TWO_OVER_SQRT_PI * f.exp(-(input * input)) * g,),
)
def erfc(input):
    """1 - erf(input)"""
    return f.erfc(input)


@pointwise(
    rule=promote_float,
    kinds="bif",
    kernel="erfinv_vml_cpu",
    aliases=("special.erfinv",),
    grad=lambda g, input, out: (g * (0.5 * math.sqrt(math.pi) * f.exp(out * out)),),
)
def erfinv(input):
    """The inverse of erf."""
    return f.erfinv(input)


@pointwise(
    rule=promote_float,
    kinds="bif",
    namespaces=_SPECIAL,
    method=False,
    inplace=False,
    grad=lambda g, input, out: (g * (_INV_SQRT_2PI * f.exp(-0.5 * (input * input))),),
)
def ndtr(input):
    """The distribution function of the standard normal distribution."""
    x = input * _SQRT_HALF
    return f.where(f.abs_(x) < 1, 0.5 + 0.5 * f.erf(x), f.where(x > 0, 1 - 0.5 * f.erfc(x), 0.5 * f.erfc(-x)))


# -- the gamma family ----------------------------------------------------------------------------------------------------


@pointwise(rule=promote_float, kinds="bif", kernel="digamma", aliases=("special.digamma", "special.psi"))
def digamma(input):
    """The derivative of lgamma."""
    return f.digamma(input)


@pointwise(rule=promote_float, kinds="bif", kernel="lgamma_vml_cpu", aliases=("special.gammaln",))
def lgamma(input):
    """The logarithm of |gamma(input)|"""
    return f.lgamma(input)


def _check_order(op: Pointwise, operands: tuple, params: tuple) -> None:
    if params[0] < 1:
        raise RuntimeError("p has to be greater than or equal to 1")


def _mvlgamma_rule(op: Pointwise, operands: tuple) -> tuple[dtype, dtype]:
    d = operands[0].dtype
    return (d, d) if d.category >= 2 else (get_default_dtype(),) * 2


@pointwise(
    rule=_mvlgamma_rule, kinds="bif", constants={"p": None}, check=_check_order, method=False, function=False, inplace=False,
    out=False, label="MvlgammaBackward0",
)  # fmt: skip
def multivariate(input, p=1):
    """log of the multivariate gamma function of dimension p"""
    total: Any = f.const(p * (p - 1) / 4 * math.log(math.pi))
    for j in range(p):
        total = total + f.lgamma(input - j / 2)
    return total


@composite(out=True, inplace=True, aliases=("special.multigammaln",))
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p."""
    return multivariate(input, p)


# -- products with logarithms --------------------------------------------------------------------------------------------


def _xlogy_gradient(g: Expr, input: Expr, other: Expr, out: Expr) -> tuple:
    return f.where((input == 0) & (other <= 0), 0, g * f.log(other)), g * input / other


@pointwise(
    rule=promote_float, kinds="bif", numbers=("input", "other"), grad=_xlogy_gradient, aliases=("special.xlogy",)
)  # fmt: skip
def xlogy(input, other):
    """input * log(other), and 0 where input is 0 (unless other is nan)"""
    return f.where(other != other, other, f.where(input == 0, 0, input * f.log(other)))


def _xlog1py_gradient(g: Expr, input: Expr, other: Expr, out: Expr) -> tuple:
    return f.where((input == 0) & (other <= -1), 0, g * f.log1p(other)), g * input / (other + 1)


@pointwise(
    rule=promote_float,
    kinds="bif",
    numbers=("input", "other"),
    namespaces=_SPECIAL,
    method=False,
    inplace=False,
    grad=_xlog1py_gradient,
)
def xlog1py(input, other):
    """input * log1p(other), and 0 where input is 0 (unless other is nan)"""
    return f.where(other != other, other, f.where(input == 0, 0, input * f.log1p(other)))


def _entropy_gradient(g: Expr, input: Expr, out: Expr) -> tuple:
    return (g * f.where(input < 0, math.nan, -f.log(input) - 1),)


@pointwise(
    rule=promote_float, kinds="bif", namespaces=_SPECIAL, method=False, inplace=False, grad=_entropy_gradient
)  # fmt: skip
def entr(input):
    """-input * log(input); 0 at 0, -inf below"""
    return f.where(
        input != input, input, f.where(input > 0, -input * f.log(input), f.where(input == 0, 0, -math.inf))
    )


# -- sums of exponentials and squares ------------------------------------------------------------------------------------


def _logaddexp_gradient(g: Expr, input: Expr, other: Expr, out: Expr, compute: dtype) -> tuple:
    """Each gets its share of the sum; equal infinities share evenly."""
    if compute.is_complex:
        first = f.conj(1 / (1 + f.exp(other - input)))
        second = f.conj(1 / (1 + f.exp(input - other)))
        return g * first, g * second
    same = (input == other) & f.isinf(input)
    return (
        f.where(same, 0.5 * g, g / (1 + f.exp(other - input))),
        f.where(same, 0.5 * g, g / (1 + f.exp(input - other))),
    )


@pointwise(kinds="fc", numbers=(), inplace=False, grad=_logaddexp_gradient)
def logaddexp(input, other, compute=None):
    """log(exp(input) + exp(other))"""
    if compute is not None and compute.is_complex:
        return _complex_logaddexp(input, other)
    largest, difference = f.maximum(input, other), f.abs_(input - other)
    return f.where(f.isinf(input) & (input == other), input, largest + f.log1p(f.exp(-difference)))


def _complex_logaddexp(input: Expr, other: Expr) -> Expr:
    """Relative to the operand with the larger real part, so that nothing overflows."""
    first_wins = f.real(input) >= f.real(other)
    high, low = f.where(first_wins, input, other), f.where(first_wins, other, input)
    return f.where((input == other) & f.isinf(f.real(input)), input, high + f.log1p(f.exp(low - high)))


def _logaddexp2_gradient(g: Expr, input: Expr, other: Expr, out: Expr) -> tuple:
    return g / (1 + f.exp2(other - input)), g / (1 + f.exp2(input - other))


@pointwise(kinds="f", numbers=(), inplace=False, grad=_logaddexp2_gradient)
def logaddexp2(input, other):
    """log2(2 ** input + 2 ** other)"""
    largest, difference = f.maximum(input, other), f.abs_(input - other)
    sum_ = largest + f.log1p(f.exp2(-difference)) * (1 / math.log(2))
    return f.where(f.isinf(input) & (input == other), input, sum_)


@pointwise(
    kinds="f", numbers=(), grad=lambda g, input, other, out: (g * (input / out), g * (other / out))
)  # fmt: skip
def hypot(input, other):
    """sqrt(input ** 2 + other ** 2), without overflow in between"""
    a, b = f.abs_(input), f.abs_(other)
    large, small = f.maximum(a, b), f.minimum(a, b)
    ratio = f.where(large == 0, 0, small / large)
    length = f.where(f.isinf(a) | f.isinf(b), math.inf, large * f.sqrt(1 + ratio * ratio))
    return length
