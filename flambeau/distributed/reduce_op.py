"""Reductions of the values of several ranks: `ReduceOp`, and the arithmetic on memory."""

from __future__ import annotations

import ctypes
import enum
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core.device import cpu
from ..core.size import make_size
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, new_tensor
from ..ops import namespace


class RedOpType(enum.IntEnum):
    """The kinds of reduction."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8
    UNUSED = 9

    def __repr__(self) -> str:
        return f"<RedOpType.{self.name}: {self.value}>"

    __str__ = enum.Enum.__str__


class _ReduceOpMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, RedOpType) or type.__instancecheck__(cls, instance)


class ReduceOp(metaclass=_ReduceOpMeta):
    """Reductions SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR; PREMUL_SUM multiplies by a factor before it adds.

    >>> ReduceOp.SUM
    <RedOpType.SUM: 0>
    """

    RedOpType = RedOpType
    SUM, AVG, PRODUCT, MIN, MAX = RedOpType.SUM, RedOpType.AVG, RedOpType.PRODUCT, RedOpType.MIN, RedOpType.MAX
    BAND, BOR, BXOR = RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR
    PREMUL_SUM, UNUSED = RedOpType.PREMUL_SUM, RedOpType.UNUSED

    def __init__(self, op: int, factor: Any = None):
        self.op = RedOpType(op)
        self.factor = factor

    def __eq__(self, other: object) -> bool:
        return self.op == (other.op if type(other) is ReduceOp else other)

    def __hash__(self) -> int:
        return hash(self.op)

    def __int__(self) -> int:
        return int(self.op)

    def __repr__(self) -> str:
        return repr(self.op)

    def __copy__(self) -> ReduceOp:
        return self

    def __deepcopy__(self, memo: dict) -> ReduceOp:
        return self


def premul_sum(factor: Any) -> ReduceOp:
    """Return the reduction that adds `factor * value` of all ranks."""
    return ReduceOp(RedOpType.PREMUL_SUM, factor)


def kind_of(op: Any) -> RedOpType:
    return op.op if type(op) is ReduceOp else RedOpType(op)


# -- arithmetic on memory -------------------------------------------------------------------------------------------------

_UFUNCS = {
    RedOpType.SUM: np.add, RedOpType.PRODUCT: np.multiply, RedOpType.MIN: np.minimum, RedOpType.MAX: np.maximum,
    RedOpType.BAND: np.bitwise_and, RedOpType.BOR: np.bitwise_or, RedOpType.BXOR: np.bitwise_xor,
}  # fmt: skip
_KERNELS = {RedOpType.SUM: "add", RedOpType.PRODUCT: "mul", RedOpType.MIN: "minimum", RedOpType.MAX: "maximum"}


def array_at(address: int, count: int, d: Any) -> Any:
    """Return `count` elements of dtype `d` at an address, as an array for `combiner(op, d)`. The caller keeps the memory alive."""
    if d in _NUMPY:
        return np.frombuffer((ctypes.c_char * (count * d.itemsize)).from_address(address), _NUMPY[d])
    storage = UntypedStorage.borrow(address, count * d.itemsize, True, cpu)
    return new_tensor(storage, make_size((count,)), (1,), 0, d, cpu, True)


# Halves and quarters have no fast arithmetic in NumPy, or none at all: those are Flambeau's own kernels.
_NUMPY = {d: d.numpy for d in dt.ALL_DTYPES if d.has_numpy and d.name != "float16"}


@functools.cache
def combiner(op: RedOpType, d: Any) -> Callable[[Any, Any, Any], None]:
    """Return a function of (one, other, out) that reduces arrays of dtype `d`, made by `array_at`."""
    if op in (RedOpType.AVG, RedOpType.PREMUL_SUM):
        op = RedOpType.SUM  # what is done before and after is the process group's business
    if d in _NUMPY:
        if op in _UFUNCS and not (_NUMPY[d].kind in "fc" and op >= RedOpType.BAND):
            return _ufunc(_UFUNCS[op])
    elif op in _KERNELS:
        return _kernel(_KERNELS[op])
    raise RuntimeError(f"Cannot use ReduceOp.{op.name} with {'non-integral dtype' if op >= RedOpType.BAND else d}")


@functools.cache
def _ufunc(function: Any) -> Callable[[Any, Any, Any], None]:
    def combine(one: Any, other: Any, out: Any) -> None:
        with np.errstate(all="ignore"):  # overflow and NaN are the program's business
            function(one, other, out=out)

    return combine


@functools.cache
def _kernel(name: str) -> Callable[[Tensor, Tensor, Tensor], None]:
    function = namespace("torch")[name]

    def combine(one: Tensor, other: Tensor, out: Tensor) -> None:
        function(one, other, out=out)

    return combine
