"""Absolute values, angles and conjugates. Conjugation is never delayed: resolve_conj and resolve_neg have nothing to do."""

from __future__ import annotations

from typing import Any

from ...core.dtype import dtype
from ...core.promotion import get_default_dtype
from ...core.tensor import Tensor
from ...expr import Expr
from ...expr import functions as f
from ..machinery.arguments import need_tensor
from ..machinery.declare import composite, pointwise
from ..machinery.dtype_rules import real_part
from ..machinery.formula import Pointwise
from ..machinery.quirks import Quirks


@pointwise(out="exact", kinds="ifc", rule=real_part, inplace=False, aliases=("absolute",))
def abs(input):
    """The absolute value."""
    return f.abs_(input)


@pointwise(name="abs", kinds="if", function=False, method=False, out=False, quirks=Quirks(label="AbsBackward0"))
def _real_abs(input):
    return f.abs_(input)


@composite
def abs_(self: Tensor) -> Tensor:
    """The absolute value, in place."""
    if self.dtype.is_complex:
        raise RuntimeError("In-place abs is not supported for complex tensors.")
    return _real_abs.op.inplace(self)


@composite(function=False)
def absolute_(self: Tensor) -> Tensor:
    """The absolute value, in place: `abs_` by its longer name."""
    return abs_(self)


def _angle_rule(op: Pointwise, operands: tuple[Any, ...]) -> Any:
    d = operands[0].dtype
    if d.category < 2:
        return get_default_dtype(), get_default_dtype()
    return d, d.to_real()


def _angle_gradient(g: Expr, input: Expr, out: Expr, compute: dtype) -> tuple[Expr | None, ...]:
    """Return the gradient of angle: zero for real numbers, perpendicular to the number for complex ones."""
    if not compute.is_complex:
        return (f.const(0),)
    size = f.abs_(input)
    across = f.complex_(-f.imag(input), f.real(input))
    return (f.where(input == 0, 0, g * across / (size * size)),)


@pointwise(rule=_angle_rule, grad=_angle_gradient, inplace=False)
def angle(input):
    """The angle of a complex number; pi for negative real numbers."""
    return f.angle(input)


@pointwise(
    name="conj_physical",
    function=False,
    method=False,
    quirks=Quirks(label="ConjPhysicalBackward0", inplace_label="ConjPhysicalBackward1"),
)
def _conjugate(input):
    return f.conj(input)


@composite(out="exact")
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate; real tensors unchanged."""
    return _conjugate(input) if input.dtype.is_complex else input


@composite
def conj_physical_(self: Tensor) -> Tensor:
    """The complex conjugate, in place; real tensors unchanged."""
    return _conjugate.op.inplace(self)


@composite
def conj(input: Tensor) -> Tensor:
    """The complex conjugate; real tensors unchanged."""
    return _conjugate(input) if input.dtype.is_complex else input


@composite
def resolve_conj(input: Tensor) -> Tensor:
    """Return the input: conjugation is never lazy."""
    need_tensor("resolve_conj", input)
    return input


@composite
def resolve_neg(input: Tensor) -> Tensor:
    """Return the input: negation is never lazy."""
    need_tensor("resolve_neg", input)
    return input
