"""Packed and padded sequences of different lengths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...core import dtype as dt
from ...core.tensor import Tensor
from ...ops.creation.construct import as_tensor
from ...ops.creation.ranges import arange
from ...ops.nn.packing import _pack_padded_sequence, _pad_packed_sequence
from ...ops.shape.joining import cat


class PackedSequence_(NamedTuple):
    """The fields of a PackedSequence."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Return the inverse of a permutation."""
    return None if permutation is None else permutation.argsort()


class PackedSequence(PackedSequence_):
    """Rows of several sequences, time step by time step, longest sequences first."""

    def __new__(
        cls, data: Any, batch_sizes: Any = None, sorted_indices: Any = None, unsorted_indices: Any = None
    ) -> Any:
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise AssertionError("expected a tuple of data and batch sizes")
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. They should be"
                " instantiated by functions like pack_sequence and pack_padded_sequences in nn.utils.rnn."
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _replace_data(self, data: Tensor) -> PackedSequence:
        if data is self.data:
            return self
        return type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self._replace_data(self.data.to(*args, **kwargs))

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self._replace_data(self.data.cpu(*args, **kwargs))

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self._replace_data(self.data.cuda(*args, **kwargs))

    def pin_memory(self) -> PackedSequence:
        return self._replace_data(self.data.pin_memory())

    def double(self) -> PackedSequence:
        return self.to(dt.float64)

    def float(self) -> PackedSequence:
        return self.to(dt.float32)

    def half(self) -> PackedSequence:
        return self.to(dt.float16)

    def long(self) -> PackedSequence:
        return self.to(dt.int64)

    def int(self) -> PackedSequence:
        return self.to(dt.int32)

    def short(self) -> PackedSequence:
        return self.to(dt.int16)

    def char(self) -> PackedSequence:
        return self.to(dt.int8)

    def byte(self) -> PackedSequence:
        return self.to(dt.uint8)

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        return self.data.is_pinned()


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack a padded batch: only the first lengths[i] steps of sequence i are kept."""
    if input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    sizes = as_tensor(lengths, dtype=dt.int64)
    sorted_indices = None
    if not enforce_sorted:
        sizes, sorted_indices = sizes.sort(descending=True, stable=True)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    rows, counts = _pack_padded_sequence(input, sizes, batch_first)
    return PackedSequence(rows, counts, sorted_indices)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return (padded batch, lengths): the inverse of pack_padded_sequence."""
    steps = len(sequence.batch_sizes)
    if total_length is not None and total_length < steps:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got"
            f" total_length={total_length} and max sequence length being {steps}"
        )
    length = -1 if total_length is None else total_length  # the number of steps would be a constant of recordings
    out, result = _pad_packed_sequence(sequence.data, sequence.batch_sizes, batch_first, padding_value, length)
    if sequence.unsorted_indices is not None:
        dim = 0 if batch_first else 1
        return out.index_select(dim, sequence.unsorted_indices), result[sequence.unsorted_indices]
    return out, result


def pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Stack sequences of different lengths, with the short ones padded."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    items = list(sequences)
    if not items:
        raise RuntimeError("received an empty list of sequences")
    longest = max(s.shape[0] for s in items)
    rows = []
    for s in items:
        missing = longest - s.shape[0]
        if missing:
            filler = s.new_full((missing, *s.shape[1:]), padding_value)
            s = cat([s, filler] if padding_side == "right" else [filler, s], 0)
        rows.append(s.unsqueeze(0 if batch_first else 1))
    return cat(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """Return the sequences of a padded batch."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    places = arange(x.shape[1])
    return [row[places < n] for row, n in zip(x, as_tensor(lengths), strict=True)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of different lengths."""
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Return the list of packed sequences."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


__all__ = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence",
           "unpack_sequence", "unpad_sequence"]  # fmt: skip
