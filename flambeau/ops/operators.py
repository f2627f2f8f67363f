"""Python's operators on tensors: which operator each one is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from .registry import OPS

_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_UNARY = {"neg": "neg", "pos": "positive", "abs": "abs", "invert": "bitwise_not"}
_SCALARS = (Tensor, bool, int, float, complex, np.generic)


def _forward(function: Callable) -> Callable:
    def operator(self: Tensor, other: Any) -> Any:
        if isinstance(other, _SCALARS):
            return function(self, other)
        return NotImplemented

    return operator


def _reflected(function: Callable) -> Callable:
    def operator(self: Tensor, other: Any) -> Any:
        if isinstance(other, _SCALARS):
            return function(other, self)
        return NotImplemented

    return operator


def bind_operators() -> None:
    for symbol, name in _BINARY.items():
        op = OPS.get(name)
        if op is None: continue
        setattr(Tensor, f"__{symbol}__", _forward(op.function))
        setattr(Tensor, f"__r{symbol}__", _reflected(op.function))
        if op.inplace is not None:
            setattr(Tensor, f"__i{symbol}__", _forward(op.inplace))
    for symbol, name in _COMPARE.items():
        if name not in OPS: continue
        setattr(Tensor, f"__{symbol}__", _forward(OPS[name].function))
    for symbol, name in _UNARY.items():
        if name not in OPS: continue
        setattr(Tensor, f"__{symbol}__", OPS[name].function)
    Tensor.__hash__ = object.__hash__  # type: ignore[method-assign]
