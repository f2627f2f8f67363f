"""Rows of nested tensors in the jagged layout: packed from tensors, from values and offsets or from a padded batch, and unpacked."""

from __future__ import annotations

import functools
from itertools import accumulate
from typing import Any

from ...core import dtype as dt
from ...core.jagged import NestedTensor, new_jagged
from ...core.tensor import Tensor
from ..creation.construct import from_data
from ..shape.joining import cat
from . import as_view, held_as, hold, relabelled, value_of


def lengths_of(t: NestedTensor) -> list[int]:
    """Return the number of elements of each row along the ragged dimension."""
    if t._lengths is not None:
        return t._lengths.tolist()
    starts = t._starts.tolist()
    return [b - a for a, b in zip(starts, starts[1:])]


def rows_of(t: NestedTensor) -> list[Tensor]:
    """Return the rows as plain tensors, each with the history of `t`."""
    value, at, starts, lengths = value_of(t), t._ragged - 1, t._starts.tolist(), lengths_of(t)
    if at < 0:
        raise RuntimeError(f"unbind(): nested tensor with ragged dimension {t._ragged}, which is out of bounds")
    size = value.shape[at]
    if t._lengths is None and [starts[0], starts[-1]] == [0, size]:
        return list(value.split(lengths, at))
    if any(not 0 <= a <= a + n <= size for a, n in zip(starts, lengths)):
        raise RuntimeError(
            f"unbind(): nested tensor offsets and lengths, {starts} and {lengths}, are not inside dimension {at} of {size} values"
        )
    return [value.narrow(at, start, n) for start, n in zip(starts, lengths)]


def without_gaps(x: Any) -> Any:
    """Return a nested tensor whose rows are stored without gaps, with the same ragged size; other arguments unchanged."""
    if not isinstance(x, NestedTensor) or x._lengths is None:
        return x
    rows = rows_of(x)
    starts = cat([x._lengths.new_zeros(1), x._lengths.cumsum(0)])
    mold = functools.partial(new_jagged, starts=starts, ragged=x._ragged, symbol=x._symbol)
    return held_as(cat(rows, x._ragged - 1), mold)


def from_rows(rows: list[Tensor]) -> Any:
    """Return a nested tensor of tensors that differ in the size of at most one dimension."""
    at = next((d for d, sizes in enumerate(zip(*(row.shape for row in rows))) if len(set(sizes)) > 1), 0)
    lengths = [row.shape[at] for row in rows]
    starts = from_data([0, *accumulate(lengths)], dt.int64, rows[0].device)
    return from_values(cat(rows, at), starts, None, at + 1, min_seqlen=min(lengths), max_seqlen=max(lengths))


def check_offsets(offsets: Tensor, count: int, lengths: Tensor | None = None) -> None:
    """Raise for offsets of rows that are not in order, or do not cover all of `count` values; with `lengths`, for rows that are not inside."""
    starts = offsets.tolist()
    if lengths is not None:
        if lengths.dim() != 1 or lengths.shape[0] != len(starts) - 1 or lengths.dtype != offsets.dtype:
            raise RuntimeError(f"expected a length for each of {len(starts) - 1} rows, got {lengths}")
        if any(not 0 <= a <= a + n <= count for a, n in zip(starts, lengths.tolist())):
            raise RuntimeError(f"rows at {starts[:16]} of lengths {lengths} are not inside {count} values")
        return
    if starts[:1] != [0] or starts[-1] > count or any(a > b for a, b in zip(starts, starts[1:])):
        raise RuntimeError(f"offsets must rise from 0 to at most the number of values, {count}, got {starts[:16]}")


def from_values(
    values: Tensor, starts: Tensor, lengths: Tensor | None = None, ragged: int = 1, **known: int | None
) -> Any:
    """Return a nested tensor over values that are stored row after row, or with gaps if there are `lengths`; `known` are the smallest and the
    largest length."""
    cache = {name: n for name, n in known.items() if n is not None}
    like = new_jagged(values.detach(), starts, ragged, lengths=lengths, metadata_cache=cache)
    return as_view(relabelled(hold(values, like._mold()), "NestedViewFromJaggedBackward0"), values)


def from_padded(padded: Tensor, offsets: Tensor, ragged: int = 1, **known: int | None) -> Any:
    """Return a nested tensor of the first elements of each element of a batch, as many as `offsets` give."""
    lengths = (offsets[1:] - offsets[:-1]).tolist()
    rows = [row.narrow(ragged - 1, 0, n) for row, n in zip(padded.unbind(0), lengths)]
    return from_values(cat(rows, ragged - 1), offsets, None, ragged, **known)
