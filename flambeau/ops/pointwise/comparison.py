"""Comparisons, tests and choices: operators that return truth values or depend on them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from ...core import dtype as dt
from ...core.dtype import dtype, opmath
from ...core.overrides import ask_instead
from ...core.tensor import Tensor
from ...expr import Expr
from ...expr import functions as f
from ..machinery.arguments import need_tensor
from ..machinery.aten_form import aten_parts
from ..machinery.declare import composite, pointwise, transparent
from ..machinery.dtype_rules import check_fits, compare, promote, select, unsupported
from ..machinery.formula import OPTIONAL, Pointwise
from ..machinery.gradient import no_derivative
from ..machinery.quirks import Quirks

# -- comparisons ---------------------------------------------------------------------------------------------------------


@pointwise(rule=compare, differentiable=False)
def eq(input, other):
    """input == other"""
    return input == other


@pointwise(rule=compare, differentiable=False, aliases=("not_equal",))
def ne(input, other):
    """input != other"""
    return input != other


@pointwise(rule=compare, differentiable=False, kinds="bif", aliases=("less",))
def lt(input, other):
    """input < other"""
    return input < other


@pointwise(rule=compare, differentiable=False, kinds="bif", aliases=("less_equal",))
def le(input, other):
    """input <= other"""
    return input <= other


@pointwise(rule=compare, differentiable=False, kinds="bif", aliases=("greater",))
def gt(input, other):
    """input > other"""
    return input > other


@pointwise(rule=compare, differentiable=False, kinds="bif", aliases=("greater_equal",))
def ge(input, other):
    """input >= other"""
    return input >= other


def _check_isclose(op: Pointwise, operands: tuple[Any, ...]) -> None:
    a, b = operands
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{a.dtype.scalar_type} did not match {b.dtype.scalar_type}")


def _tolerances_fit(compute: dtype, operands: tuple[Any, ...]) -> Callable[..., Any]:
    def guard(*values: Any) -> None:
        for name, value in zip(("rtol", "atol"), values[2:]):
            if not value >= 0:  # NaN too
                raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value:g}")

    return guard


def _isclose_rule(op: Pointwise, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    d = operands[0].dtype
    return dt.float64 if d.category < 2 else d, dt.bool_


@pointwise(
    rule=_isclose_rule,
    check=_check_isclose,
    guard=_tolerances_fit,
    numbers=(),
    differentiable=False,
    inplace=False,
    out=False,
)
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Test for |input - other| <= atol + rtol * |other|"""
    close = input == other
    if equal_nan:
        close = close | ((input != input) & (other != other))
    error = f.abs_(input - other)
    return close | (f.isfinite(error) & (error <= atol + f.abs_(rtol * other)))


# -- tests of one element ------------------------------------------------------------------------------------------------


@pointwise(rule=compare, differentiable=False, inplace=False, out=False)
def isnan(input):
    """Test each element for nan."""
    return input != input


@pointwise(rule=compare, differentiable=False, inplace=False, out=False)
def isinf(input):
    """Test each element for infinity (a complex one in either part)."""
    return f.isinf(f.real(input)) | f.isinf(f.imag(input))


@pointwise(rule=compare, differentiable=False, inplace=False, out=False)
def isfinite(input):
    """Test that each element is neither infinite nor nan."""
    return f.isfinite(f.real(input)) & f.isfinite(f.imag(input))


def _no_complex(op: Pointwise, operands: tuple[Any, ...]) -> None:
    if operands[0].dtype.is_complex:
        raise RuntimeError(f"{op.name} does not support complex inputs.")


@pointwise(out="exact", rule=compare, check=_no_complex, differentiable=False, inplace=False)
def isposinf(input, compute=None):
    """Test each element for positive infinity."""
    return input == math.inf if compute is not None and compute.is_floating_point else _never(input)


@pointwise(out="exact", rule=compare, check=_no_complex, differentiable=False, inplace=False)
def isneginf(input, compute=None):
    """Test each element for negative infinity."""
    return input == -math.inf if compute is not None and compute.is_floating_point else _never(input)


def _never(x: Expr) -> Expr:
    return x != x


@pointwise(rule=compare, differentiable=False, inplace=False, out=False)
def isreal(input):
    """Test that each element has no imaginary part."""
    return f.imag(input) == 0


@isreal.op.as_aten
def _(recorder: Any, input: Tensor) -> Tensor:
    if input.is_complex():
        return recorder.aten.eq.Scalar(recorder.aten.imag.default(input), 0)
    return recorder.aten.ones_like.default(input, dtype=dt.bool_)


@pointwise(rule=compare, differentiable=False, unrecorded=True, quirks=Quirks(inplace_function=False))
def logical_not(input):
    """Negate each element's truth: True where it is zero."""
    return input == 0


@pointwise(rule=compare, numbers=(), differentiable=False, unrecorded=True)
def logical_and(input, other):
    """Test that both elements are nonzero."""
    return (input != 0) & (other != 0)


@pointwise(rule=compare, numbers=(), differentiable=False, unrecorded=True)
def logical_or(input, other):
    """Test that at least one of both elements is nonzero."""
    return (input != 0) | (other != 0)


@pointwise(rule=compare, numbers=(), differentiable=False, unrecorded=True)
def logical_xor(input, other):
    """Test that exactly one of both elements is nonzero."""
    return (input != 0) ^ (other != 0)


# -- choices -------------------------------------------------------------------------------------------------------------


def _no_complex_tensors(op: Pointwise, operands: tuple[Any, ...]) -> None:
    if any(isinstance(x, Tensor) and x.dtype.is_complex for x in operands):
        raise RuntimeError(f"{op.name} not implemented for complex tensors.")


@pointwise(check=_no_complex_tensors, numbers=(), inplace=False)
def maximum(input, other):
    """The larger of two; nan wins."""
    return f.maximum(input, other)


@pointwise(check=_no_complex_tensors, numbers=(), inplace=False)
def minimum(input, other):
    """The smaller of two; nan wins."""
    return f.minimum(input, other)


@pointwise(check=_no_complex_tensors, numbers=(), inplace=False)
def fmax(input, other):
    """The larger of two; nan only if both are."""
    return f.fmax(input, other)


@pointwise(check=_no_complex_tensors, numbers=(), inplace=False)
def fmin(input, other):
    """The smaller of two; nan only if both are."""
    return f.fmin(input, other)


def _clamp_gradient(g: Expr, input: Expr, low: Expr | None, high: Expr | None, out: Expr) -> tuple[Expr | None, ...]:
    """Return the gradients of clamp: the input's passes between the limits; a limit gets it where it is the result."""
    if low is None or high is None:
        inside, limit = (input >= low, input < low) if low is not None else (input <= high, input > high)
        share = f.where(limit, g, 0)
        return f.where(inside, g, 0), share if low is not None else None, share if high is not None else None
    return (
        f.where((input >= low) & (input <= high), g, 0),
        f.where((low < high) & (input < low), g, 0),
        f.where((input > high) | (high < low), g, 0),
    )


def _check_clamp(op: Pointwise, operands: tuple[Any, ...]) -> None:
    _, low, high = operands
    if low is None and high is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    compute, _ = promote(op, tuple(x for x in operands if x is not None))
    if compute.is_complex:
        raise NotImplementedError("clamp is not supported for complex types")
    one_tensor = (low is None) is not (high is None) and isinstance(low if high is None else high, Tensor)
    if compute is dt.bool_ and not one_tensor:
        raise unsupported("clamp_cpu", dt.bool_)


@pointwise(
    check=_check_clamp,
    fits=("min", "max"),
    grad=_clamp_gradient,
    aliases=("clip",),
    quirks=Quirks(
        label=lambda operands: "ClampBackward1" if operands[1] is operands[2] is None else "ClampBackward0",
        numbers_apart=True,
        inplace_function=True,
    ),
)
def clamp(input, min=OPTIONAL, max=OPTIONAL):
    """input limited to the range from min to max."""
    if min is not None:
        input = f.maximum(input, min)
    return input if max is None else f.minimum(input, max)


def _alike_limits(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return limits of one kind: next to a number, a 0-dim tensor stands for a number."""
    x, low, high = operands
    if low is None or high is None or isinstance(low, Tensor) is isinstance(high, Tensor):
        return operands
    limit = low if isinstance(low, Tensor) else high
    if limit.shape or limit.requires_grad:
        raise TypeError("clamp(): 'min' and 'max' must be both Tensor or both Number")
    return x, *(v.item() if v is limit else v for v in (low, high))


clamp.op.impl.adapt = _alike_limits


def _no_bool_limit(op: Pointwise, operands: tuple[Any, ...]) -> None:
    if not isinstance(operands[1], Tensor) and promote(op, operands)[0] is dt.bool_:
        raise unsupported(f"{op.name}_scalar_cpu", dt.bool_)


@pointwise(
    kinds="bif",
    kernel="maximum_cpu",
    check=_no_bool_limit,
    fits=("min",),
    grad=lambda g, input, min, out: (f.where(input >= min, g, 0), f.where(input < min, g, 0)),
    quirks=Quirks(
        label=lambda operands: f"ClampMinBackward{0 if operands[1] is None else 1}",
        numbers_apart=True,
        inplace_function=True,
    ),
)
def clamp_min(input, min):
    """input, but at least min."""
    return f.maximum(input, min)


aten_parts("clamp_min")(lambda aten, self, min: aten.clamp.default(self, min))


@pointwise(
    kinds="bif",
    kernel="minimum_cpu",
    check=_no_bool_limit,
    fits=("max",),
    grad=lambda g, input, max, out: (f.where(input <= max, g, 0), f.where(input > max, g, 0)),
    quirks=Quirks(
        label=lambda operands: f"ClampMaxBackward{0 if operands[1] is None else 1}",
        numbers_apart=True,
        inplace_function=True,
    ),
)
def clamp_max(input, max):
    """input, but at most max."""
    return f.minimum(input, max)


def _check_condition(op: Pointwise, operands: tuple[Any, ...]) -> None:
    condition = operands[0]
    if condition.dtype is dt.uint8:
        warnings.warn(
            "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future version of"
            " PyTorch. Use a boolean condition instead.",
            UserWarning,
            stacklevel=6,
        )
    elif condition.dtype is not dt.bool_:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype.scalar_type}"
        )


def _numbers_fit(compute: dtype, operands: tuple[Any, ...]) -> Callable[..., Any] | None:
    """Return a check that numbers to choose from fit the result's dtype; 16-bit floats hold all, as infinity."""
    if all(isinstance(x, Tensor) for x in operands) or opmath(compute) is not compute:
        return None

    def guard(condition: Any, *choices: Any) -> None:
        for value in choices:
            if not isinstance(value, Tensor):
                check_fits(value, compute)

    return guard


@pointwise(
    rule=select,
    check=_check_condition,
    guard=_numbers_fit,
    numbers=("input", "other"),
    function=False,
    method=False,
    inplace=False,
    quirks=Quirks(label="WhereBackward0"),
)
def where_tensor(condition, input, other):
    """input where condition holds, else other."""
    return f.where(condition, input, other)


@transparent
def where(condition: Tensor, input: Any = None, other: Any = None, *, out: Any = None) -> tuple[Tensor, ...] | Tensor:
    """input where condition holds, else other; with the condition alone, the indices of its nonzero elements."""
    if not isinstance(condition, Tensor):
        answer = ask_instead(where, *(x for x in (condition, input, other) if x is not None))
        if answer is not NotImplemented:
            return answer
        need_tensor("where", condition, "condition")
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if out is not None:
        need_tensor("where", input, "input", 2)
        need_tensor("where", other, "other", 3)
    if input is None or other is None:
        raise TypeError("where() received an invalid combination of arguments: both input and other, or neither")
    return where_tensor(condition, input, other, out=out)


@where.op.as_aten
def _(recorder: Any, condition: Tensor, input: Any = None, other: Any = None) -> Any:
    if input is None and other is None:
        places = recorder.aten.nonzero.default(condition)
        return tuple(recorder.aten.select.int(places, 1, d) for d in range(condition.dim()))
    return recorder.aten.where(condition, input, other)


@composite(name="where", function=False)
def where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """self where condition holds, else other."""
    return where_tensor(condition, self, other)


@where_method.op.as_aten
def _(recorder: Any, self: Tensor, condition: Tensor, other: Any) -> Any:
    return recorder.aten.where(condition, self, other)


def _check_heaviside(op: Pointwise, operands: tuple[Any, ...]) -> None:
    if any(x.dtype.is_complex for x in operands):
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if operands[0].dtype is not operands[1].dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")


@pointwise(
    out="exact",
    check=_check_heaviside,
    numbers=(),
    grad=no_derivative("heaviside"),
    quirks=Quirks(label="NotImplemented"),
)
def heaviside(input, values):
    """0 for negative elements, 1 for positive ones, `values` at zero."""
    return f.where(input == 0, values, f.where(input < 0, 0, f.where(input != input, 0, 1)))
