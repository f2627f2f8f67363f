"""Views: operators that give another shape to the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.dtype import int64
from ..core.graph import mode
from ..core.layout import wrap_dim
from ..core.size import Size, make_size
from ..core.tensor import Tensor, contiguous_strides, copy_of_array, numel_of
from .declare import composite, view


def shape_argument(args: tuple, name: str) -> tuple[int, ...]:
    """view(2, 3), view((2, 3)), view([2, 3])"""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = tuple(args[0])
    result = []
    for n in args:
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise TypeError(f"{name}(): argument 'size' must be tuple of ints, but found element of type {type(n).__name__}")
        result.append(n.__index__())
    return tuple(result)


def infer_shape(shape: tuple[int, ...], numel: int) -> tuple[int, ...]:
    """Replace one -1 by what makes the element count fit."""
    known, unknown = 1, -1
    for i, n in enumerate(shape):
        if n == -1:
            if unknown >= 0:
                raise RuntimeError("only one dimension can be inferred")
            unknown = i
        elif n < 0:
            raise RuntimeError(f"invalid shape dimension {n} at index {i} of shape {list(shape)}")
        else:
            known *= n
    if unknown < 0:
        if known != numel:
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
        return shape
    if known == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension size -1 can be"
            " any value and is ambiguous"
        )
    if numel % known:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
    return (*shape[:unknown], numel // known, *shape[unknown + 1 :])


def view_strides(shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides that show the same elements as `target`, or None if only a copy can.

    Walk from the last dimension: each maximal run of dimensions that is contiguous in itself must be covered exactly by
    a run of target dimensions."""
    if numel_of(shape) == 0:
        return contiguous_strides(target) if shape != target else strides
    result = [0] * len(target)
    position = len(target) - 1
    run_stride = strides[-1] if strides else 1
    run_size = target_size = 1
    for d in range(len(shape) - 1, -1, -1):
        run_size *= shape[d]
        ends = d == 0 or (shape[d - 1] != 1 and strides[d - 1] != run_size * run_stride)
        if not ends:
            continue
        while position >= 0 and (target_size < run_size or target[position] == 1):
            result[position] = target_size * run_stride
            target_size *= target[position]
            position -= 1
        if target_size != run_size:
            return None
        if d > 0:
            run_stride = strides[d - 1]
            run_size = target_size = 1
    while position >= 0 and target[position] == 1:  # only for 0-dim inputs
        result[position] = run_stride
        position -= 1
    return tuple(result) if position < 0 else None


def remember_no_grad_view(out: Tensor, source: Tensor) -> Tensor:
    """A view of a tensor that requires grad, made without recording, must not be changed in place with recording."""
    if not mode.enabled and source._meta is not None and source.requires_grad and not mode.inference:
        meta = out._ensure_meta()
        meta.creation = "no_grad"
        meta.view_version = out._storage.version
    return out


# -- the general view ---------------------------------------------------------------------------------------------------


def _as_strided_backward(g: Tensor, input: Tensor, size: Any, stride: Any, storage_offset: int | None) -> Tensor:
    """Sum the gradient back to the memory cells, then read them through the input's own geometry."""
    offset = 0 if storage_offset is None else storage_offset - input._offset
    low = min(offset, 0)
    extent = 1 + sum((n - 1) * s for n, s in zip(input.shape, input._strides))
    span = max(extent, offset + 1 + sum((n - 1) * s for n, s in zip(size, stride))) - low
    flat = g.new_zeros(span)
    if numel_of(size):
        cells = _cell_indices(span).as_strided(size, stride, offset - low)
        flat = flat.index_add(0, cells.reshape(-1), g.reshape(-1))
    overlapping = any(n > 1 and s == 0 for n, s in zip(input.shape, input._strides))
    if overlapping:  # several input elements share a cell: each gets an equal part
        own = _cell_indices(span).as_strided(input.shape, input._strides, -low).reshape(-1)
        count = g.new_zeros(span).index_add(0, own, g.new_ones(own.numel()))
        flat = flat / count.clamp(min=1)
    return flat.as_strided(input.shape, input._strides, -low)


def _cell_indices(n: int) -> Tensor:
    return copy_of_array(np.arange(n), int64)


@view(grads={"input": _as_strided_backward}, inplace=False)
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view with any shape, strides and offset that stay inside the storage."""
    size, stride = tuple(size), tuple(stride)
    offset = input._offset if storage_offset is None else storage_offset
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: got {len(size)} sizes and {len(stride)} strides")
    if any(n < 0 for n in size):
        raise RuntimeError(f"as_strided: sizes must be non-negative, got {list(size)}")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if numel_of(size):
        last = offset + 1 + sum((n - 1) * s for n, s in zip(size, stride))
        if last * input.dtype.itemsize > input._storage.size_bytes:
            raise RuntimeError(
                f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize"
                f" {input.dtype.itemsize} requiring a storage size of {last * input.dtype.itemsize} are out of bounds for"
                f" storage of size {input._storage.size_bytes}"
            )
    return remember_no_grad_view(input._view(make_size(size), stride, offset), input)


# -- reshaping ----------------------------------------------------------------------------------------------------------


@view(grads={"input": lambda g, input: g.reshape(input.shape)}, label="ViewBackward0", function=False, method=False)
def view_shape(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`input` seen as `shape`, which must be possible without a copy."""
    strides = view_strides(input.shape, input._strides, shape)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two"
            " contiguous subspaces). Use .reshape(...) instead."
        )
    return remember_no_grad_view(input._view(make_size(shape), strides, input._offset), input)


@composite(method=True)
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """Another shape: a view where possible, else a copy."""
    target = infer_shape(shape_argument(shape if shape else ((),), "reshape"), numel_of(input.shape))
    if view_strides(input.shape, input._strides, target) is not None:
        return view_shape(input, target)
    return view_shape(input.contiguous(), target)


# -- reordering dimensions ----------------------------------------------------------------------------------------------


def _inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    inverse = [0] * len(dims)
    for i, d in enumerate(dims):
        inverse[d] = i
    return tuple(inverse)


@view(
    grads={"input": lambda g, input, dims: permute_dims(g, _inverse(dims))},
    label="PermuteBackward0",
    function=False,
    method=False,
)
def permute_dims(input: Tensor, dims: tuple[int, ...]) -> Tensor:
    out = input._view(
        make_size([input.shape[d] for d in dims]), tuple(input._strides[d] for d in dims), input._offset
    )
    return remember_no_grad_view(out, input)


@composite
def permute(input: Tensor, *dims: Any) -> Tensor:
    """Dimensions in another order."""
    order = shape_argument(dims, "permute")
    n = len(input.shape)
    if len(order) != n:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering"
            f" of dimensions i.e. input.dim() = {n} is not equal to len(dims) = {len(order)}"
        )
    wrapped = tuple(wrap_dim(d, n) for d in order)
    if len(set(wrapped)) != n:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return permute_dims(input, wrapped)


@view(grads={"input": lambda g, dim0, dim1: g.transpose(dim0, dim1)}, aliases=("swapaxes", "swapdims"))
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    n = len(input.shape)
    a, b = wrap_dim(dim0, n), wrap_dim(dim1, n)
    shape, strides = list(input.shape), list(input._strides)
    if n:
        shape[a], shape[b] = shape[b], shape[a]
        strides[a], strides[b] = strides[b], strides[a]
    return remember_no_grad_view(input._view(make_size(shape), tuple(strides), input._offset), input)


@view(grads={"input": lambda g: g.t()}, label="TBackward0")
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; vectors and scalars as they are."""
    if len(input.shape) > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {len(input.shape)}D")
    out = input._view(make_size(tuple(reversed(input.shape))), tuple(reversed(input._strides)), input._offset)
    return remember_no_grad_view(out, input)


# -- size-one dimensions and broadcasting -------------------------------------------------------------------------------


@view(grads={"input": lambda g, input: g.sum_to_size(input.shape)}, label="ExpandBackward0", function=False, method=False)
def expand_to(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    shift = len(shape) - len(input.shape)
    strides = [0] * shift
    for have, want, stride in zip(input.shape, shape[shift:], input._strides):
        strides.append(0 if have == 1 and want != 1 else stride)
    return remember_no_grad_view(input._view(make_size(shape), tuple(strides), input._offset), input)


@composite(function=False)
def expand(self: Tensor, *size: Any, implicit: bool = False) -> Tensor:
    """Size-one dimensions repeated without copying; -1 keeps a dimension."""
    sizes = list(shape_argument(size, "expand"))
    shift = len(sizes) - len(self.shape)
    if shift < 0:
        raise RuntimeError(
            f"expand({self.type()}{{{list(self.shape)}}}, size={sizes}): the number of sizes provided ({len(sizes)}) must be"
            f" greater or equal to the number of dimensions in the tensor ({len(self.shape)})"
        )
    for i, n in enumerate(sizes):
        if i < shift:
            if n < 0:
                raise RuntimeError(
                    f"The expanded size of the tensor ({n}) isn't allowed in a leading, non-existing dimension {i}"
                )
            continue
        have = self.shape[i - shift]
        if n == -1:
            sizes[i] = have
        elif n < 0:
            raise RuntimeError(f"expand: invalid size {n} at dimension {i}")
        elif n != have and have != 1:
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({have}) at non-singleton dimension"
                f" {i}.  Target sizes: {sizes}.  Tensor sizes: {list(self.shape)}"
            )
    return expand_to(self, tuple(sizes))


@view(grads={"input": lambda g, dim, input: g.squeeze(dim if dim >= 0 else dim + len(input.shape) + 1)}, inplace=False)
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A new dimension of size one."""
    n = len(input.shape) + 1
    d = wrap_dim(dim, n)
    stride = input.shape[d] * input._strides[d] if d < n - 1 else 1
    shape = (*input.shape[:d], 1, *input.shape[d:])
    return remember_no_grad_view(
        input._view(make_size(shape), (*input._strides[:d], stride, *input._strides[d:]), input._offset), input
    )


@view(grads={"input": lambda g, input: g.reshape(input.shape)}, label="SqueezeBackward1", function=False, method=False)
def squeeze_dims(input: Tensor, dims: tuple[int, ...]) -> Tensor:
    keep = [i for i, n in enumerate(input.shape) if i not in dims or n != 1]
    out = input._view(
        make_size([input.shape[i] for i in keep]), tuple(input._strides[i] for i in keep), input._offset
    )
    return remember_no_grad_view(out, input)


@composite
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without its size-one dimensions (all, or the given ones)."""
    n = len(input.shape)
    if dim is None:
        dims = tuple(range(n))
    elif isinstance(dim, (tuple, list)):
        dims = tuple(wrap_dim(d, n) for d in dim)
    else:
        dims = (wrap_dim(dim, n),)
    return squeeze_dims(input, dims)


# -- parts --------------------------------------------------------------------------------------------------------------


def _select_backward(g: Tensor, input: Tensor, dim: int, index: int) -> Tensor:
    full = g.new_zeros(input.shape)
    if mode.enabled and g.requires_grad:
        return full.select_scatter(g, dim, index)
    full.select(dim, index).copy_(g)
    return full


@view(grads={"input": _select_backward})
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One index of a dimension, which disappears."""
    n = len(input.shape)
    if n == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(dim, n)
    i = index.__index__()
    size = input.shape[d]
    if not -size <= i < size:
        raise IndexError(f"select(): index {i} out of range for tensor of size {list(input.shape)} at dimension {d}")
    i += size if i < 0 else 0
    shape = (*input.shape[:d], *input.shape[d + 1 :])
    strides = (*input._strides[:d], *input._strides[d + 1 :])
    return remember_no_grad_view(
        input._view(make_size(shape), strides, input._offset + i * input._strides[d]), input
    )


def _slice_backward(g: Tensor, input: Tensor, dim: int, start: int, stop: int, step: int) -> Tensor:
    full = g.new_zeros(input.shape)
    if mode.enabled and g.requires_grad:
        return full.slice_scatter(g, dim, start, stop, step)
    slice_dim(full, dim, start, stop, step).copy_(g)
    return full


@view(grads={"input": _slice_backward}, label="SliceBackward0", function=False, method=False)
def slice_dim(input: Tensor, dim: int, start: int, stop: int, step: int = 1) -> Tensor:
    """input[..., start:stop:step, ...] with 0 <= start <= stop <= size already settled."""
    count = max(0, (stop - start + step - 1) // step)
    shape = (*input.shape[:dim], count, *input.shape[dim + 1 :])
    strides = (*input._strides[:dim], input._strides[dim] * step, *input._strides[dim + 1 :])
    offset = input._offset + (start * input._strides[dim] if count else 0)
    return remember_no_grad_view(input._view(make_size(shape), strides, offset), input)


@composite
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """`length` indices of a dimension from `start` on."""
    n = len(input.shape)
    if n == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if isinstance(start, Tensor):
        start = start.item()
    d = wrap_dim(dim, n)
    size = input.shape[d]
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -size <= start <= size:
        raise IndexError(f"start out of range (expected to be in range of [{-size}, {size}], but got {start})")
    start += size if start < 0 else 0
    if start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return slice_dim(input, d, start, start + length, 1)


__all__ = ["Size", "infer_shape", "shape_argument", "slice_dim", "view_shape", "view_strides"]
