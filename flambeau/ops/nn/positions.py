"""Elements at positions in planes: what max pooling gives back, and takes, in its derivatives and in max_unpool."""

from __future__ import annotations

import math
from typing import Any

from ...core.dtype import int64
from ...core.tensor import Tensor, empty, numel_of
from ...kernels.library import pool as kernels
from ..index.bad_index import bad_index
from ..machinery.aten_form import unread
from ..machinery.declare import internal
from ..machinery.inplace import raw_copy
from ..machinery.memory import bare, layout_in_format_of
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from .windows import planes


def _checked(
    kernel: Any, out: Tensor, source: Tensor, indices: Tensor, lead: int, size: tuple[int, ...], **constants: Any
) -> None:
    """Run a kernel that takes or places elements at positions in planes of this size, and raise for positions outside."""
    error = bad_index.on(out.device, "max_unpool")
    count = numel_of(indices.shape[len(indices.shape) - len(size) :])
    kernel(out, bare(source), bare(indices), error, lead, numel_of(size), count, **constants)
    position = bad_index.taken(out.device)
    if position is not None:
        extent = "x".join(map(str, size))
        raise RuntimeError(f"Found an invalid max index: {position} (output volumes are of size {extent})")


def place_values(out: Tensor, values: Tensor, indices: Tensor, dims: int, add: bool) -> None:
    """Write zeros, and values at their positions in each plane of the last `dims` dimensions."""
    target = out if out._contig else empty(out.shape, out.dtype, out.device)
    split = len(out.shape) - dims
    _checked(
        kernels.place_in_planes, target, values, indices, numel_of(out.shape[:split]), tuple(out.shape[split:]), add=add
    )
    if target is not out:
        raw_copy(out, target)


@internal(
    grads={"values": lambda g, indices, dims: take_positions(g, indices, dims)},
    quirks=Quirks(label="MaxPoolBackwardBackward0"),
    batching="each",
)
def add_at_positions(
    values: Tensor, indices: Tensor, shape: tuple[int, ...], dims: int, named: tuple[Any, ...] = ()
) -> NewTensor:
    """Zeros of `shape` plus values at their positions in each plane of the last `dims` dimensions. `named`: PyTorch's name of the derivative
    that this is, and its arguments between the pool's input and the indices."""
    if indices.dtype is not int64:
        raise RuntimeError(f"expected indices of dtype torch.int64, got {indices.dtype}")
    if values.shape != indices.shape or len(shape) < dims or tuple(indices.shape[:-dims]) != tuple(shape[:-dims]):
        raise RuntimeError(
            f"expected sizes {list(indices.shape)} for `grad_output` but got sizes {list(values.shape)}, in an input of sizes {list(shape)}"
        )
    return layout_in_format_of(indices, tuple(shape), values.dtype)


@add_at_positions.op.as_aten
def _(recorder: Any, values: Tensor, indices: Tensor, shape: Any, dims: int, named: tuple[Any, ...] = ()) -> Tensor:
    aten, planes = recorder.aten, [*values.shape[:-dims], -1]
    if named:
        name, *settings = named
        return getattr(aten, name).default(values, unread(recorder, values, shape), *settings, indices)
    flat = aten.new_zeros.default(values, [*shape[:-dims], math.prod(shape[-dims:])], pin_memory=False)
    where, what = (aten.reshape.default(t, planes) for t in (indices, values))
    return aten.view.default(aten.scatter_add.default(flat, -1, where, what), list(shape))


@add_at_positions.on("any")
def _(out: Tensor, values: Tensor, indices: Tensor, shape: tuple[int, ...], dims: int, named: tuple[Any, ...]) -> None:
    place_values(out, values, indices, dims, True)


@internal(
    grads={"input": lambda g, indices, input_shape, dims: add_at_positions(g, indices, input_shape, dims)},
    quirks=Quirks(label="MaxPoolBackwardBackward0"),
    batching="each",
)
def take_positions(input: Tensor, indices: Tensor, dims: int) -> NewTensor:
    """The elements at `indices` of each plane of the last `dims` dimensions."""
    if input.shape[:-dims] != indices.shape[:-dims]:
        raise RuntimeError(f"indices of sizes {list(indices.shape)} do not fit an input of sizes {list(input.shape)}")
    return indices.shape, input.dtype, input.device


@take_positions.op.as_aten
def _(recorder: Any, input: Tensor, indices: Tensor, dims: int) -> Tensor:
    aten = recorder.aten
    flat, where = (aten.view.default(t.contiguous(), [*t.shape[:-dims], -1]) for t in (input, indices))
    return aten.view.default(aten.gather.default(flat, -1, where), list(indices.shape))


@take_positions.on("any")
def _(out: Tensor, input: Tensor, indices: Tensor, dims: int) -> None:
    size = tuple(input.shape[len(input.shape) - dims :])
    _checked(kernels.take_from_planes, out, input, indices, planes(input, dims), size)
