"""Special functions: error functions, the gamma family, products with logarithms. Most are in flambeau.special, too."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from ...core.dtype import dtype
from ...core.promotion import get_default_dtype
from ...core.tensor import Tensor
from ...expr import Expr
from ...expr import functions as f
from ...expr.derivative import RULES
from ...kernels import special, special_bessel, special_loops
from ...kernels.formula_function import FormulaFunction
from ..machinery.declare import composite, pointwise
from ..machinery.dtype_rules import promote_float
from ..machinery.formula import Pointwise, camel
from ..machinery.quirks import Quirks

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
    quirks=Quirks(inplace_function=False),
    autocast_cuda="float32",
)
def erfinv(input):
    """The inverse of erf."""
    return f.erfinv(input)


# The derivatives of these are each other; as functions of their own they stay exact however often they are differentiated.
_erfcx = FormulaFunction("erfcx", special.erfcx, lambda x, y: (2 * x * y - _TWO_OVER_SQRT_PI,), "special_erfcx")
_log_ndtr = FormulaFunction(
    "log_ndtr", special.log_ndtr, lambda x, y: (math.sqrt(2 / math.pi) / _erfcx(-x * _SQRT_HALF),), "special_log_ndtr"
)
_ndtri = FormulaFunction(
    "ndtri", special.ndtri, lambda x, y: (math.sqrt(2 * math.pi) * f.exp(0.5 * y * y),), "special_ndtri"
)
_i0 = FormulaFunction("i0", special.i0, lambda x, y: (_i1(x),), "i0")
_i1: FormulaFunction = FormulaFunction(
    "i1", special.i1, lambda x, y: (f.where(x == 0, 0.5, _i0(x) - y / _not_zero(x)),), "special_i1"
)
_i0e = FormulaFunction("i0e", special.i0e, lambda x, y: (_i1e(x) - f.sign(x) * y,), "special_i0e")
_i1e: FormulaFunction = FormulaFunction(
    "i1e",
    special.i1e,
    lambda x, y: (f.where(x == 0, 0.5, _i0e(x) - y * (f.sign(x) + 1 / _not_zero(x))),),
    "special_i1e",
)


def _not_zero(x: Expr) -> Expr:
    """Return a divisor for a branch that zero does not take, but whose derivative would evaluate it."""
    return f.where(x == 0, 1, x)


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
    return special.ndtr(input)


def _of_one(name: str, formula: Callable[..., Any], doc: str, differentiable: bool = True) -> None:
    """Declare flambeau.special.<name>(input)."""

    def function(input: Any) -> Any:
        return formula(input)

    function.__doc__ = doc
    pointwise(
        function, name=name, rule=promote_float, kinds="bif", namespaces=_SPECIAL, method=False, inplace=False,
        differentiable=differentiable, quirks=Quirks(label=f"Special{camel(name)}Backward0"),
    )  # fmt: skip


_of_one("erfcx", _erfcx, "exp(input ** 2) * erfc(input)")
_of_one("log_ndtr", _log_ndtr, "The logarithm of ndtr.")
_of_one("ndtri", _ndtri, "The inverse of ndtr.")


# -- Bessel and Airy functions -------------------------------------------------------------------------------------------


@pointwise(rule=promote_float, kinds="bif", kernel="i0_vml_cpu", aliases=("special.i0",))
def i0(input):
    """The modified Bessel function of the first kind of order 0."""
    return _i0(input)


_of_one("i0e", _i0e, "exp(-|input|) * i0(input)")
_of_one("i1", _i1, "The modified Bessel function of the first kind of order 1.")
_of_one("i1e", _i1e, "exp(-|input|) * i1(input)")
_of_one("modified_bessel_i0", special.i0, "The modified Bessel function of the first kind of order 0.", False)
_of_one("modified_bessel_i1", special.i1, "The modified Bessel function of the first kind of order 1.", False)
for _name, _doc in {
    "bessel_j0": "The Bessel function of the first kind of order 0.",
    "bessel_j1": "The Bessel function of the first kind of order 1.",
    "bessel_y0": "The Bessel function of the second kind of order 0.",
    "bessel_y1": "The Bessel function of the second kind of order 1.",
    "spherical_bessel_j0": "sin(input) / input",
    "modified_bessel_k0": "The modified Bessel function of the second kind of order 0.",
    "modified_bessel_k1": "The modified Bessel function of the second kind of order 1.",
    "scaled_modified_bessel_k0": "exp(input) * modified_bessel_k0(input)",
    "scaled_modified_bessel_k1": "exp(input) * modified_bessel_k1(input)",
    "airy_ai": "The Airy function Ai.",
}.items():
    _of_one(_name, getattr(special_bessel, _name), _doc, False)


# -- orthogonal polynomials ----------------------------------------------------------------------------------------------


def _polynomial(name: str) -> None:
    """Declare flambeau.special.<name>(input, n). Shifted polynomials on [0, 1] correspond to the others on [-1, 1]."""
    is_shifted, formula = name.startswith("shifted_"), getattr(special_loops, name.removeprefix("shifted_"))

    def function(input: Any, n: Any) -> Any:
        return formula(2 * special.double(input) - 1 if is_shifted else input, n)

    function.__doc__ = f"{name.replace('_', ' ')} of degree n, at input"
    pointwise(
        function, name=name, rule=promote_float, kinds="bif", numbers=("input", "n"), namespaces=_SPECIAL, method=False,
        inplace=False, differentiable=False,
    )  # fmt: skip


for _kind in "tuvw":
    _polynomial(f"chebyshev_polynomial_{_kind}")
    _polynomial(f"shifted_chebyshev_polynomial_{_kind}")
for _name in ("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"):
    _polynomial(_name)


# -- the gamma family ----------------------------------------------------------------------------------------------------


@functools.cache
def _polygamma(n: int) -> FormulaFunction:
    """Return the n-th derivative of digamma as a function; its own derivative is the next."""
    return FormulaFunction(
        f"polygamma{n}", lambda x: special_loops.polygamma(n, x), lambda x, y: (_polygamma(n + 1)(x),), "polygamma", n
    )


# digamma is a word of formulas, but its derivative takes special functions to say.
RULES["digamma"] = lambda g, y, a: (g * _polygamma(1)(a),)


@pointwise(
    rule=promote_float,
    kinds="bif",
    kernel="digamma",
    aliases=("special.digamma", "special.psi"),
    quirks=Quirks(inplace_function=False),
)
def digamma(input):
    """The derivative of lgamma."""
    return f.digamma(input)


@pointwise(
    rule=promote_float,
    kinds="bif",
    constants={"n": None},
    function=False,
    method=False,
    quirks=Quirks(label="PolygammaBackward0", inplace_label="PolygammaBackward1"),
)
def higher_polygamma(input, n=0):
    """The n-th derivative of digamma."""
    return f.digamma(input) if n == 0 else _polygamma(n)(input)


def _check_derivative_order(n: Any) -> None:
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"polygamma(): argument 'n' must be int, not {type(n).__name__}")
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")


@composite(method=False, aliases=("special.polygamma",))
def polygamma(n: int, input: Tensor, *, out: Any = None) -> Tensor:
    """The n-th derivative of digamma."""
    _check_derivative_order(n)
    return higher_polygamma(input, n, out=out)


@composite(name="polygamma", function=False)
def polygamma_method(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of digamma."""
    _check_derivative_order(n)
    return higher_polygamma(self, n)


@composite(function=False)
def polygamma_(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of digamma, in place."""
    _check_derivative_order(n)
    return higher_polygamma.op.inplace(self, n)


@pointwise(
    rule=promote_float,
    kinds="bif",
    numbers=("input", "other"),
    namespaces=_SPECIAL,
    method=False,
    inplace=False,
    grad=lambda g, input, other, out: _zeta_gradient(g, input, other),
    quirks=Quirks(label="SpecialZetaBackward0"),
)
def zeta(input, other):
    """Hurwitz' zeta function: the sum of (other + k) ** -input over k >= 0."""
    return special_loops.zeta(special.double(input), special.double(other))


def _zeta_gradient(g: Expr, input: Expr, other: Expr) -> tuple[Any, ...]:
    by_other = -input * special_loops.zeta(special.double(input + 1), special.double(other))
    return NotImplementedError("the derivative for 'zeta' is not implemented."), g * by_other


def _no_derivative_by_shape(g: Expr, input: Expr, other: Expr, sign: float) -> tuple[Any, ...]:
    """Return the gradient by the second argument, the density of the gamma distribution; the first has no known derivative."""
    density = f.exp((input - 1) * f.log(other) - other - f.lgamma(input))
    return NotImplementedError("the derivative of the incomplete gamma functions by 'input' is not implemented"), (
        g * (sign * density)
    )


@pointwise(
    kinds="f",
    numbers=(),
    aliases=("special.gammainc",),
    grad=lambda g, input, other, out: _no_derivative_by_shape(g, input, other, 1.0),
)
def igamma(input, other):
    """The regularised lower incomplete gamma function."""
    return special_loops.igamma(special.double(input), special.double(other))


@pointwise(
    kinds="f",
    numbers=(),
    aliases=("special.gammaincc",),
    grad=lambda g, input, other, out: _no_derivative_by_shape(g, input, other, -1.0),
)
def igammac(input, other):
    """The regularised upper incomplete gamma function."""
    return special_loops.igammac(special.double(input), special.double(other))


@pointwise(
    rule=promote_float,
    kinds="bif",
    kernel="lgamma_vml_cpu",
    aliases=("special.gammaln",),
    quirks=Quirks(inplace_function=False),
)
def lgamma(input):
    """The logarithm of |gamma(input)|"""
    return f.lgamma(input)


_FUSED_ORDER = 3  # each gamma function takes long to compile


def _check_order(op: Pointwise, operands: tuple[Any, ...], params: tuple[Any, ...]) -> None:
    if params[0] < 1:
        raise RuntimeError("p has to be greater than or equal to 1")


def _mvlgamma_rule(op: Pointwise, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    d = operands[0].dtype
    return (d, d) if d.category >= 2 else (get_default_dtype(),) * 2


@pointwise(
    rule=_mvlgamma_rule,
    kinds="bif",
    constants={"p": None},
    check=_check_order,
    method=False,
    function=False,
    inplace=False,
    out=False,
    quirks=Quirks(label="MvlgammaBackward0"),
)
def multivariate(input, p=1):
    """log of the multivariate gamma function of dimension p"""
    total: Any = f.const(p * (p - 1) / 4 * math.log(math.pi))
    for j in range(p):
        total = total + f.lgamma(input - j / 2)
    return total


@composite(out=True, inplace=True, aliases=("special.multigammaln",))
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p."""
    if p <= _FUSED_ORDER:
        return multivariate(input, p)
    terms = [lgamma(input - j / 2) for j in range(p)]
    return functools.reduce(operator.add, terms) + p * (p - 1) / 4 * math.log(math.pi)


# -- products with logarithms --------------------------------------------------------------------------------------------


def _xlogy_gradient(g: Expr, input: Expr, other: Expr, out: Expr) -> tuple[Expr | None, ...]:
    return f.where((input == 0) & (other <= 0), 0, g * f.log(other)), g * input / other


@pointwise(
    rule=promote_float,
    kinds="bif",
    numbers=("input", "other"),
    grad=_xlogy_gradient,
    aliases=("special.xlogy",),
    quirks=Quirks(
        label=lambda operands: f"XlogyBackward{1 if operands[0] is None else 2 if operands[1] is None else 0}",
        inplace_function=True,
    ),
)
def xlogy(input, other, compute=None):
    """input * log(other), and 0 where input is 0 (unless other is nan)"""
    return f.where(other != other, other, f.where(input == 0, 0, input * f.rounded(f.log(other), compute)))


def _xlog1py_gradient(g: Expr, input: Expr, other: Expr, out: Expr) -> tuple[Expr | None, ...]:
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
def xlog1py(input, other, compute=None):
    """input * log1p(other), and 0 where input is 0 (unless other is nan)"""
    return f.where(other != other, other, f.where(input == 0, 0, input * f.rounded(f.log1p(other), compute)))


def _entropy_gradient(g: Expr, input: Expr, out: Expr) -> tuple[Expr | None, ...]:
    return (g * f.where(input < 0, math.nan, -f.log(input) - 1),)


@pointwise(
    rule=promote_float, kinds="bif", namespaces=_SPECIAL, method=False, inplace=False, grad=_entropy_gradient
)  # fmt: skip
def entr(input, compute=None):
    """-input * log(input); 0 at 0, -inf below"""
    share = -input * f.rounded(f.log(input), compute)
    return f.where(input != input, input, f.where(input > 0, share, f.where(input == 0, 0, -math.inf)))


# -- sums of exponentials and squares ------------------------------------------------------------------------------------


def _logaddexp_gradient(g: Expr, input: Expr, other: Expr, out: Expr, compute: dtype) -> tuple[Expr | None, ...]:
    """Return the gradients of logaddexp: each operand's share of the sum; equal infinities share evenly."""
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
    """Compute logaddexp relative to the operand with the larger real part, so that nothing overflows."""
    first_wins = f.real(input) >= f.real(other)
    high, low = f.where(first_wins, input, other), f.where(first_wins, other, input)
    return f.where((input == other) & f.isinf(f.real(input)), input, high + f.log1p(f.exp(low - high)))


def _logaddexp2_gradient(g: Expr, input: Expr, other: Expr, out: Expr) -> tuple[Expr | None, ...]:
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
