"""Sliding windows: their arguments, PyTorch's checks of them, and the place of each window."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...core.size import Size
from ...core.tensor import Tensor, numel_of
from ..machinery.arguments import as_ints, is_int
from ..machinery.dtype_rules import unsupported

# Types of compiled functions: lists of so many numbers, for which one number may stand.
BroadcastingList1 = list
BroadcastingList2 = list
BroadcastingList3 = list

_NUMBERS = {1: "one int", 2: "two ints", 3: "three ints"}


class Window(NamedTuple):
    """A window that slides over the last dimensions: one number per dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool = False


# -- arguments ------------------------------------------------------------------------------------------------------------


_INT_END = 1 << 31


def spread(value: Any, dims: int, name: str, argument: str, position: int) -> tuple[int, ...]:
    """Return an int for each dimension, given as one for all or as one for each."""
    values = (int(value),) if is_int(value) else as_ints(value, name, argument, position)
    for v in values:
        if name != "max_pool1d" and not -_INT_END <= v < _INT_END:
            raise RuntimeError("value cannot be converted to type int without overflow")
    if len(values) == 1:
        return values * dims
    if len(values) != dims:
        if dims == 1:
            raise RuntimeError(f"{name}() argument '{argument}' should contain one int (got {len(values)})")
        raise RuntimeError(f"{name}: {argument} must either be a single int, or a tuple of {_NUMBERS[dims]}")
    return values


def read_window(
    name: str, dims: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any = 1, ceil_mode: bool = False
) -> Window:
    kernel = spread(kernel_size, dims, name, "kernel_size", 2)
    if stride is None or (isinstance(stride, (tuple, list)) and len(stride) == 0):
        steps = kernel
    else:
        steps = spread(stride, dims, name, "stride", 3)
    return Window(
        kernel,
        steps,
        spread(padding, dims, name, "padding", 4),
        spread(dilation, dims, name, "dilation", 5),
        bool(ceil_mode),
    )


def need_dtype(kernel: str, input: Tensor, integers: bool = False) -> None:
    """Raise unless the dtype is floating point, or an integer if the operator takes them."""
    if not input.dtype.is_floating_point and not (integers and input.dtype.category == 1):
        raise unsupported(f"{kernel}", input.dtype)


# -- sizes ----------------------------------------------------------------------------------------------------------------


def pooled_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Return the number of windows along one dimension."""
    if stride == 0:
        raise RuntimeError("stride should not be zero")
    if padding < 0:
        raise RuntimeError(f"pad must be non-negative, but got pad: {padding}")
    if padding > ((kernel - 1) * dilation + 1) // 2:
        raise RuntimeError(
            f"pad should be at most half of effective kernel size, but got pad={padding}, kernel_size={kernel} and"
            f" dilation={dilation}"
        )
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1  # the last window would start in the padding
    return count


_AXES = {1: "W", 2: "HW", 3: "THW"}


def _named(values: tuple[int, ...], prefix: str) -> str:
    return " ".join(f"{prefix}{axis}: {v}" for axis, v in zip(_AXES[len(values)], values))


@lru_cache(1024)
def pool_sizes(name: str, shape: Size, window: Window) -> tuple[int, ...]:
    """Return the sizes of a pooled result, after PyTorch's checks of the input's shape and the window."""
    dims = len(window.kernel)
    _check_rank(name, shape, dims)
    sizes = shape[len(shape) - dims :]
    found = tuple(
        pooled_size(n, k, s, p, d, window.ceil_mode)
        for n, k, s, p, d in zip(sizes, window.kernel, window.stride, window.padding, window.dilation)
    )
    for values, word, prefix in (
        (window.kernel, "kernel size", "k"),
        (window.stride, "stride", "d"),
        (window.dilation, "dilation", "dilation"),
    ):
        if min(values) <= 0:
            raise RuntimeError(f"{word} should be greater than zero, but got {_named(values, prefix)}")
    _check_not_empty(name, shape, dims)
    if min(found) < 1:
        channels = shape[len(shape) - dims - 1]
        before = "x".join(map(str, (channels, *sizes)))
        after = "x".join(map(str, (channels, *(max(n, 0) for n in found))))
        raise RuntimeError(f"Given input size: ({before}). Calculated output size: ({after}). Output size is too small")
    return found


def _check_rank(name: str, shape: Size, dims: int) -> None:
    if len(shape) not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"{name}(): non-empty {dims + 1}D or {dims + 2}D (batch mode) tensor expected for input, but got:"
            f"{list(shape)}"
        )


def _check_not_empty(name: str, shape: Size, dims: int) -> None:
    first = 1 if len(shape) == dims + 2 else 0
    if 0 not in shape[first:]:
        return
    if dims == 3:
        d = list(shape).index(0, first)
        raise RuntimeError(
            f"{name}(): Expected input's non-batch dimensions to have positive length, but input has a shape of"
            f" {list(shape)} and non-batch dimension {d} has length zero!"
        )
    raise RuntimeError(
        f"{name}(): Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with optional 0 dim batch size for input, but"
        f" got:{list(shape)}"
    )


# -- tables of windows ----------------------------------------------------------------------------------------------------


@lru_cache(256)
def sliding(
    size: int, count: int, kernel: int, stride: int, padding: int, dilation: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first element inside, and the number of elements inside, of every window along one dimension."""
    start = np.arange(count) * stride - padding
    skipped = np.maximum(-(start // dilation), 0)  # elements of the window before the first
    first = start + skipped * dilation
    inside = np.minimum(kernel - skipped, (size - 1 - first) // dilation + 1)
    return first, np.maximum(inside, 0)


@lru_cache(256)
def adaptive(size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first element and the number of elements of `count` windows that cover `size` elements evenly."""
    place = np.arange(count)
    first = place * size // max(count, 1)
    return first, -(-(place + 1) * size // max(count, 1)) - first


def planes(x: Tensor, dims: int) -> int:
    return numel_of(x.shape[: len(x.shape) - dims])


def window_table(parts: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the table that the kernel max_pool_windows reads, for three dimensions."""
    return np.concatenate([row for part in parts for row in part]).astype(np.int64)
