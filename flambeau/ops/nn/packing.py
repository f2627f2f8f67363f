"""Rows of sequences of different lengths, time step by time step, over which recurrent networks run without padding."""

from __future__ import annotations

import numpy as np

from ...core import dtype as dt
from ...core.tensor import Tensor, copy_of_array
from ..machinery.declare import composite
from ..shape.joining import cat


@composite(method=False, kind="primitive", reads_values=True, batching="each")
def _pack_padded_sequence(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """The rows of a padded batch, longest sequence first, and their number in each step."""
    sizes = lengths._array()
    x = input.transpose(0, 1) if batch_first else input
    if x.shape[1] != sizes.size:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {sizes.size} (batch_size={x.shape[1]})"
        )
    if sizes.size and sizes.min() <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if (np.diff(sizes) > 0).any():
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass `enforce_sorted=False`"
            " to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need ONNX exportability."
        )
    if sizes[0] > x.shape[0]:
        raise RuntimeError(
            f"Expected all sequence lengths to be at most {x.shape[0]}, the number of time steps, but got {sizes[0]}"
        )
    counts = np.array([(sizes > t).sum() for t in range(int(sizes[0]))], np.int64)
    rows = cat([x[t, : int(n)] for t, n in enumerate(counts)], 0)
    return rows, copy_of_array(counts, dt.int64)


@composite(method=False, kind="primitive", reads_values=True, batching="each")
def _pad_packed_sequence(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    """The padded batch of rows, `total_length` steps long (the longest sequence's, if that is not positive), and the lengths."""
    counts = batch_sizes._array()
    if not counts.size:
        raise RuntimeError("batch_sizes can not be empty")
    steps, batch = len(counts), int(counts[0])
    if 0 < total_length < steps:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got"
            f" total_length={total_length} and max sequence length being {steps}"
        )
    length = total_length if total_length > 0 else steps
    feature = data.shape[1:]
    padded = data.new_full((length, batch, *feature), padding_value)
    t = np.repeat(np.arange(steps), counts)
    b = np.concatenate([np.arange(n) for n in counts])
    positions = copy_of_array(t * batch + b, dt.int64)
    flat = padded.reshape(length * batch, *feature).index_copy(0, positions, data)
    out = flat.reshape(length, batch, *feature)
    lengths = np.array([(counts > i).sum() for i in range(batch)], np.int64)
    return out.transpose(0, 1) if batch_first else out, copy_of_array(lengths, dt.int64)
