"""Views of any strides, and the derivative all views have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core import dtype as dt
from ...core.device import device
from ...core.layout import memory_span
from ...core.size import Size, make_size
from ...core.tensor import Tensor, empty
from ...kernels.library.ranges import whole_steps
from ..creation.filled import fill_raw
from ..creation.memory import check_bounds
from ..machinery.arguments import as_int, as_ints
from ..machinery.declare import internal, view
from ..machinery.inplace import raw_copy
from ..machinery.record import NewTensor


@internal(
    grads={"part": lambda g, place: place(g)},
    name="_spread",
    batching="each",
    places=lambda part, shape, place, named: [(part, place)],
)
def spread(part: Tensor, shape: tuple[int, ...], place: Callable[..., Any], named: tuple[Any, ...] = ()) -> NewTensor:
    """Zeros of `shape` with `part` written where the view function `place` points: the derivative of that view. `named` is PyTorch's
    operator for it, if there is one, and its arguments after the shape."""
    return make_size(shape), part.dtype, part.device


@spread.op.as_aten
def _(
    recorder: Any, part: Tensor, shape: tuple[int, ...], place: Callable[..., Any], named: tuple[Any, ...] = ()
) -> Tensor:
    if named:
        return getattr(recorder.aten, named[0]).default(part, list(shape), *named[1:])
    whole = recorder.aten.new_zeros.default(part, list(shape), pin_memory=False)
    recorder.aten.copy_.default(recorder.again(place, (whole,), {}), part)
    return whole


@spread.on("any")
def _(out: Tensor, part: Tensor, shape: tuple[int, ...], place: Callable[..., Any], named: Any) -> None:
    fill_raw(out, 0)
    raw_copy(place(out), part)


def _as_strided_backward(
    g: Tensor, size: Any, stride: Any, storage_offset: Any, input_shape: Any, input_strides: Any, input_offset: int
) -> Any:
    """Sum the gradient back to the memory locations, then read them through the input's own geometry."""
    size, stride = tuple(size), tuple(stride)
    offset = input_offset if storage_offset is None else storage_offset
    low = min(offset, input_offset)
    high = max(memory_span(size, stride, offset)[1], memory_span(input_shape, input_strides, input_offset)[1])
    if _may_repeat(size, stride):
        where = cell_numbers(size, stride, offset - low, g.device)
        cells = g.new_zeros((max(high - low, 1),)).index_add(0, where.reshape(-1), g.reshape(-1))
    else:
        cells = spread(g, (max(high - low, 1),), lambda t: t.as_strided(size, stride, offset - low))
    if _may_repeat(input_shape, input_strides):  # several input elements share a cell: each gets an equal part
        own = cell_numbers(input_shape, input_strides, input_offset - low, g.device).reshape(-1)
        count = g.new_zeros((max(high - low, 1),)).index_add(0, own, g.new_ones((own.numel(),)))
        cells = cells / count.clamp(min=1)
    return cells.as_strided(input_shape, input_strides, input_offset - low)


def _may_repeat(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether two indices may refer to one location: false only if each stride is larger than all faster ones span."""
    reach = 0
    for stride, n in sorted((s, n) for n, s in zip(shape, strides) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (n - 1)
    return False


@internal(batching="each")
def cell_numbers(shape: Size, strides: tuple[int, ...], offset: int, where: device) -> NewTensor:
    """The memory location of every element of a tensor of this layout."""
    return shape, dt.int64, where


@cell_numbers.on("any")
def _(out: Tensor, shape: Size, strides: tuple[int, ...], offset: int, where: device) -> None:
    span = memory_span(shape, strides, offset)[1]
    cells = empty((span,), dt.int64, where)
    whole_steps(cells, 0, 1, span)
    raw_copy(out, cells._view(make_size(shape), tuple(strides), offset))


@view(grads={"input": _as_strided_backward}, sharding="as_strided")
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view with any shape, strides and offset that stay inside the storage."""
    return input._view(*strided_geometry(input, size, stride, storage_offset, "as_strided"))


def strided_geometry(
    input: Tensor, size: Any, stride: Any, offset: Any, name: str
) -> tuple[Size, tuple[int, ...], int]:
    shape, strides = as_ints(size, name, "size", 2), as_ints(stride, name, "stride", 3)
    if len(shape) != len(strides):
        raise RuntimeError(
            f"mismatch in length of strides and shape: got {len(shape)} sizes and {len(strides)} strides"
        )
    if any(n < 0 for n in shape):
        raise RuntimeError(f"{name}: sizes must be non-negative, got {list(shape)}")
    if any(s < 0 for s in strides):
        raise RuntimeError(f"{name}: Negative strides are not supported at the moment, got strides: {list(strides)}")
    own = input._offset  # which a tensor that is spread over ranks does not have
    start = own if offset is None else as_int(offset, name, "storage_offset", 4)
    check_bounds(input._storage, shape, strides, start, input.dtype)
    return make_size(shape), tuple(strides), start
