"""Rows of nested tensors in the strided layout: packed from tensors, from a buffer and places in it or from a padded batch, and unpacked."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from ...core import dtype as dt
from ...core.strided_nested import Places, StridedNestedTensor, new_strided_nested, packed_places
from ...core.tensor import Tensor
from ..creation.construct import from_data
from ..shape.joining import cat
from . import as_view, hold, relabelled, value_of


def rows_at(value: Tensor, places: Places) -> list[Tensor]:
    """Return the rows at their places in a buffer: parts of it if they are stored one after the other, so that their gradients are joined
    once."""
    if places == packed_places(places.sizes):
        parts = value.split([math.prod(size) for size in places.sizes]) if places.sizes else ()
        return [part.view(size) for part, size in zip(parts, places.sizes)]
    return [value.as_strided(n, s, value._offset + start) for n, s, start in zip(*places[:3])]


def rows_of(t: StridedNestedTensor) -> list[Tensor]:
    """Return the rows as plain tensors, each with the history of `t`."""
    return rows_at(value_of(t), t._places)


def packed(rows: list[Tensor], label: str | None = None) -> Any:
    """Return a nested tensor of copies of the rows; its history shows `label`, or else the operator that made them."""
    if label is None and rows and rows[0].grad_fn is not None:
        label = rows[0].grad_fn.name()
    value = cat([row.reshape(-1) for row in rows]) if rows else from_data([], dt.float32, Tensor().device)
    return relabelled(hold(value, mold_of([row.shape for row in rows])), label)


def viewed_rows(batch: Tensor) -> Any:
    """Return a nested tensor of the elements of a contiguous batch, in its memory."""
    return as_view(hold(batch.view(-1), mold_of([batch.shape[1:]] * len(batch))), batch)


def mold_of(sizes: Any) -> Callable[[Tensor], Any]:
    return functools.partial(new_strided_nested, places=packed_places(sizes))


def contiguous(t: StridedNestedTensor) -> Any:
    """Return the tensor itself if its rows are stored one after the other, else such a copy."""
    return t if t.is_contiguous() else packed(rows_of(t), "CloneBackward0")


def viewed(t: StridedNestedTensor, views: list[Tensor], label: str | None = None) -> Any:
    """Return the nested tensor of views of the rows of `t`, in the same buffer."""
    first = t._value._offset
    sizes, strides = tuple(tuple(v.shape) for v in views), tuple(v._strides for v in views)
    places = Places(sizes, strides, tuple(v._offset - first for v in views), t._places.capacity)
    return relabelled(hold(value_of(t), functools.partial(new_strided_nested, places=places)), label)


def from_parts(value: Tensor, sizes: Tensor, strides: Tensor, starts: Tensor) -> Tensor:
    """Return a nested tensor over a buffer, whose rows have these sizes, strides and offsets (a line for each row)."""
    if [t.dim() for t in (value, sizes, strides, starts)] != [1, 2, 2, 1] or not value.is_contiguous():
        raise RuntimeError(
            "a nested tensor needs a contiguous buffer, a line of sizes and of strides and a beginning for each row"
        )
    places = Places(
        tuple(map(tuple, sizes.tolist())), tuple(map(tuple, strides.tolist())), tuple(starts.tolist()), value.shape[0]
    )
    _check_places(places)
    return relabelled(
        hold(value, functools.partial(new_strided_nested, places=places)), "NestedViewFromBufferBackward0"
    )


def _check_places(places: Places) -> None:
    """Raise for rows that are not inside the buffer."""
    if len({len(part) for part in places[:3]}) != 1 or len({len(n) for part in places[:2] for n in part}) > 1:
        raise RuntimeError("a nested tensor needs as many strides and beginnings as sizes, all of one length")
    for size, strides, start in zip(*places[:3]):
        last = start + sum((n - 1) * s for n, s in zip(size, strides)) if all(size) else start - 1
        if min((start, *size, *strides)) < 0 or last >= places.capacity:
            raise RuntimeError(
                f"a row of size {size} and strides {strides} at {start} is not inside a buffer of {places.capacity} elements"
            )


def places_of(self: StridedNestedTensor) -> tuple[Tensor, ...]:
    """Return sizes, strides and offsets of the rows, as integer tensors."""
    made = [from_data([*part], dt.int64, Tensor().device) for part in self._places[:3]]
    return tuple(t if len(self) or i == 2 else t.view(0, 0) for i, t in enumerate(made))


_nested_view_from_buffer = from_parts


def _nested_from_padded(padded: Tensor, cpu_nested_shape_example: Tensor, fuse_transform_0213: bool = False) -> Tensor:
    """A nested tensor of the first elements of each element of a batch, as many as the sizes (a line for each) give."""
    batch = padded.transpose(1, 2).flatten(2) if fuse_transform_0213 else padded
    return packed([row[tuple(map(slice, size))] for row, size in zip(batch, cpu_nested_shape_example.tolist())])


def _nested_from_padded_and_nested_example(padded: Tensor, nt_example: Any) -> Tensor:
    """A nested tensor of the first elements of each element of a batch, with the sizes of the rows of another one."""
    return _nested_from_padded(padded, places_of(nt_example)[0])


def _nested_tensor_from_mask(t: Tensor, mask: Tensor, mask_check: bool = True) -> Tensor:
    """A nested tensor of the elements that are not masked out, of a batch of sequences that are padded at their ends."""
    if mask.dtype is not dt.bool_:
        raise RuntimeError(f"Expected mask to be of ScalarType Bool, but got {mask.dtype.scalar_type} instead.")
    if t.dim() != 3 or mask.shape != t.shape[:2]:
        raise RuntimeError(
            f"expected sequences (batch, length, width) and a mask (batch, length), got {t.shape} and {mask.shape}"
        )
    lengths = mask.sum(1).tolist()
    if mask_check and not all(all(line[:n]) for line, n in zip(mask.tolist(), lengths)):
        raise RuntimeError("Expected Mask to be left aligned")
    return packed([row[:n] for row, n in zip(t.unbind(), lengths)])


def _nested_compute_contiguous_strides_offsets(nested_size: Tensor) -> tuple[Tensor, Tensor]:
    """The strides and offsets of rows of these sizes (a line for each) that are stored one after the other."""
    places = packed_places(tuple(map(tuple, nested_size.tolist())))
    where = nested_size.device
    return from_data(list(map(list, places.strides)), dt.int64, where), from_data(list(places.starts), dt.int64, where)
