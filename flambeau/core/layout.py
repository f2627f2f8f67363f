"""Shapes and strides: broadcasting, output layout, memory formats, overlap."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache


class _Named:
    """A constant that is identified, printed and pickled by its name. `number` is that in C++ and TorchScript, `pt2` that in exported
    programs, `word` its name in messages."""

    def __init__(self, name: str, number: int, pt2: int = 0, word: str = ""):
        self.name, self.number, self.pt2, self.word = name, number, pt2, word

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class memory_format(_Named):
    """The order of a tensor's dimensions in memory."""


contiguous_format = memory_format("contiguous_format", 0, 1)
preserve_format = memory_format("preserve_format", 1, 4)
channels_last = memory_format("channels_last", 2, 2)
channels_last_3d = memory_format("channels_last_3d", 3, 3)
MEMORY_FORMATS = (contiguous_format, preserve_format, channels_last, channels_last_3d)


class layout(_Named):
    """The way a tensor stores its elements: strided, or one of the sparse forms."""


strided = layout("strided", 0, 7, "Strided")
sparse_coo = layout("sparse_coo", 1, 1, "Sparse")
sparse_csr = layout("sparse_csr", 2, 2, "SparseCsr")
mkldnn = layout("_mkldnn", 3, 6, "Mkldnn")
sparse_csc = layout("sparse_csc", 4, 3, "SparseCsc")
sparse_bsr = layout("sparse_bsr", 5, 4, "SparseBsr")
sparse_bsc = layout("sparse_bsc", 6, 5, "SparseBsc")
jagged = layout("jagged", 7, 0, "Jagged")
LAYOUTS = (strided, sparse_coo, sparse_csr, mkldnn, sparse_csc, sparse_bsr, sparse_bsc, jagged)


def broadcast_two(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if a == b:
        return a
    if len(a) < len(b):
        return tuple(_broadcast_sizes(b, a, True))
    return tuple(_broadcast_sizes(a, b, False))


def _broadcast_sizes(long: tuple[int, ...], short: tuple[int, ...], swapped: bool) -> list[int]:
    shift = len(long) - len(short)
    sizes = list(long)
    for i in reversed(range(len(short))):
        m, n = long[i + shift], short[i]
        if m == n or n == 1:
            continue
        if m != 1:
            first, second = (n, m) if swapped else (m, n)
            raise RuntimeError(
                f"The size of tensor a ({first}) must match the size of tensor b ({second})"
                f" at non-singleton dimension {i + shift}"
            )
        sizes[i + shift] = n
    return sizes


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    result: tuple[int, ...] = ()
    for shape in shapes:
        result = broadcast_two(result, shape)
    return result


def expand_strides(shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a tensor expanded to `target`: 0 along broadcast dimensions."""
    if shape == target:
        return tuple(0 if n == 1 else s for n, s in zip(shape, strides)) if 1 in shape else strides
    shift = len(target) - len(shape)
    return (0,) * shift + tuple(0 if n == 1 else s for n, s in zip(shape, strides))


def strides_in_order(shape: tuple[int, ...], order: Iterable[int]) -> tuple[int, ...]:
    """Return dense strides with dimensions from fastest (order[0]) to slowest."""
    strides = [0] * len(shape)
    step = 1
    for d in order:
        strides[d] = step
        step *= shape[d] if shape[d] > 1 else 1
    return tuple(strides)


def _compare_dims(d0: int, d1: int, shape: tuple[int, ...], operands: list[tuple[int, ...]]) -> int:
    """Return whether dimension d0 (now faster) should be outside d1: 1 yes, -1 no, 0 undecided."""
    for strides in operands:
        s0, s1 = strides[d0], strides[d1]
        if s0 == 0 or s1 == 0:
            continue
        if s0 < s1:
            return -1
        if s0 > s1:
            return 1
        if shape[d0] > shape[d1]:
            return 1
    return 0


def dimension_order(shape: tuple[int, ...], operands: list[tuple[int, ...]]) -> list[int]:
    """Return the dimensions from fastest to slowest by the operands' (expanded) strides; row-major where they leave it open."""
    order = list(range(len(shape) - 1, -1, -1))
    for i in range(1, len(order)):
        j = i
        for k in range(i - 1, -1, -1):
            verdict = _compare_dims(order[k], order[j], shape, operands)
            if verdict > 0:
                order[k], order[j] = order[j], order[k]
                j = k
            elif verdict < 0:
                break
    return order


def output_strides(shape: tuple[int, ...], operands: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> tuple[int, ...]:
    """Return the strides of a new result of an elementwise operation on operands of these shapes and strides: the layout they all have, or
    else their dimension order. Dimensions of size 1 count in the order, as in PyTorch."""
    if all(given == shape for given, _ in operands) and operands:
        row_major = range(len(shape) - 1, -1, -1)
        if all(_is_dense_in(row_major, *x) for x in operands):
            return strides_in_order(shape, row_major)
        if len(shape) == 4 and all(is_channels_last(given, strides) for given, strides in operands):
            return channels_last_strides(shape)
        first = operands[0][1]
        if all(strides == first for _, strides in operands) and is_non_overlapping_and_dense(shape, first):
            return first
    return strides_in_order(shape, dimension_order(shape, [_seen_as(*x, shape) for x in operands]))


def _seen_as(shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides along the dimensions of `target`; 0 where the tensor is broadcast, but kept where both have size 1."""
    shift = len(target) - len(shape)
    return (0,) * shift + tuple(0 if n != m else s for n, m, s in zip(shape, target[shift:], strides))


def dense_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a copy that preserves the layout: its own if dense, else in its dimension order."""
    if is_non_overlapping_and_dense(shape, strides):
        return strides
    return strides_in_order(shape, dimension_order(shape, [strides]))


@lru_cache(4096)
def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) not in (4, 5):
        raise RuntimeError(f"required rank {'4' if len(shape) < 5 else '5'} tensor to use channels_last format")
    order = [1, *range(len(shape) - 1, 1, -1), 0]
    return strides_in_order(tuple(map(int, shape)), order)


@lru_cache(4096)
def is_channels_last(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if len(shape) not in (4, 5):
        return False
    return _is_dense_in((1, *range(len(shape) - 1, 1, -1), 0), shape, strides)


@lru_cache(4096)
def suggests_channels_last(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether convolutions, pooling and the like return a channels-last result for this layout: the strides grow in that order,
    dimensions of size 1 included, and would not do so row-major as well."""
    if len(shape) not in (4, 5) or strides[1] == 0:
        return False
    least = 0
    for d in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[d] == 0 or strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] * max(shape[d], 1)
    return True


def _is_dense_in(order: Iterable[int], shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether elements are contiguous with the dimensions in this order, from fastest to slowest."""
    step = 1
    for d in order:
        if shape[d] != 1:
            if strides[d] != step:
                return False
            step *= shape[d]
    return True


def is_non_overlapping_and_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    pairs = sorted((s, n) for n, s in zip(shape, strides) if n != 1)
    step = 1
    for stride, size in pairs:
        if size == 0:
            return True
        if stride != step:
            return False
        step *= size
    return True


def has_internal_overlap(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether two indices certainly refer to one memory location (as in an expanded tensor)."""
    return 0 in strides and any(n > 1 and s == 0 for n, s in zip(shape, strides)) and 0 not in shape


def memory_span(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> tuple[int, int]:
    """Return the first and one-past-last element a tensor touches."""
    if 0 in shape:
        return offset, offset
    return offset, offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides))


def format_shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def wrap_dim(dim: int, ndim: int, allow_scalar: bool = True) -> int:
    """Return a possibly negative dimension as an index into the shape; raise PyTorch's error if it is out of range."""
    span = max(ndim, 1) if allow_scalar else ndim
    if span <= 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    if not -span <= dim < span:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got {dim})")
    return dim + span if dim < 0 else dim
