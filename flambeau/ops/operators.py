"""Python's operators on tensors: which operator each one is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.dtype import FROM_NUMPY
from ..core.tensor import Tensor, copy_of_array
from .calls import general
from .faces import make_face
from .formula import Pointwise
from .registry import OPS, Op

_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
# number - tensor and the like. The commutative ones are the operator itself; the rest exchange their operands.
_REFLECTED = {
    "add": "add", "mul": "mul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "sub": "rsub",
    "truediv": "internal.rdiv",
}  # fmt: skip
_COMPARE = {"ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_UNARY = {"neg": "neg", "pos": "positive", "abs": "abs", "invert": "bitwise_not"}
_OPERANDS = (Tensor, bool, int, float, complex, np.generic)


def _general_operator(impl: Pointwise, operands: tuple, params: tuple, out: Any) -> Any:
    return general(impl, operands, params, out) if _takes(operands[1]) else NotImplemented


def _general_equal(impl: Pointwise, operands: tuple, params: tuple, out: Any) -> Any:
    """The one comparison that also takes NumPy arrays."""
    left, right = operands
    if isinstance(right, np.ndarray) and right.dtype in FROM_NUMPY:
        right = copy_of_array(right, FROM_NUMPY[right.dtype])
    return _general_operator(impl, (left, right), params, out)


def _takes(other: Any) -> bool:
    return isinstance(other, _OPERANDS) or (isinstance(other, np.ndarray) and other.ndim == 0)


def _operator(op: Op, fallback: Callable = _general_operator) -> Callable:
    """The operator as a special method: what it cannot take is left to the other operand."""
    if not isinstance(op.impl, Pointwise):
        return _checked(op.function)
    face = make_face(op.impl, False, fallback)
    face.op = op
    return face


def _checked(function: Callable) -> Callable:
    def operator(self: Tensor, other: Any) -> Any:
        return function(self, other) if _takes(other) else NotImplemented

    return operator


def _exchanged(function: Callable) -> Callable:
    def operator(self: Tensor, other: Any) -> Any:
        return function(other, self) if _takes(other) else NotImplemented

    return operator


def bind_operators() -> None:
    """Give tensors Python's operators, once, when all operators are declared."""
    for symbol, name in _BINARY.items():
        op = OPS[name]
        setattr(Tensor, f"__{symbol}__", _operator(op))
        reflected = _operator(OPS[_REFLECTED[symbol]]) if symbol in _REFLECTED else _exchanged(op.function)
        setattr(Tensor, f"__r{symbol}__", reflected)
        if op.inplace is not None:
            setattr(Tensor, f"__i{symbol}__", op.inplace)
    Tensor.__div__, Tensor.__rdiv__ = Tensor.__truediv__, Tensor.__rtruediv__  # type: ignore[attr-defined]
    Tensor.__idiv__ = Tensor.__itruediv__  # type: ignore[attr-defined]
    for symbol, name in _COMPARE.items():
        setattr(Tensor, f"__{symbol}__", _operator(OPS[name]))
    Tensor.__eq__ = _operator(OPS["eq"], _general_equal)  # type: ignore[method-assign, assignment]
    for symbol, name in _UNARY.items():
        setattr(Tensor, f"__{symbol}__", OPS[name].function)
    Tensor.__hash__ = object.__hash__  # type: ignore[method-assign]
