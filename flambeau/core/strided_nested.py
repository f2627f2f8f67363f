"""Nested tensors in the strided layout: tensors of one dtype in one buffer, each with its own size and strides."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from .held import HeldOperand, HeldTensor, NoNumber
from .layout import strided
from .tensor import Tensor, contiguous_strides

_new_object = object.__new__


class Places(NamedTuple):
    """Sizes and strides of the rows of a nested tensor, their offsets in its buffer, and the number of the buffer's elements."""

    sizes: tuple[tuple[int, ...], ...]
    strides: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    capacity: int


def packed_places(sizes: Any) -> Places:
    """Return the places of contiguous rows of these sizes that are stored one after the other."""
    shapes, starts = tuple(map(tuple, sizes)), [0]
    for shape in shapes:
        starts.append(starts[-1] + math.prod(shape))
    return Places(shapes, tuple(tuple(contiguous_strides(shape)) for shape in shapes), tuple(starts[:-1]), starts[-1])


class IrregularSize(NoNumber):
    """The size of a dimension in which rows differ; it equals another one with the same sizes."""

    kind, layout = "strided_nested", strided

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes

    def __repr__(self) -> str:
        return f"{{{', '.join(map(str, self.sizes))}}}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IrregularSize) and self.sizes == other.sizes

    def __hash__(self) -> int:
        return hash(self.sizes)


class StridedNestedTensor(HeldTensor):
    """Rows of one dtype and number of dimensions but different sizes. `_value` is the buffer that holds them, at `_places`."""

    __slots__ = ("_places",)

    kind = "strided_nested"
    layout = strided
    is_nested = True

    _places: Places

    def _mold(self) -> Callable[[Tensor], Any]:
        return functools.partial(new_strided_nested, places=self._places)

    def _adopt(self, other: Any) -> None:
        super()._adopt(other)
        self._places = other._places

    def numel(self) -> int:
        return sum(map(math.prod, self._places.sizes))

    def __len__(self) -> int:
        return len(self._places.sizes)

    def size(self, dim: Any = None) -> Any:
        if dim is None:
            raise RuntimeError("NestedTensorImpl doesn't support sizes: each row has its own (unbind() gives the rows)")
        if not isinstance(self.shape[dim], IrregularSize):
            return self.shape[dim]
        raise RuntimeError(f"Given dimension {dim} is irregular and does not have a size.")

    def stride(self, dim: Any = None) -> NoReturn:
        raise HeldOperand(
            self, "NestedTensorImpl doesn't support strides: each row has its own (unbind() gives the rows)"
        )

    def data_ptr(self) -> int:
        return self._value.data_ptr()

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return self._places == packed_places(self._places.sizes)

    def _no_list(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("a nested tensor is no list or array of numbers: convert the rows that unbind() gives")

    tolist = numpy = __array__ = _no_list


def new_strided_nested(value: Tensor, places: Places) -> StridedNestedTensor:
    """Return a nested tensor of the rows at `places` in the buffer `value`, without checks."""
    t = _new_object(StridedNestedTensor)
    t._autograd = t._base = None
    t._places = places
    sizes = [of_rows[0] if len(set(of_rows)) == 1 else IrregularSize(of_rows) for of_rows in zip(*places.sizes)]
    t._hold(value, (len(places.sizes), *sizes))
    return t
