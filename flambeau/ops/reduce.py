"""Sums, products, means, extreme values, any and all, over all or some dimensions."""

from __future__ import annotations

from typing import Any

from ..core import dtype as dt
from ..core.graph import mode
from ..core.layout import format_shape
from ..core.size import make_size
from ..core.tensor import Tensor, contiguous_strides, numel_of
from ..expr import functions as f
from .arguments import varargs_ints
from .declare import composite
from .formula import Pointwise, type_word
from .reduction import (
    Reduction,
    counting,
    reduced_dims,
    reduced_shape,
    reduction,
    restored,
    same_dtype,
    spread,
    to_bool,
    widen_integers,
)

# -- sums -------------------------------------------------------------------------------------------------------------


@reduction("sum", name="sum", rule=widen_integers, grad=spread, labels=("SumBackward0", "SumBackward1"), takes_dtype=True)
def sum_(x: Any) -> Any:
    """The sum of all elements, or over the given dimensions. Integers are summed in int64."""
    return x


def _check_mean(op: Reduction, a: Tensor, dim: Any, dims: tuple[int, ...], requested: Any) -> None:
    d = requested or a.dtype
    if d.category < 2:
        kind = "Input" if requested is None else "Optional"
        verb = "could not infer output dtype. " if requested is None else ""
        raise RuntimeError(
            f"{op.name}(): {verb}{kind} dtype must be either a floating point or complex dtype. Got: {type_word(d)}"
        )


def _mean_backward(g: Tensor, shape: Any, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    count = numel_of([shape[d] for d in dims])
    if numel_of(shape) == 0:
        return spread(g, shape, dims, keepdim)
    return spread(g * (1.0 / count), shape, dims, keepdim) if g.dtype.is_complex else spread(_divide.call((g, count)), shape, dims, keepdim)


_divide = Pointwise("div", lambda x, y: x / y)


@reduction(
    "sum",
    final=lambda total, count: total / count,
    grad=_mean_backward,
    labels=("MeanBackward0", "MeanBackward1"),
    check=_check_mean,
    takes_dtype=True,
)
def mean(x: Any) -> Any:
    """The arithmetic mean of all elements, or over the given dimensions."""
    return x


_size_plans: dict[tuple, tuple] = {}


def _plan_sum_to(shape: tuple[int, ...], target: tuple[int, ...]) -> tuple:
    lead = len(shape) - len(target)
    fits = lead >= 0 and all(t == n or t == 1 for t, n in zip(target, shape[max(lead, 0) :]))
    if not fits:
        raise RuntimeError(f"size {{{format_shape(target)}}} is not expandable to size {{{format_shape(shape)}}}.")
    dims = (*range(lead), *(i for i in range(lead, len(shape)) if target[i - lead] == 1 and shape[i] != 1))
    size = make_size(target)
    plan = _size_plans[shape, target] = (dims, size, contiguous_strides(size))
    return plan


@composite(function=False)
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Summed over broadcast dimensions until the shape is `size`."""
    target = tuple(size[0]) if len(size) == 1 and isinstance(size[0], tuple) else varargs_ints(size, "sum_to_size")
    if self.shape == target:
        return self
    dims, shape, strides = _size_plans.get((self.shape, target)) or _plan_sum_to(self.shape, target)
    out = sum_.op.impl.call(self, dims, True, self.dtype) if dims else self
    if out.shape == target:
        return out
    if out is self or (mode.enabled and out._meta is not None):
        return out.reshape(target)
    out.shape, out._strides = shape, strides  # nobody else holds it yet
    return out


__all__ = ["counting", "reduced_dims", "reduced_shape", "restored", "same_dtype", "sum_", "sum_to_size", "to_bool", "f", "dt"]
