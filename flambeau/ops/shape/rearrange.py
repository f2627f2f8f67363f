"""Elements in another order or number: repeat, flip, roll, rot90, tril, triu, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core import dtype as dt
from ...core.layout import channels_last_strides, contiguous_format, suggests_channels_last, wrap_dim
from ...core.size import make_size, new_size
from ...core.tensor import Tensor, copy_of_array, empty, numel_of
from ...kernels.library.pixels import mirrored_rows
from ...kernels.library.triangle import triangle
from ..creation.filled import fill_raw, layout_as
from ..machinery.arguments import as_ints, as_number, collected, is_int, need_tensor, varargs_ints
from ..machinery.declare import composite, internal, primitive
from ..machinery.dtype_rules import check_fits
from ..machinery.inplace import raw_copy
from ..machinery.memory import dense, like_first
from ..machinery.quirks import Quirks
from ..machinery.record import Batched, NewTensor
from .complex_views import view_as_real
from .dimensions import slice_dim
from .joining import stack

# -- repeating ------------------------------------------------------------------------------------------------------


def _repeat_backward(g: Tensor, input_shape: Any, repeats: Any) -> Any:
    lead = len(repeats) - len(input_shape)
    split: list[int] = []
    dims: list[int] = []
    for i, times in enumerate(repeats):
        size = input_shape[i - lead] if i >= lead else 1
        dims.append(len(split))
        split += [times, size]
    if 0 in repeats:
        return g.new_zeros(input_shape)
    return g.reshape(split).sum(dims).reshape(input_shape)


@internal(
    grads={"input": _repeat_backward},
    quirks=Quirks(label="RepeatBackward0"),
    name="_repeat",
    sharding="repeat",
    aten="repeat(input, list(repeats))",
)
def repeat_times(input: Tensor, repeats: tuple[int, ...]) -> NewTensor:
    """The tensor repeated along each dimension, new ones in front."""
    padded = (1,) * (len(repeats) - len(input.shape)) + tuple(input.shape)
    return tuple([n * r for n, r in zip(padded, repeats)]), input.dtype, input.device


@repeat_times.on("any")
def _(out: Tensor, input: Tensor, repeats: tuple[int, ...]) -> None:
    lead = len(repeats) - len(input.shape)
    padded, strides = (1,) * lead + tuple(input.shape), (0,) * lead + input._strides
    # The result seen as (r0, n0, r1, n1, ...): the source has stride 0 along the repeats.
    shape: list[int] = []
    target: list[int] = []
    source: list[int] = []
    for n, r, from_stride, to_stride in zip(padded, repeats, strides, out._strides):
        shape += [r, n]
        target += [to_stride * n, to_stride]
        source += [0, from_stride]
    raw_copy(out._view(make_size(shape), tuple(target), 0), input._view(make_size(shape), tuple(source), input._offset))


@composite(function=False)
def repeat(self: Tensor, *repeats: Any, **named: Any) -> Tensor:
    """The tensor repeated along each dimension, new ones in front if more are given."""
    times = varargs_ints(collected(repeats, named, "repeats", "repeat"), "repeat", "repeats")
    if len(times) < len(self.shape):
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    return repeat_times(self, new_size(times))


@composite
def tile(input: Tensor, *dims: Any, **named: Any) -> Tensor:
    """The tensor repeated along each dimension, once along leading ones if fewer numbers than dimensions are given."""
    times = varargs_ints(collected(dims, named, "dims", "tile"), "tile", "dims", 2)
    return repeat(input, (1,) * (len(input.shape) - len(times)) + tuple(times))


@composite
def repeat_interleave(
    input: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Repeat each element in place."""
    if repeats is None:
        return _interleaved_indices(input, output_size)
    if dim is None:
        input, dim = input.flatten(), 0
    d = wrap_dim(dim, len(input.shape))
    if not input.shape:
        input = input.reshape(1)
    if is_int(repeats) or (isinstance(repeats, Tensor) and repeats.numel() == 1 and not isinstance(repeats, int)):
        times = int(repeats)
        if times < 0:
            raise RuntimeError("Repeats must be non-negative")
        if output_size is not None and output_size != input.shape[d] * times:
            raise RuntimeError(
                f"allocated size does not match required size: {output_size} given, {input.shape[d] * times} needed"
            )
        wide = input.unsqueeze(d + 1)
        wide = wide.expand((*wide.shape[: d + 1], times, *wide.shape[d + 2 :]))
        return wide.clone(memory_format=contiguous_format).flatten(d, d + 1)
    if not isinstance(repeats, Tensor):
        repeats = input.new_tensor(repeats, dtype=dt.int64)
    if len(repeats.shape) > 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    if repeats.shape[0] != input.shape[d]:
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = {repeats.shape[0]} and"
            f" input.size({d}) = {input.shape[d]}"
        )
    return input.index_select(d, _interleaved_indices(repeats, output_size))


def _interleaved_indices(repeats: Tensor, output_size: int | None) -> Tensor:
    if len(repeats.shape) != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.dtype not in (dt.int64, dt.int32):
        raise RuntimeError("repeats has to be Long or Int tensor")
    if repeats.numel() and repeats.min().item() < 0:
        raise RuntimeError("repeats can not be negative")
    if output_size is not None and output_size != repeats.sum().item():
        raise RuntimeError("allocated size does not match required size")
    return _counted_indices(repeats)


@internal(reads_values=True, batching="each")
def _counted_indices(repeats: Tensor) -> Tensor:
    """Return each index as often as `repeats` says."""


@_counted_indices.on("cpu")
def _(repeats: Tensor) -> Tensor:
    counts = repeats._array()
    return copy_of_array(np.repeat(np.arange(len(counts)), counts), repeats.dtype)


@composite(method=False)
def unravel_index(indices: Any, shape: Any) -> tuple[Tensor, ...]:
    """Positions in the flattened order as one coordinate per dimension."""
    need_tensor("unravel_index", indices, "indices")
    sizes = (shape,) if is_int(shape) else shape
    if not isinstance(sizes, Sequence):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    for n in sizes:
        if not is_int(n):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(n)}")
    if indices.dtype.category > 1 or indices.dtype is dt.bool_:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    flat: Any = indices.to(dt.int64)
    coordinates = []
    for n in reversed(sizes):
        coordinates.append(flat % n)
        flat = flat // n
    if not coordinates:
        return ()
    return stack(list(reversed(coordinates)), -1).unbind(-1)


# -- reversing and rotating ----------------------------------------------------------------------------------------


@internal(
    grads={"input": lambda g, dims: flip_dims(g, dims)},
    quirks=Quirks(label="FlipBackward0"),
    name="_flip",
    aten="flip(input, list(dims))",
    batching=Batched("along", dims=("dims",)),
)
def flip_dims(input: Tensor, dims: tuple[int, ...]) -> NewTensor:
    """The order of elements reversed along these dimensions."""
    return layout_as(input)


@flip_dims.on("any")
def _(out: Tensor, input: Tensor, dims: tuple[int, ...]) -> None:
    if dims == (len(out.shape) - 1,) and input._contig and out._contig and input.dtype in _MIRRORED:
        rows = out.numel() // out.shape[-1]
        mirrored_rows(out, input, rows, min(rows, 8), out.shape[-1])
        return
    # Writing backwards: negative strides on the output, starting at its last element of each flipped dimension.
    strides, offset = list(out._strides), out._offset
    for d in dims:
        offset += (out.shape[d] - 1) * strides[d]
        strides[d] = -strides[d]
    raw_copy(reversed_view(out, tuple(strides), offset), input)


_MIRRORED = (dt.uint8, dt.int16, dt.int32, dt.int64, dt.float32, dt.float64)


def reversed_view(t: Tensor, strides: tuple[int, ...], offset: int) -> Tensor:
    """Return a header with negative strides, only for kernels that take any strides."""
    header = t._view(t.shape, strides, offset)
    header._contig = False
    return header


@composite
def flip(input: Tensor, *dims: Any, **named: Any) -> Tensor:
    """The order of elements reversed along the given dimensions."""
    listed = varargs_ints(collected(dims, named, "dims", "flip"), "flip", "dims", 2)
    wrapped = tuple([wrap_dim(d, len(input.shape)) for d in listed])
    if len(set(wrapped)) != len(wrapped):
        repeated = next(d for d in wrapped if wrapped.count(d) > 1)
        raise RuntimeError(f"dim {repeated} appears multiple times in the list of dims")
    return flip_dims(input, tuple(d for d in wrapped if input.shape))


@composite
def fliplr(input: Tensor) -> Tensor:
    """Return the columns in reverse order."""
    if len(input.shape) < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, (1,))


@composite
def flipud(input: Tensor) -> Tensor:
    """Return the rows in reverse order."""
    if len(input.shape) < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, (0,))


@internal(
    layout=like_first,
    grads={"input": lambda g, shifts, dims: roll_dims(g, tuple(-s for s in shifts), dims)},
    quirks=Quirks(label="RollBackward0"),
    name="_roll",
    batching=Batched("along", dims=("dims",)),
    aten="roll(input, list(shifts), list(dims))",
)
def roll_dims(input: Tensor, shifts: tuple[int, ...], dims: tuple[int, ...]) -> Tensor:
    """The elements shifted cyclically: each dimension is two blocks that change places, so the result is 2**k block copies."""


@roll_dims.on("any")
def _(out: Tensor, input: Tensor, shifts: tuple[int, ...], dims: tuple[int, ...]) -> None:
    total: dict[int, int] = {}
    for s, d in zip(shifts, dims):
        total[d] = total.get(d, 0) + s
    pieces = [(input, out)]
    for d, shift in total.items():
        size = input.shape[d]
        k = shift % size
        if k:
            pieces = [
                (slice_dim(a, d, start, stop), slice_dim(b, d, to, to + stop - start))
                for a, b in pieces
                for start, stop, to in ((0, size - k, k), (size - k, size, 0))
            ]
    for source, target in pieces:
        raw_copy(target, source)


@composite
def roll(input: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Elements shifted cyclically along the given dimensions (or along all, flattened)."""
    amounts = (int(shifts),) if is_int(shifts) else as_ints(shifts, "roll", "shifts", 2)
    axes = () if dims is None else (int(dims),) if is_int(dims) else as_ints(dims, "roll", "dims", 3)
    if not amounts:
        raise RuntimeError("`shifts` required")
    if not axes and len(amounts) == 1:
        return _rolled_flat(input, amounts)
    if len(axes) != len(amounts):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(amounts)}, dims:{len(axes)}")
    if not input.shape:
        for d in axes:
            wrap_dim(d, 0, allow_scalar=False)
    return roll_dims(input, amounts, tuple([wrap_dim(d, len(input.shape)) for d in axes]))


@internal(
    grads={"input": lambda g, shifts: _rolled_flat(g, tuple(-s for s in shifts))},
    quirks=Quirks(label="RollBackward0"),
    name="_roll_flat",
)
def _rolled_flat(input: Tensor, shifts: tuple[int, ...]) -> Tensor:
    return roll_dims(input.reshape(-1), shifts, (0,)).view(input.shape)


def _rot90_backward(g: Tensor, k: int, dims: Any) -> Any:
    return g.rot90(-k, dims)


@primitive(grads={"input": _rot90_backward}, batching=Batched("along", dims=("dims",)))
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """A plane rotated by k quarter turns."""
    axes = as_ints(dims, "rot90", "dims", 3)
    n = len(input.shape)
    if len(axes) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(axes)}")
    if n < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {n}")
    a, b = (wrap_dim(d, n) for d in axes)
    if a == b:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {axes[0]} and dim1 = {axes[1]}")
    turns = k % 4
    if turns == 1:
        return flip_dims(input, (b,)).transpose(a, b)
    if turns == 2:
        return flip_dims(input, (a, b))
    if turns == 3:
        return flip_dims(input, (a,)).transpose(a, b)
    return input.clone(memory_format=contiguous_format)


# -- triangles -----------------------------------------------------------------------------------------------------


def _need_matrices(name: str, input: Tensor) -> None:
    if len(input.shape) < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")


def _cut_triangle(out: Tensor, input: Tensor, diagonal: int, upper: bool) -> None:
    rows, columns = input.shape[-2:]
    source, diagonal = dense(input), max(-rows, min(diagonal, columns))
    if input.dtype.is_complex:
        for part in (0, 1):
            half = dense(view_as_real(source).select(-1, part))
            kept = empty(half.shape, half.dtype, half.device)
            triangle(kept, half, numel_of(out.shape) // columns, rows, columns, diagonal, upper=upper)
            raw_copy(view_as_real(out).select(-1, part), kept)
    else:
        triangle(out, source, numel_of(out.shape) // columns, rows, columns, diagonal, upper=upper)


@primitive(grads={"input": lambda g, diagonal: g.tril(diagonal)}, inplace=True, out="exact", batching="fronted")
def tril(input: Tensor, diagonal: int = 0) -> NewTensor:
    """The lower triangle of matrices, zeros elsewhere."""
    _need_matrices("tril", input)
    return input.shape, input.dtype, input.device


@tril.on("any")
def _(out: Tensor, input: Tensor, diagonal: int) -> None:
    _cut_triangle(out, input, diagonal, False)


@primitive(grads={"input": lambda g, diagonal: g.triu(diagonal)}, inplace=True, out="exact", batching="fronted")
def triu(input: Tensor, diagonal: int = 0) -> NewTensor:
    """The upper triangle of matrices, zeros elsewhere."""
    _need_matrices("triu", input)
    return input.shape, input.dtype, input.device


@triu.on("any")
def _(out: Tensor, input: Tensor, diagonal: int) -> None:
    _cut_triangle(out, input, diagonal, True)


# -- padding -------------------------------------------------------------------------------------------------------


def _pad_backward(g: Tensor, pad: Any) -> Any:
    return constant_pad_nd(g, tuple(-p for p in pad), 0)


class PadPlan(NamedTuple):
    """The number in the border, and for each dimension: its index, the start of the part of the input that stays, its start in the result,
    and its length."""

    fill: Any
    parts: list[tuple[int, int, int, int]]


def _pad_layout(input: Tensor, pad: Any, value: Any = 0) -> tuple[Any, ...]:
    widths = as_ints(pad, "constant_pad_nd", "pad", 2)
    plan = PadPlan(as_number(value, "constant_pad_nd", "value", 3), [])
    if input.dtype.name.startswith("uint") and not isinstance(plan.fill, complex) and plan.fill < 0:
        check_fits(float(plan.fill), input.dtype)  # other operators let negative numbers wrap around
    n = len(input.shape)
    if len(widths) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(widths)}")
    if len(widths) // 2 > n:
        raise RuntimeError(
            "Length of pad should be no more than twice the number of dimensions of the input. Pad length is"
            f" {len(widths)} while the input has {n} dimensions."
        )
    shape = list(input.shape)
    for i in range(len(widths) // 2):
        d = n - 1 - i
        before, after = widths[2 * i], widths[2 * i + 1]
        shape[d] += before + after
        if shape[d] < 0:
            raise RuntimeError(
                f"The input size {input.shape[d]}, plus negative padding {before} and {after} resulted in a negative"
                f" output size, which is invalid. Check dimension {d} of your input."
            )
        size = input.shape[d] + min(before, 0) + min(after, 0)
        if size < 0:
            raise RuntimeError("narrow(): length must be non-negative.")
        plan.parts.append((d, max(-before, 0), max(before, 0), size))
    if n in (4, 5) and suggests_channels_last(input.shape, input._strides):
        return tuple(shape), input.dtype, input.device, channels_last_strides(tuple(shape)), plan
    return tuple(shape), input.dtype, input.device, None, plan


@primitive(layout=_pad_layout, planned=True, grads={"input": _pad_backward}, method=False, batching="fronted")
def constant_pad_nd(input: Tensor, pad: Any, value: Any = 0) -> Tensor:
    """The input with a border of `value` around the last dimensions; negative numbers crop instead."""


@constant_pad_nd.on("any")
def _(out: Tensor, plan: PadPlan, input: Tensor, pad: Any, value: Any) -> None:
    source, target = input, out
    for d, begin, place, size in plan.parts:
        if size != input.shape[d]:
            source = slice_dim(source, d, begin, begin + size)
        if size != out.shape[d]:
            target = slice_dim(target, d, place, place + size)
    if numel_of(source.shape) != numel_of(out.shape):
        fill_raw(out, plan.fill)
    if 0 not in source.shape:
        raw_copy(target, source)
