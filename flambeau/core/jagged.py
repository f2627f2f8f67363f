"""Nested tensors in the jagged layout: rows of different lengths, packed one after the other into one tensor of values.

Offsets say where each row begins. The size of the ragged dimension is a symbol (`j1`): equal symbols mean equal offsets."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from .held import HeldTensor, NoNumber
from .layout import jagged
from .tensor import Tensor

_new_object = object.__new__
_symbols = itertools.count(1)


class NestedInt(NoNumber):
    """The size of a ragged dimension: it equals itself."""

    kind, layout = "nested", jagged

    def __init__(self) -> None:
        self.number = next(_symbols)

    def __repr__(self) -> str:
        return f"j{self.number}"


class NestedTensor(HeldTensor):
    """Rows of different lengths. `_value` holds them along its dimension `_ragged` - 1, row i from `_starts[i]` to `_starts[i + 1]`, or for
    `_lengths[i]` elements where there are gaps between them."""

    __slots__ = ("_starts", "_ragged", "_symbol", "_lengths")

    kind = "nested"
    layout = jagged
    is_nested = True

    _starts: Tensor
    _ragged: int
    _symbol: NestedInt
    _lengths: Tensor | None

    def _mold(self) -> Callable[[Tensor], Any]:
        return functools.partial(
            new_jagged, starts=self._starts, ragged=self._ragged, symbol=self._symbol, lengths=self._lengths
        )

    def _adopt(self, other: Any) -> None:
        super()._adopt(other)
        self._starts, self._ragged, self._symbol, self._lengths = (
            other._starts,
            other._ragged,
            other._symbol,
            other._lengths,
        )

    # PyTorch's names of the parts, which libraries look at
    _values = property(lambda self: self._value)
    _offsets = property(lambda self: self._starts)
    _ragged_idx = property(lambda self: self._ragged)

    def numel(self) -> int:
        if self._lengths is None:
            return self._value.numel()
        return sum(self._lengths.tolist()) * (self._value.numel() // max(self._value.shape[self._ragged - 1], 1))

    def __len__(self) -> int:
        return self._starts.shape[0] - 1

    def data_ptr(self) -> int:
        return self._value.data_ptr()

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return self._lengths is None and self._ragged == 1 and self._value.is_contiguous()

    def offsets(self) -> Tensor:
        """Return where each row begins among the values, and where the last ends."""
        return self._starts

    def lengths(self) -> Tensor | None:
        """Return the number of elements of each row, or None where rows are stored one after the other without gaps."""
        return self._lengths

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        sizes = ", ".join(map(str, self.shape))
        history = "requires_grad=True, " if self.requires_grad else ""
        history = history if self.grad_fn is None else f"grad_fn={self.grad_fn}, "
        return f"NestedTensor(size=({sizes}), offsets={self._starts}, {history}contiguous={self.is_contiguous()})"


def new_jagged(
    value: Tensor, starts: Tensor, ragged: int = 1, symbol: NestedInt | None = None, lengths: Tensor | None = None
) -> NestedTensor:
    """A nested tensor of the rows in `value`: checks nothing."""
    t = _new_object(NestedTensor)
    t._autograd = t._base = None
    t._starts, t._ragged, t._symbol, t._lengths = starts, ragged, symbol or NestedInt(), lengths
    sizes: list[Any] = list(value.shape)
    sizes[ragged - 1] = t._symbol
    t._hold(value, (starts.shape[0] - 1, *sizes))
    return t
