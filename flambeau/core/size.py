"""Tensor shapes: `Size`, a tuple of ints that prints and slices as PyTorch's."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn

from .typenames import type_name

_tuple_item = tuple.__getitem__
_INT64 = range(-(2**63), 2**63)


class Size(tuple[int, ...]):
    """The size of each dimension of a tensor.

    >>> Size([2, 3]) + (4,)
    torch.Size([2, 3, 4])
    >>> Size([2, 3]).numel()
    6
    """

    __slots__ = ()
    _printed_name = "torch.Size"

    def __new__(cls, *sizes: Iterable[Any]) -> Size:
        if len(sizes) > 1:
            raise TypeError(f"tuple expected at most 1 argument, got {len(sizes)}")
        return make_size([_check_item(item, position) for position, item in enumerate(sizes[0])] if sizes else ())

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("type 'torch.Size' is not an acceptable base type")

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    def numel(self) -> int:
        """The number of elements of a tensor of this size (the exact product, never wrapped around)."""
        return math.prod(self)

    def __getitem__(self, index: Any) -> Any:
        picked = _tuple_item(self, index)
        return make_size(picked) if type(index) is slice else picked

    # Returning NotImplemented lets tuple's own concatenation and repetition word the TypeError.
    def __add__(self, other: Any) -> Size:
        if type(other) is Size:
            return make_size(tuple.__add__(self, other))
        return Size(tuple.__add__(self, other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Size:
        return Size(tuple.__add__(other, self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> Size:
        return make_size(tuple.__mul__(self, times)) if hasattr(type(times), "__index__") else NotImplemented

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[type, tuple[tuple[int, ...]]]:
        return (Size, (tuple(self),))


# The internal constructor: for sizes already known to be ints. It runs no Python code of its own.
make_size: Callable[[Iterable[int]], Size] = partial(tuple.__new__, Size)


def new_size(sizes: Iterable[int]) -> Size:
    """Return the shape of a new tensor; raise an error for a negative size."""
    shape = make_size(sizes)
    for n in shape:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")
    return shape


def _check_item(item: Any, position: int) -> int:
    if getattr(item, "is_followed", False):  # a number that a recorder follows
        return item
    try:
        value = operator.index(item)
    except TypeError:
        name = type_name(item)
        raise TypeError(f"torch.Size() takes an iterable of 'int' (item {position} is '{name}')") from None
    if value not in _INT64:
        raise ValueError("Overflow when unpacking long long")
    return int(value)  # a bool is an int of another type; sizes hold plain ints
