"""`torch.sym_*`: arithmetic that PyTorch's tracers can follow; on plain numbers it is plain arithmetic.

Shapes are numbers here but for ragged sizes of nested tensors (`SymInt`); `SymFloat` and `SymBool` are there for `isinstance`.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from .core.jagged import SymInt as SymInt
from .core.overrides import overridable


class _Symbol:
    def __init__(self, node: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} stands for a size unknown while tracing; Flambeau's sizes are always numbers"
        )


class SymFloat(_Symbol):
    """A float unknown while tracing; never made by Flambeau."""


class SymBool(_Symbol):
    """A bool unknown while tracing; never made by Flambeau."""


@overridable
def sym_int(a: Any) -> int:
    """Return `int(a)`, rounding towards zero."""
    return int(a)


@overridable
def sym_float(a: Any) -> float:
    """Return `float(a)` of a number or symbolic size."""
    return float(a)


@overridable
def sym_not(a: Any) -> bool:
    """Return `not a` of a boolean or symbolic condition."""
    return not a


def _extreme(a: Any, b: Any, of_symbols: str, of_numbers: Callable[..., Any]) -> Any:
    _require_numbers(a, b)
    for first, second in ((a, b), (b, a)):
        if hasattr(first, of_symbols):
            return getattr(first, of_symbols)(second)
    found = of_numbers(a, b)
    return float(found) if isinstance(a, float) or isinstance(b, float) else found


@overridable
def sym_max(a: Any, b: Any) -> Any:
    """Return the larger of two numbers; a float if either is one."""
    return _extreme(a, b, "__sym_max__", builtins.max)


@overridable
def sym_min(a: Any, b: Any) -> Any:
    """Return the smaller of two numbers; a float if either is one."""
    return _extreme(a, b, "__sym_min__", builtins.min)


def _require_numbers(*values: Any) -> None:
    for value in values:
        if not isinstance(value, (int, float)):
            raise AssertionError(f"expected int or float, got {type(value)}")


def sym_sum(args: Iterable[Any]) -> Any:
    """Return the sum of numbers or symbolic sizes."""
    return builtins.sum(args)


@overridable
def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """Return `t if b else f`, for two values of one type."""
    if not isinstance(b, bool):
        raise AssertionError(f"expected SymBool or bool, got {type(b)}")
    if type(t) is not type(f):
        raise AssertionError(f"type mismatch: {type(t)} vs {type(f)}")
    return t if b else f


def _of_math(name: str) -> Any:
    def function(a: Any) -> float:
        return getattr(math, name)(a)

    function.__name__ = function.__qualname__ = f"sym_{name}"
    function.__doc__ = f"`math.{name}(a)`."
    return overridable(function)


sym_sqrt = _of_math("sqrt")


@overridable
def _assert(condition: Any, message: str) -> None:
    """Assert a condition, as a function that tracers can record."""
    if not condition:
        raise AssertionError(message)


SymTypes = (SymInt, SymFloat, SymBool)


def has_free_symbols(val: Any) -> bool:
    """Return whether a value contains symbolic sizes; sizes are always numbers here."""
    return False


def is_concrete_int(a: Any) -> bool:
    """Return whether a value is a known integer."""
    return isinstance(a, int)


def sym_bool(a: Any) -> bool:
    """Return the truth of a comparison of sizes, which is always known."""
    return bool(a)


class ShapeEnv:
    """PyTorch's record of symbolic sizes and their constraints. It stays empty: sizes are always numbers here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.guards: list[Any] = []
        self.var_to_val: dict[Any, Any] = {}


def is_nested_int(s: Any) -> bool:
    """Return whether a size is that of a ragged dimension of a nested tensor."""
    return isinstance(s, SymInt)
