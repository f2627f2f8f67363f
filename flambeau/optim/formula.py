"""Functions of update formulas. They take formula symbols, tensors or plain numbers, so that a formula can be compiled, run with tensor
operations, or evaluated on numbers."""

from __future__ import annotations

import math
from typing import Any

from ..core.aliases import AnyFunction
from ..core.tensor import Tensor
from ..expr import Expr
from ..expr import functions as symbolic
from ..ops.pointwise.comparison import maximum as tensor_maximum
from ..ops.pointwise.comparison import minimum as tensor_minimum
from ..ops.pointwise.comparison import where as tensor_where


def sqrt(x: Any) -> Any:
    """Return the square root; nan for negative numbers."""
    if isinstance(x, Expr):
        return symbolic.sqrt(x)
    if isinstance(x, Tensor):
        return x.sqrt()
    return math.sqrt(x) if x >= 0 else math.nan


def sign(x: Any) -> Any:
    if isinstance(x, Expr):
        return symbolic.sign(x)
    return x.sign()


def where(condition: Any, a: Any, b: Any) -> Any:
    """Return a where the condition holds, else b."""
    if any(isinstance(x, Expr) for x in (condition, a, b)):
        return symbolic.where(condition, a, b)
    if isinstance(condition, Tensor):
        return tensor_where(condition, a, b)
    return a if condition else b


def _extreme(of_formulas: AnyFunction, of_tensors: AnyFunction, bound: str, of_numbers: AnyFunction) -> AnyFunction:
    """Return the function that chooses the larger or smaller of two formulas, tensors or numbers; `clamp` takes a number as `bound`."""

    def chosen(a: Any, b: Any) -> Any:
        if isinstance(a, Expr) or isinstance(b, Expr):
            return of_formulas(a, b)
        if isinstance(a, Tensor):
            return of_tensors(a, b) if isinstance(b, Tensor) else a.clamp(**{bound: b})
        return b.clamp(**{bound: a}) if isinstance(b, Tensor) else of_numbers(a, b)

    return chosen


maximum = _extreme(symbolic.maximum, tensor_maximum, "min", max)
minimum = _extreme(symbolic.minimum, tensor_minimum, "max", min)


def lerp(start: Any, end: Any, weight: Any) -> Any:
    """Return the point between start (weight 0) and end (weight 1)."""
    return start + (end - start) * weight


def descending(param: Any, grad: Any, weight_decay: Any, maximize: bool) -> Any:
    """Return the gradient to descend along: negated if the objective is maximized, with weight decay added."""
    grad = -grad if maximize else grad
    return grad if weight_decay is None else grad + weight_decay * param


def decayed(param: Any, grad: Any, lr: Any, weight_decay: Any, decoupled: bool, maximize: bool) -> tuple[Any, Any]:
    """Return parameter and gradient with weight decay, applied to the parameter (decoupled) or added to the gradient."""
    if not decoupled or weight_decay is None:
        return param, descending(param, grad, weight_decay, maximize)
    return param * (1 - lr * weight_decay), descending(param, grad, None, maximize)


def detached(x: Any) -> Any:
    """Return x detached, so that a differentiable step sees its value only."""
    return x.detach() if isinstance(x, Tensor) else x
