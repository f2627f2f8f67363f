"""Arithmetic: sums, products, quotients, remainders and powers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core import dtype as dt
from ...core.dtype import dtype, opmath
from ...core.promotion import get_default_dtype, result_dtype
from ...core.tensor import Tensor
from ...expr import Expr
from ...expr import functions as f
from ..machinery import work
from ..machinery.arguments import need_tensor
from ..machinery.declare import composite, pointwise
from ..machinery.dtype_rules import check_fits, promote_float, unsupported
from ..machinery.formula import Pointwise
from ..machinery.gradient import no_derivative
from ..machinery.quirks import Quirks

_BOTH = ("input", "other")


# -- sums and products --------------------------------------------------------------------------------------------------


def _is_bool(x: Any) -> bool:
    return isinstance(x, bool) or (isinstance(x, Tensor) and x.dtype is dt.bool_)


def check_alpha(op: Pointwise, operands: tuple[Any, ...], params: tuple[Any, ...]) -> None:
    """Check that the factor of the second operand fits the result's dtype."""
    alpha = params[0]
    d = result_dtype(operands)
    if isinstance(alpha, bool) and d is not dt.bool_:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float) and d.category < 2:
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if isinstance(alpha, complex) and not d.is_complex:
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")


def _check_difference(op: Pointwise, operands: tuple[Any, ...], params: tuple[Any, ...]) -> None:
    flags = [_is_bool(x) if isinstance(x, Tensor) else isinstance(x, bool) for x in operands]
    if all(flags):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator"
            " instead."
        )
    if any(flags):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the"
            " `~` or `logical_not()` operator instead."
        )
    check_alpha(op, operands, params)


def _plus_multiple(a: Any, factor: Any, b: Any, compute: dtype | None) -> Any:
    """Return a + factor * b: with one rounding for floats, as PyTorch's kernels do, which have the factor in the dtype of the tensors."""
    if isinstance(factor, Expr) and factor.op == "const" and factor.args[0] in (1, -1):
        return a + b if factor.args[0] == 1 else a - b
    if compute is None or not compute.is_floating_point:
        return a + factor * b
    return f.fma(f.rounded(factor, compute), f.rounded(b, compute), a)


@pointwise(
    numbers=_BOTH,
    check=check_alpha,
    fits=("alpha",),
    quirks=Quirks(former=("alpha",), unrounded=(0, 1), rounds_on_host=True, numbers_as_tensors=True),
    flops=work.each_element,
)
def add(input, other, *, alpha=1, compute=None):
    """input + alpha * other"""
    return _plus_multiple(input, alpha, other, compute)


@pointwise(
    numbers=_BOTH,
    check=_check_difference,
    fits=("alpha",),
    aliases=("subtract",),
    quirks=Quirks(former=("alpha",), numbers_as_tensors=True),
)
def sub(input, other, *, alpha=1, compute=None):
    """input - alpha * other"""
    return _plus_multiple(input, -alpha, other, compute)


@pointwise(
    check=_check_difference,
    fits=("alpha",),
    method=False,
    inplace=False,
    out=False,
    quirks=Quirks(label=lambda operands: f"RsubBackward{0 if operands[1] is not None else 1}"),
)
def rsub(input, other, *, alpha=1, compute=None):
    """other - alpha * input"""
    return _plus_multiple(other, -alpha, input, compute)


@pointwise(
    numbers=_BOTH,
    aliases=("multiply",),
    quirks=Quirks(unrounded=(1,), numbers_as_tensors=True),
    flops=work.each_element,
)
def mul(input, other):
    """input * other"""
    return input * other


@pointwise(
    numbers=(),
    fits=("value",),
    kinds="ifc",
    kernel="addcmul_cpu_out",
    quirks=Quirks(former=("value",), wide_numbers=("value",)),
    autocast_cuda="widest",
)
def addcmul(input, tensor1, tensor2, *, value=1, compute=None):
    """input + value * tensor1 * tensor2"""
    if compute is None or not compute.is_floating_point:
        return input + value * tensor1 * tensor2
    return f.fma(value * tensor1, tensor2, input)


def _check_addcdiv(op: Pointwise, operands: tuple[Any, ...]) -> None:
    if operands[1].dtype.category < 2 and operands[2].dtype.category < 2:
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true"
            " division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value *"
            " torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2)"
            " for float inputs. The future addcdiv behavior is just the latter implementation: (input + value * tensor1 /"
            " tensor2), for all dtypes."
        )


@pointwise(
    numbers=(),
    check=_check_addcdiv,
    fits=("value",),
    quirks=Quirks(former=("value",), wide_numbers=("value",)),
    autocast_cuda="widest",
)
def addcdiv(input, tensor1, tensor2, *, value=1):
    """input + value * tensor1 / tensor2"""
    return input + value * tensor1 / tensor2


def _check_lerp(op: Pointwise, operands: tuple[Any, ...]) -> None:
    input, end, weight = operands
    for name, x in (("end", end), ("weight", weight)):
        promotes = name == "weight" and isinstance(x, Tensor) and not x.shape
        if isinstance(x, Tensor) and x.dtype is not input.dtype and not promotes:
            raise RuntimeError(f"expected dtype {input.dtype.cpp} for `{name}` but got dtype {x.dtype.cpp}")


def _lerp_rule(op: Pointwise, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    """Return the dtypes of lerp: a 0-dim weight counts as a number."""
    d = result_dtype(operands) if isinstance(operands[2], Tensor) else operands[0].dtype
    return d, d


@pointwise(
    numbers=("weight",),
    fits=("weight",),
    kinds="fc",
    kernel="lerp_kernel_scalar",
    check=_check_lerp,
    rule=_lerp_rule,
    grad=lambda g, input, end, weight, out: (g * (1 - f.conj(weight)), g * f.conj(weight), g * f.conj(end - input)),
    quirks=Quirks(
        label=lambda operands: f"LerpBackward{0 if operands[2] is None else 1}",
        unrounded=(2,),
        numbers_apart=True,
        wide_numbers=("weight",),
    ),
)
def lerp(input, end, weight, compute=None):
    """input + weight * (end - input)"""
    near_start = f.abs_(weight) < 0.5
    step = end - input
    if compute is None or not compute.is_floating_point:
        return f.where(near_start, input + weight * step, end - step * (1 - weight))
    return f.where(near_start, f.fma(weight, step, input), f.fma(step, weight - 1, end))


def _check_negation(op: Pointwise, operands: tuple[Any, ...]) -> None:
    if operands[0].dtype is dt.bool_:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~`"
            " or `logical_not()` operator instead."
        )


@pointwise(out="exact", check=_check_negation, aliases=("negative",))
def neg(input):
    """-input"""
    return -input


@composite
def positive(input: Tensor) -> Tensor:
    """input itself"""
    need_tensor("positive", input)
    if input.dtype is dt.bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


# -- quotients and remainders -------------------------------------------------------------------------------------------


def no_zero_divisor(compute: dtype, operands: tuple[Any, ...]) -> Callable[..., Any] | None:
    """Return a check for zero divisors to run before every integer division, or None for other dtypes."""
    if compute.category > 1:
        return None

    values = 1 << 8 * compute.itemsize  # a number that is too large wraps around

    def guard(input: Any, other: Any) -> None:
        found = bool((other._array() == 0).any()) if isinstance(other, Tensor) else int(other) % values == 0
        if found:
            raise RuntimeError("ZeroDivisionError")

    return guard


def _check_rounding_mode(op: Pointwise, operands: tuple[Any, ...], params: tuple[Any, ...]) -> None:
    if params[0] not in (None, "trunc", "floor"):
        raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{params[0]}'")


def _division_rule(op: Pointwise, operands: tuple[Any, ...], params: tuple[Any, ...]) -> tuple[dtype, dtype]:
    d = result_dtype(operands)
    if params[0] is None and d.category < 2:
        d = get_default_dtype()
    elif params[0] is not None and d.kind not in "uif":
        raise unsupported(f"div_{params[0]}_cpu", d)
    return d, d


def _division_label(operands: tuple[Any, ...], params: tuple[Any, ...]) -> str:
    return "DivBackward2" if params and params[0] is not None else "DivBackward0"


@pointwise(
    rule=_division_rule,
    numbers=_BOTH,
    check=_check_rounding_mode,
    guard=no_zero_divisor,
    aliases=("divide",),
    quirks=Quirks(
        label=_division_label, unrounded=(1,), exact_with_number=True, numbers_apart="first", numbers_as_tensors=True
    ),
)
def div(input, other, *, rounding_mode=None, compute=None):
    """input / other, rounded towards zero ("trunc") or down ("floor") if rounding_mode says so."""
    if rounding_mode is None:
        return input / other
    if rounding_mode == "floor":
        return _floored(input, other, compute)
    if compute is not None and compute.category < 2:
        return (input - f.fmod(input, other)) // other  # no remainder, so the direction of rounding does not matter
    return f.trunc(f.rounded(input / other, compute))


def _floored(a: Expr, b: Expr, d: dtype | None) -> Expr:
    """Return the quotient rounded down, by the steps of PyTorch's kernels, after which 16-bit numbers are rounded."""
    if d is None or opmath(d) is d:
        return a // b
    remainder = f.fmod(a, b)
    quotient = f.rounded(f.rounded(a - remainder, d) / b, d)
    lower = (remainder != 0) & ((b < 0) != (remainder < 0))
    quotient = f.where(lower, f.rounded(quotient - 1, d), quotient)
    whole = f.floor(quotient)
    whole = f.where(quotient - whole > 0.5, f.rounded(whole + 1, d), whole)
    return f.where(b == 0, a / b, f.where(quotient == 0, f.copysign(0.0, a / b), whole))


@composite(out=True, inplace=True, quirks=Quirks(numbers_as_tensors=True))
def true_divide(input: Any, other: Any) -> Tensor:
    """input / other"""
    return div(input, other)


@pointwise(
    rule=promote_float,
    method=False,
    function=False,
    inplace=False,
    out=False,
    quirks=Quirks(label="MulBackward0", unrounded=(0, 1)),
)
def rdiv(input, other, compute=None):
    """other / input, as PyTorch computes it: a product with the reciprocal"""
    return f.rounded(1 / input, compute) * other


@rdiv.op.as_aten
def _(recorder: Any, input: Tensor, other: Any) -> Tensor:
    return recorder.aten.mul.Tensor(recorder.aten.reciprocal.default(input), other)


@pointwise(
    numbers=_BOTH,
    kinds="if",
    kernel="div_floor_cpu",
    guard=no_zero_divisor,
    grad=no_derivative("floor_divide"),
    quirks=Quirks(label="NotImplemented", unrounded=(1,), exact_with_number=True, numbers_as_tensors=True),
)
def floor_divide(input, other, compute=None):
    """The quotient, rounded down."""
    return _floored(input, other, compute)


def _remainder_label(operands: tuple[Any, ...]) -> str:
    if operands[0] is None:  # a number has been divided
        return "NotImplemented"
    return f"RemainderBackward{0 if operands[1] is None else 1}"


@pointwise(numbers=_BOTH, kinds="if", guard=no_zero_divisor, quirks=Quirks(label=_remainder_label))
def remainder(input, other):
    """The remainder of a division rounded down: it has the divisor's sign."""
    return input % other


@pointwise(
    kinds="if",
    guard=no_zero_divisor,
    quirks=Quirks(label=lambda operands: f"FmodBackward{0 if operands[1] is None else 1}"),
)
def fmod(input, other):
    """The remainder of a division rounded towards zero: it has the dividend's sign."""
    return f.fmod(input, other)


@pointwise(rule=promote_float, grad=lambda g, input, out: (-g * f.conj(out * out),), autocast_cuda="float32")
def reciprocal(input):
    """1 / input"""
    return 1 / input


# -- powers -------------------------------------------------------------------------------------------------------------

# Exponents that have code of their own.
_EXPONENTS: frozenset[Any] = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 8, 0.5, -0.5, -1, -2})


def _no_negative_exponent(compute: dtype, operands: tuple[Any, ...]) -> Callable[..., Any] | None:
    base, exponent = operands
    if compute.category > 1 or isinstance(exponent, Tensor) or not isinstance(base, Tensor):
        return None

    def guard(input: Any, exponent: Any) -> None:
        if exponent < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        check_fits(exponent, compute)

    return guard


def _power_gradient(g: Expr, input: Expr, exponent: Expr, out: Expr) -> tuple[Expr | None, ...]:
    if exponent.op == "const":
        n = exponent.args[0]
        if n == 0:
            return (g * 0, None)
        return g * f.conj(n * input ** f.const(n - 1)), None
    base = f.where(exponent == 0, 0, exponent * input ** (exponent - 1))
    power = f.where((input == 0) & (f.real(exponent) >= 0), 0, out * f.log(input))
    return g * f.conj(base), g * f.conj(power)


def _power_label(operands: tuple[Any, ...]) -> str:
    return "PowBackward2" if operands[0] is None else "PowBackward0" if operands[1] is None else "PowBackward1"


def _check_power(op: Pointwise, operands: tuple[Any, ...]) -> None:
    if result_dtype(operands) is dt.bool_ and not isinstance(operands[1], bool):
        raise unsupported("pow", dt.bool_)


@pointwise(
    numbers=("input", "exponent"),
    check=_check_power,
    kernel="pow",
    constants={"exponent": _EXPONENTS},
    guard=_no_negative_exponent,
    grad=_power_gradient,
    quirks=Quirks(label=_power_label, numbers_apart=True),
    autocast_cuda="float32",
)
def pow(input, exponent, compute=None):
    """input ** exponent"""
    if compute is dt.bfloat16 and exponent.op == "const" and exponent.args[0] in (3, -2):
        square = f.rounded(input * input, compute)
        return square * input if exponent.args[0] == 3 else 1 / square
    if exponent.op == "const" and isinstance(exponent.args[0], bool):  # truth values have these two powers only
        return input if exponent.args[0] else f.where(input == input, 1, 1)
    return input**exponent


def _double_rule(op: Pointwise, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    d = dt.complex128 if result_dtype(operands).is_complex else dt.float64
    return d, d


@pointwise(
    out="exact",
    numbers=("input", "exponent"),
    rule=_double_rule,
    constants={"exponent": _EXPONENTS},
    grad=_power_gradient,
    inplace=False,
    quirks=Quirks(label=_power_label, numbers_apart=True),
)
def float_power(input, exponent):
    """input ** exponent in double precision"""
    return input**exponent


@composite(function=False, name="float_power_")
def float_power_(self: Tensor, exponent: Any) -> Tensor:
    """self ** exponent, for a tensor that is already in double precision."""
    d = dt.complex128 if result_dtype((self, exponent)).is_complex else dt.float64
    if self.dtype is not d:
        raise RuntimeError(
            f"the base given to float_power_ has dtype {self.dtype.scalar_type} but the operation's result requires dtype"
            f" {d.scalar_type}"
        )
    return self.pow_(exponent)


@composite(out=True)
def square(input: Tensor) -> Tensor:
    """input ** 2"""
    return pow(input, 2)


@composite(name="square_")
def square_(self: Tensor) -> Tensor:
    """self ** 2"""
    return self.pow_(2)
