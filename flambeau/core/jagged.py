"""Nested tensors in the jagged layout: rows of different lengths, packed one after the other into one tensor of values.

Offsets are where each row begins. The size of the ragged dimension is a symbol (`j1`): equal symbols mean equal offsets."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from .held import HeldOperand, HeldTensor, NoNumber
from .layout import jagged
from .tensor import Tensor

_new_object = object.__new__
_symbols = itertools.count(1)


class NestedIntNode(NamedTuple):
    """Identity of a ragged size: its number, the factor by which it is multiplied, and the tensor of the rows' lengths."""

    t_id: int
    coeff: int = 1
    source: Any = None


class IndeterminateSize(HeldOperand, ValueError):
    """Raised if it is not known which of two sizes is larger."""


class SymInt(NoNumber):
    """An integer without a value: the size of a ragged dimension, or a multiple of it. It is at least 2."""

    kind, layout = "nested", jagged
    # By their sources' identity.
    known: ClassVar[weakref.WeakValueDictionary[int, SymInt]] = weakref.WeakValueDictionary()

    def __init__(self, node: Any) -> None:
        if not isinstance(node, NestedIntNode):
            raise TypeError(f"SymInt stands for the size of a ragged dimension, got {node!r}: other sizes are numbers")
        self.node = node

    def __repr__(self) -> str:
        number, factor, _ = self.node
        return f"j{number}" if factor == 1 else f"{factor}*j{number}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymInt) and self.node[:2] == other.node[:2]

    def __hash__(self) -> int:
        return hash(self.node[:2])

    def __mul__(self, other: Any) -> Any:
        if type(other) is not int:
            return self._refuse(other)
        return SymInt(self.node._replace(coeff=self.node.coeff * other))

    __rmul__ = __mul__

    def _exceeds(self, other: Any, equal: bool) -> bool:
        """Return whether this size is larger than `other`, or with `equal` also if they are equal."""
        if isinstance(other, SymInt) and other.node.t_id == self.node.t_id:
            return self.node.coeff > other.node.coeff - equal
        if isinstance(other, int) and other < 2 + equal:
            return True
        raise IndeterminateSize(self, f"it is not known whether {self} or {other} is larger")

    def __gt__(self, other: Any) -> bool:
        return self._exceeds(other, False)

    def __ge__(self, other: Any) -> bool:
        return self._exceeds(other, True)

    def __lt__(self, other: Any) -> bool:
        return not self._exceeds(other, True)

    def __le__(self, other: Any) -> bool:
        return not self._exceeds(other, False)


def ragged_size(source: Tensor) -> SymInt:
    """Return the size of the ragged dimension whose row lengths `source` holds: the same for the same tensor."""
    size = SymInt.known.get(id(source))
    if size is None:  # the size keeps the tensor, so that its identity is not another's while it is known here
        size = SymInt.known[id(source)] = SymInt(NestedIntNode(next(_symbols), 1, source))
    return size


class NestedTensor(HeldTensor):
    """Rows of different lengths. `_value` holds them along its dimension `_ragged` - 1, row i from `_starts[i]` to `_starts[i + 1]`, or for
    `_lengths[i]` elements if there are gaps between them."""

    __slots__ = ("_starts", "_ragged", "_symbol", "_lengths", "_metadata_cache")

    kind = "nested"
    layout = jagged
    is_nested = True

    _starts: Tensor
    _ragged: int
    _symbol: SymInt
    _lengths: Tensor | None
    _metadata_cache: dict[str, int]  # the smallest and the largest length, where they are known

    def __new__(
        cls, values: Tensor, offsets: Tensor, *, lengths: Tensor | None = None, _ragged_idx: int = 1, **known: Any
    ) -> Any:
        cache = {name.strip("_"): n for name, n in known.items()}
        return new_jagged(values.detach(), offsets, _ragged_idx, None, lengths, cache)

    def _mold(self) -> Callable[[Tensor], Any]:
        names = ("starts", "ragged", "symbol", "lengths", "metadata_cache")
        return functools.partial(new_jagged, **{name: getattr(self, f"_{name}") for name in names})

    def _adopt(self, other: Any) -> None:
        super()._adopt(other)
        for name in NestedTensor.__slots__:
            setattr(self, name, getattr(other, name))

    # PyTorch's names of the parts, which libraries read
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
        return self._lengths is None and self._value.is_contiguous()

    def stride(self, dim: Any = None) -> Any:
        strides = (self._symbol * self._value.stride(self._ragged - 1), *self._value.stride())
        return strides if dim is None else strides[dim]

    def offsets(self) -> Tensor:
        """Return where each row begins among the values, and where the last ends."""
        return self._starts

    def lengths(self) -> Tensor | None:
        """Return the number of elements of each row, or None if rows are stored without gaps."""
        return self._lengths

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        sizes = ", ".join(map(str, self.shape))
        history = "requires_grad=True, " if self.requires_grad else ""
        history = history if self.grad_fn is None else f"grad_fn={self.grad_fn}, "
        return f"NestedTensor(size=({sizes}), offsets={self._starts}, {history}contiguous={self.is_contiguous()})"


def new_jagged(
    value: Tensor, starts: Tensor, ragged: int = 1, symbol: SymInt | None = None, lengths: Tensor | None = None,
    metadata_cache: dict[str, int] | None = None,
) -> NestedTensor:  # fmt: skip
    """Return a nested tensor of the rows in `value`, without checks."""
    t = _new_object(NestedTensor)
    t._autograd = t._base = None
    t._starts, t._ragged, t._lengths = starts, ragged, lengths
    t._symbol = symbol or ragged_size(starts if lengths is None else lengths)
    t._metadata_cache = {} if metadata_cache is None else metadata_cache
    sizes: list[Any] = list(value.shape)
    sizes[ragged - 1] = t._symbol
    t._hold(value, (starts.shape[0] - 1, *sizes))
    return t
