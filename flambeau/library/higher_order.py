"""Operators that take functions, `torch.ops.higher_order`: branches and loops that graphs keep.

>>> flambeau.cond(flambeau.tensor(True), lambda x: x + 1, lambda x: x - 1, (flambeau.zeros(1),))
tensor([1.])
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..core import overrides, pytree
from ..core.tensor import Tensor
from .aten import recording


class HigherOrderOperator:
    """An operator that takes functions; a subclass implements it in `__call__`."""

    def __init__(self, name: str, *, cacheable: bool = False) -> None:
        self._name = self.__name__ = self.__qualname__ = name
        self.__module__ = "torch.ops.higher_order"

    def name(self) -> str:
        return self._name

    namespace = "higher_order"

    def __str__(self) -> str:
        return self._name

    def __deepcopy__(self, memo: Any = None) -> HigherOrderOperator:
        return self

    def __reduce__(self) -> tuple:
        return _find_overload, (self._name,)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"the higher-order operator {self._name}")


class CondOp(HigherOrderOperator):
    """Operator that calls one of two functions; while a graph is being recorded, both become parts of it."""

    def __call__(self, pred: Any, true_fn: Callable, false_fn: Callable, operands: tuple = ()) -> Any:
        arguments = (pred, true_fn, false_fn, operands)
        overriding = overrides.overriding_arguments((pred, *operands), {})
        if overriding:
            return overrides.call_override(self, arguments, {}, overriding)
        if recording.recorder is not None and isinstance(pred, Tensor):
            return recording.recorder.branch(self, pred, true_fn, false_fn, operands)
        return (true_fn if pred else false_fn)(*operands)


class WhileLoopOp(HigherOrderOperator):
    """Operator that calls a function on its own results as long as another returns True."""

    def __call__(
        self, cond_fn: Callable, body_fn: Callable, carried_inputs: tuple, additional_inputs: tuple = ()
    ) -> Any:
        overriding = overrides.overriding_arguments((*carried_inputs, *additional_inputs), {})
        if overriding:
            return overrides.call_override(self, (cond_fn, body_fn, carried_inputs, additional_inputs), {}, overriding)
        if recording.recorder is not None:
            raise NotImplementedError("while_loop: graphs have no loops; `flambeau.compile` runs one in parts")
        carried = tuple(carried_inputs)
        while cond_fn(*carried, *additional_inputs):
            made = body_fn(*carried, *additional_inputs)
            made = tuple(made) if isinstance(made, (tuple, list)) else (made,)
            if len(made) != len(carried):
                raise RuntimeError(f"body_fn should return {len(carried)} values as it was given, got {len(made)}")
            carried = made
        return carried


cond_op = CondOp("cond")
while_loop_op = WhileLoopOp("while_loop")
higher_order: Any = ModuleType("torch.ops.higher_order", "Operators that take functions.")
higher_order.cond = cond_op
higher_order.while_loop = while_loop_op


def _find_overload(name: str) -> HigherOrderOperator:
    return getattr(higher_order, name)


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: tuple | list = ()) -> Any:
    """Return `true_fn(*operands)` if the tensor `pred` (of one element) is true, else `false_fn(*operands)`. Graphs (`make_fx`, `export`)
    contain both branches, so that the tensor decides each time they run; both must return tensors of the same number and shapes then, and
    must not change their operands."""
    if not isinstance(pred, (bool, int, float, Tensor)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    tensors = isinstance(operands, (tuple, list)) and all(isinstance(t, Tensor) for t in pytree.tree_leaves(operands))
    if not tensors:
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but got"
            f" {operands}."
        )
    if not isinstance(pred, Tensor):
        warnings.warn(
            "Pred is a Python constant. When used with torch.cond, it specializes on one of the branches. If you want torch.cond"
            " to preserve two branches, please make the predicate a boolean tensor or a SymBool.",
            UserWarning,
            stacklevel=2,
        )
    return cond_op(pred, true_fn, false_fn, tuple(operands))


def while_loop(cond_fn: Callable, body_fn: Callable, carried_inputs: tuple | list) -> tuple:
    """Repeat `carried = body_fn(*carried)` as long as `cond_fn(*carried)` is true, from `carried_inputs` on; return the last `carried`.

    >>> while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (flambeau.tensor(0), flambeau.ones(1)))
    (tensor(3), tensor([8.]))
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"Expect carried_inputs to be a tuple or list, got {type(carried_inputs).__name__}.")
    return while_loop_op(cond_fn, body_fn, tuple(carried_inputs))
