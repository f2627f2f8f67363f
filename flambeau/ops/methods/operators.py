"""Python's operators on tensors, as special methods that call the library's operators."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np

from ...core import graph, modes
from ...core.aliases import AnyFunction, Values
from ...core.dtype import FROM_NUMPY
from ...core.overrides import FACE_CODES, discovers, overriding_arguments, refuse_real_tensors, with_attributes
from ...core.tensor import OpenTensor, Tensor, copy_of_array
from ..machinery.calls import general, run_inplace
from ..machinery.faces import make_face
from ..machinery.formula import Pointwise
from ..machinery.record import OPS, Op
from ..machinery.shown import show_signature

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
_UNARY = {"neg": "neg", "pos": "positive", "abs": "abs"}
# Those that overrides of operators know by the symbol's own method; the rest they know by the operator's function.
_NAMED_BY_SYMBOL = {
    "eq", "pow", "and", "or", "xor", "lshift", "rshift", "floordiv", "rsub", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul",
}  # fmt: skip
_OPERANDS = (Tensor, bool, int, float, complex, np.generic)

_active, _asking = modes.active, modes.asking


def _general_operator(impl: Pointwise, operands: Values, params: Values, out: Any, face: Any) -> Any:
    if _takes(operands[1]):
        return general(impl, operands, params, out, face)
    return _intercept(face.op, face, operands, {}) if discovers(operands, {}) else NotImplemented


def _general_equal(impl: Pointwise, operands: Values, params: Values, out: Any, face: Any) -> Any:
    """Compare, also with NumPy arrays, which other comparisons do not accept."""
    left, right = operands
    if isinstance(right, np.ndarray) and right.dtype in FROM_NUMPY:
        right = copy_of_array(right, FROM_NUMPY[right.dtype])
    return _general_operator(impl, (left, right), params, out, face)


def _general_quotient(impl: Pointwise, operands: Values, params: Values, out: Any, face: Any) -> Any:
    """Divide a NumPy array by a tensor, the one such arithmetic operator that PyTorch accepts: NumPy multiplies by the reciprocal."""
    if isinstance(operands[1], np.ndarray):
        return OPS["reciprocal"].function(operands[0]) * operands[1]
    return _general_operator(impl, operands, params, out, face)


def _intercept(op: Op, function: AnyFunction, args: Values, kwargs: dict[str, Any]) -> Any:
    """Call `modes.intercept`; if an override declines, return NotImplemented for the other operand."""
    try:
        result = modes.intercept(op, function, args, kwargs)
        if result is NotImplemented and discovers(args, kwargs):
            return modes.intercept(op, function, args, kwargs)
        return result
    except TypeError:
        refuse_real_tensors(args)
        if not _takes(args[1]) or overriding_arguments(args, kwargs):
            return NotImplemented
        raise


def _takes(other: Any) -> bool:
    return isinstance(other, _OPERANDS)


def _operator(op: Op, symbol: str, fallback: AnyFunction = _general_operator) -> AnyFunction:
    """Return the operator as a special method, which returns NotImplemented for operands it cannot take."""
    if not isinstance(op.impl, Pointwise):
        return _checked(op.function)
    face = make_face(op.impl, False, fallback)
    face.op, face._make_unwatched = op, face.unwatched_twin
    face.__globals__["_intercept"] = _intercept
    if symbol in _NAMED_BY_SYMBOL:
        face.__name__ = face.__qualname__ = f"__{symbol}__"
    else:
        face.__globals__["_face"] = op.function  # what overrides are asked about
    return face


def _checked(function: Any) -> AnyFunction:
    @with_attributes
    def operator(self: Tensor, other: Any) -> Any:
        if _active and _asking():
            return _intercept(function.op, function, (self, other), {})
        if _takes(other):
            return function(self, other)
        return operator(self, other) if discovers((self, other), {}) else NotImplemented

    FACE_CODES.add(operator.__code__)
    return operator


def _exchanged(function: AnyFunction, symbol: str) -> AnyFunction:
    @with_attributes
    def operator(self: Tensor, other: Any) -> Any:
        if _active and _asking():
            return _intercept(operator.op, operator, (self, other), {})
        if _takes(other):
            return function(other, self)
        return operator(self, other) if discovers((self, other), {}) else NotImplemented

    FACE_CODES.add(operator.__code__)
    operator.__name__ = operator.__qualname__ = f"__{symbol}__"
    operator.op = Op(operator.__name__, "composite", operator, ())
    return operator


def _reflected_quotient() -> AnyFunction:
    """Return number / tensor. If it is recorded, the reciprocal is a separate operator: the backward pass reads its result, so that the
    tensor, and the quotient, may be overwritten, as in PyTorch."""
    fused = _operator(OPS["internal.rdiv"], "rtruediv", _general_quotient)
    reciprocal, product = OPS["reciprocal"].function, OPS["mul"].function

    @with_attributes
    def operator(self: Tensor, other: Any) -> Any:
        if _active and _asking():
            return _intercept(operator.op, operator, (self, other), {})
        if (self._autograd is not None or self._base is not None) and graph.grad_mode.enabled and _takes(other):
            return product(reciprocal(self), other)
        return fused(self, other)

    FACE_CODES.add(operator.__code__)
    operator.__name__ = operator.__qualname__ = "__rtruediv__"
    operator.op = Op(operator.__name__, "composite", operator, ())
    return operator


def _inplace_operator(method: Any) -> AnyFunction:
    """Return an in-place method as the operator of an augmented assignment, which returns NotImplemented for operands it cannot take."""
    space = {**method.__globals__, "_run_inplace": _run_inplace_operator, "_intercept": _intercept}
    face = FunctionType(method.__code__, space, method.__name__, method.__defaults__, method.__closure__)
    face.__kwdefaults__ = method.__kwdefaults__
    space["_itself"] = face
    show_signature(face, face.__name__)
    return face


def _run_inplace_operator(impl: Pointwise, self: Tensor, operands: Values, params: Values, name: str, face: Any) -> Any:
    if _takes(operands[1]):
        return run_inplace(impl, self, operands, params, name, face)
    return _intercept(face.op, face, operands, {}) if discovers(operands, {}) else NotImplemented


def _inverted(self: Tensor) -> Tensor:
    if self.dtype.category > 1:
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return OPS["bitwise_not"].function(self)


def bind_operators() -> None:
    """Define Python's operators on tensors, once, when all operators are declared."""
    for symbol, name in _BINARY.items():
        op = OPS[name]
        setattr(Tensor, f"__{symbol}__", _operator(op, symbol))
        other_way = f"r{symbol}"
        reflected = (
            _operator(OPS[_REFLECTED[symbol]], other_way)
            if symbol in _REFLECTED
            else _exchanged(op.function, other_way)
        )
        setattr(Tensor, f"__r{symbol}__", reflected)
        if op.inplace is not None:
            setattr(Tensor, f"__i{symbol}__", _inplace_operator(op.inplace))
    OpenTensor.__rtruediv__ = _reflected_quotient()
    OpenTensor.__div__, OpenTensor.__rdiv__ = Tensor.__truediv__, Tensor.__rtruediv__
    OpenTensor.__idiv__ = Tensor.__itruediv__
    for symbol, name in _COMPARE.items():
        setattr(Tensor, f"__{symbol}__", _operator(OPS[name], symbol))
    OpenTensor.__eq__ = _operator(OPS["eq"], "eq", _general_equal)
    for symbol, name in _UNARY.items():
        setattr(Tensor, f"__{symbol}__", OPS[name].function)
    OpenTensor.__invert__ = _inverted
    OpenTensor.__hash__ = object.__hash__
