"""Parts of tensors as views: narrow, split, chunk, unbind, unfold, diagonal."""

from __future__ import annotations

import operator
from typing import Any

from ...core.layout import contiguous_format, wrap_dim
from ...core.size import make_size
from ...core.tensor import OpenTensor, Tensor
from ..machinery.arguments import as_int, as_ints, is_int
from ..machinery.aten_form import aten_only, aten_parts
from ..machinery.declare import composite, internal, primitive, view
from ..machinery.inplace import raw_copy
from ..machinery.quirks import Quirks
from ..machinery.record import Batched
from ..machinery.view_op import SeveralViewsOp
from .dimensions import slice_dim
from .joining import cat, stack
from .strided import spread


@composite
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """A view of `length` indices of a dimension from `start` on."""
    d, begin, end = narrow_bounds(input, dim, start, length)
    return slice_dim(input, d, begin, end, 1)


def narrow_bounds(input: Tensor, dim: int, start: Any, length: Any) -> tuple[int, int, int]:
    """Return a dimension, and the places where a part of it begins and ends; a length may be a tensor of one integer."""
    n = len(input.shape)
    if n == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if isinstance(start, Tensor):
        if start.shape != () or start.dtype.category != 1:
            raise RuntimeError("start must be an 0-dim integral Tensor.")
        start = start.item()
    d = wrap_dim(dim, n)
    size, start, length = input.shape[d], operator.index(start), operator.index(length)
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -size <= start <= size:
        raise IndexError(f"start out of range (expected to be in range of [{-size}, {size}], but got {start})")
    start += size if start < 0 else 0
    if start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return d, start, start + length


@primitive(
    grads={"input": lambda g, input_shape, dim, start, length: _narrow_backward(g, input_shape, dim, start, length)},
    out="exact",
    batching=Batched("along", repeat=False),
)
def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Return a copy of the part that `narrow` shows."""
    if input.shape and dim >= len(input.shape):
        raise RuntimeError(
            f"narrow_copy: dimension {dim} is out of range for a tensor with {len(input.shape)} dimensions"
        )
    d, begin, end = narrow_bounds(input, dim, start, length)
    return slice_dim(input, d, begin, end, 1).clone()


def _narrow_backward(g: Tensor, shape: Any, dim: int, start: int, length: int) -> Any:
    return spread(g, shape, lambda t: narrow(t, dim, start, length))


# -- several parts -------------------------------------------------------------------------------------------------


def _joined_backward(g: tuple[Any, ...], input_shape: Any, dim: int, sizes: tuple[int, ...]) -> Any:
    """Return the parts' gradients concatenated; an unused part has a gradient of zero."""
    known = next(part for part in g if part is not None)
    parts = []
    for part, n in zip(g, sizes):
        shape = (*input_shape[:dim], n, *input_shape[dim + 1 :])
        parts.append(known.new_zeros(shape) if part is None else part)
    return cat(parts, dim)


def _split_geometry(input: Tensor, dim: int, sizes: tuple[int, ...]) -> list[tuple[Any, ...]]:
    before, after = input.shape[:dim], input.shape[dim + 1 :]
    step, offset = input._strides[dim], input._offset
    parts = []
    for n in sizes:
        parts.append(((*before, n, *after), input._strides, offset))
        offset += n * step
    return parts


split_even = SeveralViewsOp("split", _split_geometry, _joined_backward, "SplitBackward0")
split_sized = SeveralViewsOp("split_with_sizes", _split_geometry, _joined_backward, "SplitWithSizesBackward0")


def _copying(label: str) -> Any:
    def split_dim(input: Tensor, dim: int, sizes: tuple[int, ...]) -> tuple[Any, ...]:
        return tuple(part.clone() for part in split_even(input, dim, sizes))

    return internal(
        split_dim, grads={"input": _joined_backward}, quirks=Quirks(label=label), name="_" + label, batching="each"
    )


def _unsafe(label: str) -> Any:
    """Declare views that are not related for autograd: writing one in place is the user's own responsibility."""

    def split_dim(input: Tensor, dim: int, sizes: tuple[int, ...]) -> tuple[Any, ...]:
        parts = split_even(input, dim, sizes)
        for part in parts:
            part._base = None
        return parts

    return internal(
        split_dim, grads={"input": _joined_backward}, quirks=Quirks(label=label), name="_" + label, batching="each",
        aten="unsafe_split_with_sizes(input, list(sizes), dim)",
    )  # fmt: skip


copy_even, copy_sized = _copying("SplitBackward0_copy"), _copying("SplitWithSizesBackward0_copy")
unsafe_even, unsafe_sized = _unsafe("UnsafeSplitBackward0"), _unsafe("UnsafeSplitWithSizesBackward0")


def even_sizes(input: Tensor, size: int, dim: int) -> tuple[int, tuple[int, ...]]:
    """Return the sizes of pieces of `size`, the last one smaller if necessary."""
    if not input.shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    d = wrap_dim(dim, len(input.shape))
    total = input.shape[d]
    if size == 0:
        if total:
            raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {total}")
        return d, (0,)
    full, rest = divmod(total, size)
    return d, (size,) * full + ((rest,) if rest or not full else ())


def given_sizes(input: Tensor, sizes: Any, dim: int) -> tuple[int, tuple[int, ...]]:
    parts = as_ints(sizes, "split_with_sizes", "split_sizes", 2)
    if not input.shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    d = wrap_dim(dim, len(input.shape))
    total = input.shape[d]
    if any(n < 0 for n in parts):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={list(parts)}"
        )
    if sum(parts) != total:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size at dimension {d}),"
            f" but got split_sizes={list(parts)}"
        )
    return d, parts


@composite(
    method=False,
    batching="along",
    aten=(
        "split.Tensor(tensor, split_size_or_sections, dim)",
        "split_with_sizes(tensor, split_size_or_sections, dim)",
        "split.sizes(tensor, split_size_or_sections, dim)",
    ),
)
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive pieces: of one size, or of the sizes listed."""
    if is_int(split_size_or_sections):
        return split_even(tensor, *even_sizes(tensor, int(split_size_or_sections), dim))
    return split_sized(tensor, *given_sizes(tensor, split_size_or_sections, dim))


@aten_parts("split.Tensor")
def _(aten: Any, self: Tensor, split_size: int, dim: int = 0) -> Any:
    length = self.size(dim)
    sizes = [min(split_size, length - start) for start in range(0, length, split_size)]
    return aten.split_with_sizes.default(self, sizes, dim)


@composite(function=False, name="_split_method", batching="along")
def _split_method(self: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    return split(self, split_size, dim)


OpenTensor.split = _split_method


@composite(batching="along")
def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive pieces of the sizes listed."""
    return split_sized(input, *given_sizes(input, split_sizes, dim))


@composite(method=False, out=True, batching="along")
def split_copy(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Copies of consecutive pieces of one size."""
    return copy_even(input, *even_sizes(input, split_size, dim))


@composite(method=False, out=True, batching="along")
def split_with_sizes_copy(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Copies of consecutive pieces of the sizes listed."""
    return copy_sized(input, *given_sizes(input, split_sizes, dim))


@composite(batching="along")
def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """The pieces of `split`, which do not count as views."""
    return unsafe_even(input, *even_sizes(input, split_size, dim))


@composite(batching="along")
def unsafe_split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """The pieces of `split_with_sizes`, which do not count as views."""
    return unsafe_sized(input, *given_sizes(input, split_sizes, dim))


def _chunks(input: Tensor, chunks: int, dim: int) -> tuple[int, tuple[int, ...], bool]:
    if not input.shape:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    d = wrap_dim(dim, len(input.shape))
    total = input.shape[d]
    if total == 0:
        return d, (0,) * chunks, True
    return *even_sizes(input, (total + chunks - 1) // chunks, d), False


@composite(batching="along")
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Split a tensor into at most `chunks` equal pieces along `dim`, as views."""
    d, sizes, empty = _chunks(input, chunks, dim)
    return (split_sized if empty else split_even)(input, d, sizes)


@aten_parts("chunk")
def _(aten: Any, self: Tensor, chunks: int, dim: int = 0) -> Any:
    return aten.split.Tensor(self, -(-self.size(dim) // chunks), dim)


@composite(batching="along")
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """The pieces of `chunk`, which do not count as views."""
    d, sizes, empty = _chunks(input, chunks, dim)
    return (unsafe_sized if empty else unsafe_even)(input, d, sizes)


def _cut_points(input: Tensor, cuts: Any, d: int, name: str) -> list[int]:
    """Return where tensor_split cuts: at given indices, or into `cuts` pieces as equal as possible (the first ones larger)."""
    total = input.shape[d]
    if isinstance(cuts, Tensor):
        if cuts.dtype.name != "int64":
            raise RuntimeError(
                f"{name} expected tensor_indices_or_sections to have dtype of long, but got"
                f" {cuts.dtype.name.capitalize()}"
            )
        if len(cuts.shape) > 1:
            raise RuntimeError(
                f"{name} expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, but"
                f" got a tensor with {len(cuts.shape)} dims"
            )
        cuts = cuts.tolist()
    if not is_int(cuts):
        return list(as_ints(cuts, name, "indices", 2))
    pieces = int(cuts)
    if pieces <= 0:
        raise RuntimeError(f"number of sections must be larger than 0, got {pieces}")
    small, larger = divmod(total, pieces)
    points, at = [], 0
    for i in range(pieces - 1):
        at += small + (1 if i < larger else 0)
        points.append(at)
    return points


def _clamped(index: int, total: int) -> int:
    index += total if index < 0 else 0
    return min(max(index, 0), total)


@composite
def tensor_split(input: Tensor, indices_or_sections: Any = None, dim: int = 0, **named: Any) -> tuple[Tensor, ...]:
    """Views split at the given indices, or into the given number of pieces."""
    cuts = named.get("sections", named.get("indices", named.get("tensor_indices_or_sections", indices_or_sections)))
    if not input.shape:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    d = wrap_dim(dim, len(input.shape))
    total = input.shape[d]
    edges = [0, *_cut_points(input, cuts, d, "tensor_split"), total]
    parts = []
    for a, b in zip(edges, edges[1:]):
        start, stop = _clamped(a, total), _clamped(b, total)
        parts.append(slice_dim(input, d, start, max(start, stop), 1))
    return tuple(parts)


def _axis_split(name: str, input: Tensor, cuts: Any, axis: int, least: int) -> tuple[Any, ...]:
    if len(input.shape) < least:
        raise RuntimeError(
            f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with"
            f" {len(input.shape)} dimensions!"
        )
    if is_int(cuts):
        pieces = int(cuts)
        if pieces == 0 or input.shape[axis] % pieces:
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {axis}, but the size of the dimension"
                f" {input.shape[axis]} is not divisible by the split_size {pieces}!"
            )
    return tensor_split(input, cuts, axis)


@composite
def hsplit(input: Tensor, indices_or_sections: Any = None, **named: Any) -> tuple[Tensor, ...]:
    """Views split as by tensor_split along columns (along the only dimension of a vector)."""
    cuts = named.get("sections", named.get("indices", indices_or_sections))
    return _axis_split("hsplit", input, cuts, 0 if len(input.shape) == 1 else 1, 1)


@composite
def vsplit(input: Tensor, indices_or_sections: Any = None, **named: Any) -> tuple[Tensor, ...]:
    """Views split as by tensor_split along rows."""
    return _axis_split("vsplit", input, named.get("sections", named.get("indices", indices_or_sections)), 0, 2)


@composite
def dsplit(input: Tensor, indices_or_sections: Any = None, **named: Any) -> tuple[Tensor, ...]:
    """Views split as by tensor_split along the third dimension."""
    return _axis_split("dsplit", input, named.get("sections", named.get("indices", indices_or_sections)), 2, 3)


def _unbind_backward(g: tuple[Any, ...], input_shape: Any, dim: int) -> Any:
    known = next((part for part in g if part is not None), None)
    if known is None:
        return None
    d = wrap_dim(dim, len(input_shape))
    shape = (*input_shape[:d], *input_shape[d + 1 :])
    return stack([known.new_zeros(shape) if part is None else part for part in g], d)


def _unbind_geometry(input: Tensor, d: int) -> list[tuple[Any, ...]]:
    shape = (*input.shape[:d], *input.shape[d + 1 :])
    strides = (*input._strides[:d], *input._strides[d + 1 :])
    return [(shape, strides, input._offset + i * input._strides[d]) for i in range(input.shape[d])]


_unbind = SeveralViewsOp("unbind", _unbind_geometry, _unbind_backward, "UnbindBackward0")


@composite(kind="view", batching=Batched("along", repeat=False), sharding="unbind")
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of every index of a dimension."""
    if not input.shape:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    return _unbind(input, wrap_dim(dim, len(input.shape)))


@aten_parts("unbind.int")
def _(aten: Any, self: Tensor, dim: int = 0) -> Any:
    pieces = [aten.slice.Tensor(self, dim, i, i + 1) for i in range(self.size(dim))]
    return [aten.squeeze.dim(piece, dim) for piece in pieces]


@primitive(
    grads={"input": _unbind_backward},
    quirks=Quirks(label="UnbindBackward0_copy"),
    method=False,
    out=True,
    batching=Batched("along", repeat=False),
)
def unbind_copy(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Copies of every index of a dimension."""
    return tuple(part.clone() for part in unbind(input, dim))


# -- windows and diagonals -----------------------------------------------------------------------------------------


@internal(
    grads={"g": lambda gg, dimension, size, step: gg.unfold(dimension, size, step)},
    name="_unfold_backward",
    aten="unfold_backward(g, list(shape), dimension, size, step)",
    batching="each",
)
def unfold_backward(g: Tensor, shape: Any, dimension: int, size: int, step: int) -> Tensor:
    """Add every window's gradient at the place of the window."""
    full = g.new_zeros(shape)
    if not shape:
        return full + g.reshape(()) if size else full
    d = wrap_dim(dimension, len(shape))
    windows = g.shape[d]
    for k in range(size):  # within one offset k no two windows touch
        target = slice_dim(full, d, k, k + (windows - 1) * step + 1, step)
        target += g.select(-1, k)
    return full


@view(
    grads={
        "input": lambda g, input_shape, dimension, size, step: unfold_backward(g, input_shape, dimension, size, step)
    },
    function=False,
    batching=Batched("along", dims=("dimension",)),
)
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """A view with windows of a dimension as a new last dimension."""
    n = len(input.shape)
    d, size, step = wrap_dim(dimension, n), as_int(size, "unfold", "size", 3), as_int(step, "unfold", "step", 4)
    total = input.shape[d] if n else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > total:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {total} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    stride = input._strides[d] if n else 1
    shape, strides = list(input.shape), list(input._strides)
    if n:
        shape[d], strides[d] = (total - size) // step + 1, stride * step
    return input._view(make_size([*shape, size]), (*strides, stride), input._offset)


def diagonal_geometry(input: Tensor, offset: int, dim1: int, dim2: int) -> tuple[Any, ...]:
    n = len(input.shape)
    a, b = wrap_dim(dim1, n), wrap_dim(dim2, n)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, columns, offset = input.shape[a], input.shape[b], operator.index(offset)
    count = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    start = input._offset
    if count:
        start += offset * input._strides[b] if offset >= 0 else -offset * input._strides[a]
    keep = [i for i in range(n) if i not in (a, b)]
    shape = [input.shape[i] for i in keep] + [count]
    strides = [input._strides[i] for i in keep] + [input._strides[a] + input._strides[b]]
    return make_size(shape), tuple(strides), start


@aten_only("diagonal_backward")
def _diagonal_backward(g: Tensor, input_shape: Any, offset: int, dim1: int, dim2: int) -> Any:
    named = ("diagonal_backward", offset, dim1, dim2)
    return spread(g, input_shape, lambda t: t.diagonal(offset, dim1, dim2), named)


@view(grads={"input": _diagonal_backward}, batching=Batched("along", dims=("dim1", "dim2")))
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of the diagonal of two dimensions as the last one."""
    return input._view(*diagonal_geometry(input, offset, dim1, dim2))


@primitive(
    grads={"input": _diagonal_backward},
    quirks=Quirks(label="DiagonalBackward0_copy"),
    method=False,
    out=True,
    batching=Batched("along", dims=("dim1", "dim2")),
)
def diagonal_copy(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a copy of the diagonal."""
    return diagonal(input, offset, dim1, dim2).clone(memory_format=contiguous_format)


@primitive(
    grads={"input": lambda g, offset, dim1, dim2: g.diagonal(offset, dim1, dim2)},
    out=True,
    batching=Batched("along", dims=("dim1", "dim2"), extra=1),
)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last dimension's values on their diagonal."""
    n = len(input.shape) + 1
    a, b = wrap_dim(dim1, n), wrap_dim(dim2, n)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    side = (input.shape[-1] if input.shape else 1) + abs(offset)
    shape = list(input.shape[:-1])
    for d in sorted((a, b)):
        shape.insert(d, side)
    full = input.new_zeros(tuple(shape))
    raw_copy(diagonal(full, offset, a, b), input)
    return full


@composite(out="exact")
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix with this vector on its diagonal, or a copy of a matrix's diagonal."""
    offset = as_int(diagonal, "diag", "diagonal", 2)
    if len(input.shape) == 1:
        return diag_embed(input, offset)
    if len(input.shape) == 2:
        return diagonal_copy(input, offset)
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {len(input.shape)}D")


@composite
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements of the tensor on its diagonal."""
    return diag_embed(input.reshape(-1), offset)
