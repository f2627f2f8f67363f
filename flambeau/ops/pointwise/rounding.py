"""Rounding, signs and the floating-point format: floor, sign, copysign, nextafter, frexp, nan_to_num."""

from __future__ import annotations

import math
from typing import Any

from ...core import dtype as dt
from ...core.dtype import dtype, opmath
from ...core.numeric_limits import finfo
from ...core.promotion import result_dtype
from ...core.return_types import named_result
from ...core.tensor import Tensor
from ...expr import Expr
from ...expr import functions as f
from ...expr.node import bitcast, cast
from ..machinery.declare import pointwise, primitive
from ..machinery.dtype_rules import compare, promote_float, unsupported
from ..machinery.formula import Pointwise
from ..machinery.quirks import Quirks


def _refuse_complex(message: str) -> Any:
    def check(op: Pointwise, operands: tuple[Any, ...]) -> None:
        if operands[0].dtype.is_complex:
            raise NotImplementedError(message)

    return check


# -- rounding ------------------------------------------------------------------------------------------------------------


@pointwise(
    out="exact", kinds="if", kernel="floor_vml_cpu", check=_refuse_complex("floor is not supported for complex inputs")
)
def floor(input):
    """The largest whole number not above the input."""
    return f.floor(input)


@pointwise(
    out="exact", kinds="if", kernel="ceil_vml_cpu", check=_refuse_complex("ceil is not supported for complex inputs")
)
def ceil(input):
    """The smallest whole number not below the input."""
    return f.ceil(input)


@pointwise(
    out="exact",
    kinds="if",
    kernel="trunc_vml_cpu",
    check=_refuse_complex("trunc is not supported for complex inputs"),
    aliases=("fix",),
)
def trunc(input):
    """The input without its fraction."""
    return f.trunc(input)


def _check_decimals(op: Pointwise, operands: tuple[Any, ...], params: tuple[Any, ...]) -> None:
    d = operands[0].dtype
    if params[0] != 0 and not d.is_floating_point:
        raise unsupported("round_vml_cpu", d)


@pointwise(
    out="exact",
    kinds="if", kernel="round_vml_cpu", check=_check_decimals, constants={"decimals": None}, aliases=("special.round",)
)  # fmt: skip
def round(input, *, decimals=0):
    """The nearest number with that many decimals, halves to even."""
    if decimals == 0:
        return f.round_(input)
    scale = 10.0 ** abs(decimals)
    return f.round_(input * scale) / scale if decimals > 0 else f.round_(input / scale) * scale


@pointwise(out="exact", kinds="f", grad=lambda g, input, out: (g,))
def frac(input):
    """The fraction of a number, with its sign."""
    return input - f.trunc(input)


# -- signs ---------------------------------------------------------------------------------------------------------------


@pointwise(
    out="exact",
    check=_refuse_complex(
        "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead."
    ),
    quirks=Quirks(inplace_function=False),
)
def sign(input):
    """-1, 0 or 1"""
    return f.sign(input)


def _sgn_gradient(g: Expr, input: Expr, out: Expr) -> tuple[Expr | None, ...]:
    """Return the gradient of sgn: for complex numbers, only the part of g perpendicular to the input counts."""
    across = (g - f.real(f.conj(out) * g) * out) / f.abs_(input)
    return (f.where(input == 0, 0, across),)


@pointwise(out="exact", grad=_sgn_gradient, quirks=Quirks(inplace_function=False))
def sgn(input):
    """input / |input|, and 0 for 0"""
    return f.sign(input)


@pointwise(
    out="exact",
    rule=compare,
    check=_refuse_complex("signbit is not implemented for complex tensors."),
    differentiable=False,
    inplace=False,
)
def signbit(input):
    """Test each element's sign bit, set in negative numbers and -0.0."""
    return f.signbit(input)


@pointwise(
    rule=promote_float,
    kinds="bif",
    grad=lambda g, input, other, out: (f.where(input == 0, 0, g * (out / input)), f.const(0)),
    quirks=Quirks(label=lambda operands: f"CopysignBackward{1 if operands[1] is None else 0}"),
)
def copysign(input, other):
    """The magnitude of input with the sign of other."""
    return f.copysign(input, other)


# -- the format ----------------------------------------------------------------------------------------------------------


def _neighbour(input: Expr, other: Expr, d: dtype) -> Expr:
    """Return the number one step further from zero or nearer to it, by its bits."""
    wide = opmath(d)
    # In the last place, in the bits of the dtype it is computed in.
    step = 1 << (wide.limits.precision - d.limits.precision)
    smallest = d.limits.smallest_normal * d.limits.eps
    bits = bitcast(input, dt.int64 if d is dt.float64 else dt.int32)
    grows = (input > 0) == (other > input)
    moved = bitcast(f.where(grows, bits + step, bits - step), wide)
    if d is dt.float16:  # below 2**-14 its steps are of equal size, which the bits of a float32 do not say
        size = f.abs_(input)
        even = (size < 2.0**-14) | ((size == 2.0**-14) & f.logical_not(grows))
        moved = f.where(even, input + f.where(other > input, smallest, -smallest), moved)
        beyond = f.where(size == math.inf, cast(f.const(65504.0), dt.float32), cast(f.const(math.inf), dt.float32))
        moved = f.where(f.abs_(moved) > 65504.0, f.copysign(beyond, input), moved)
    moved = f.where(input == 0, f.where(other > 0, smallest, -smallest), moved)
    moved = f.where(input == other, other, moved)
    return f.where((input != input) | (other != other), input + other, moved)


@pointwise(kinds="f", numbers=(), grad=lambda g, input, other, out: (f.where(input != other, g, 0), f.const(0)))
def nextafter(input, other, compute=None):
    """The next floating-point number after input in the direction of other."""
    return _neighbour(input, other, compute or dt.float64)


def _ldexp_rule(op: Pointwise, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    exponent = operands[1].dtype if operands[1].dtype.category >= 2 else promote_float(op, (operands[1],))[0]
    shaped = result_dtype(operands)
    d = shaped if shaped.category >= 2 else exponent
    return d, d


def _ldexp_gradient(g: Expr, input: Expr, other: Expr, out: Expr) -> tuple[Expr | None, ...]:
    return g * f.exp2(f.conj(other)), g * f.conj(out) * math.log(2)


@pointwise(rule=_ldexp_rule, numbers=(), grad=_ldexp_gradient, quirks=Quirks(inplace_function=True))
def ldexp(input, other, compute=None):
    """input * 2 ** other"""
    return input * f.rounded(f.exp2(other), compute)


frexp_result = named_result("frexp", "mantissa", "exponent")


def _binary_exponent(x: Expr) -> Expr:
    """Return e with 2**(e-1) <= |x| < 2**e, as a float64; for finite x other than 0."""
    tiny = f.abs_(x) < 2.0**-1000
    bits = bitcast(f.where(tiny, x * 2.0**64, x), dt.int64)
    return ((bits >> 52) & 0x7FF) - f.where(tiny, f.const(1022 + 64), f.const(1022))


def _plain(x: Expr) -> Expr:
    return (x != 0) & f.isfinite(x)


_exponent_of = Pointwise(
    "frexp_exponent",
    lambda input: f.where(_plain(input), _binary_exponent(input), 0),
    lambda op, operands: (dt.float64, dt.int32),
    differentiable=False,
)


def _scaled_down(input: Expr) -> Expr:
    e = _binary_exponent(input)
    # in two steps, because 2**-e itself can overflow
    half = e >> 1
    first, second = (bitcast((1023 - n) << 52, dt.float64) for n in (half, e - half))
    return f.where(_plain(input), input * first * second, input)


_mantissa_of = Pointwise(
    "frexp_mantissa", _scaled_down, lambda op, operands: (dt.float64, operands[0].dtype), differentiable=False
)


@primitive(
    grads={"input": lambda g, out: g[0] * (-out[1].to(g[0].dtype)).exp2() if g[0] is not None else None},
    out="exact",
    quirks=Quirks(label="FrexpBackward0"),
    batching="each",
)
def frexp(input: Tensor) -> Any:
    """mantissa and exponent with input = mantissa * 2 ** exponent and 0.5 <= |mantissa| < 1"""
    if not input.dtype.is_floating_point:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    return frexp_result((_mantissa_of.call((input,)), _exponent_of.call((input,))))


def _limits(compute: dtype | None, posinf: Any, neginf: Any) -> tuple[Any, Any]:
    info = finfo((compute or dt.float64).to_real())
    return (info.max if posinf is None else posinf), (info.min if neginf is None else neginf)


def _finite(x: Expr, nan: Any, high: Any, low: Any) -> Expr:
    return f.where(x != x, nan, f.where(x == math.inf, high, f.where(x == -math.inf, low, x)))


def _nan_to_num_gradient(
    g: Expr, input: Expr, nan: Any, posinf: Any, neginf: Any, out: Expr
) -> tuple[Expr | None, ...]:
    passes = f.isfinite(f.real(input)) & f.isfinite(f.imag(input))
    return (f.where(passes, g, 0),)


@pointwise(out="exact", grad=_nan_to_num_gradient)
def nan_to_num(input, nan=0.0, posinf=None, neginf=None, compute=None):
    """The input with nan and infinities replaced by finite numbers."""
    if compute is not None and compute.category < 2:
        return input
    nan = 0.0 if nan is None else nan
    high, low = _limits(compute, posinf, neginf)
    if compute is not None and compute.is_complex:
        return f.complex_(_finite(f.real(input), nan, high, low), _finite(f.imag(input), nan, high, low))
    return _finite(input, nan, high, low)
