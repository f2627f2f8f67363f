"""Resizing images of bytes: integer arithmetic with 16-bit weights, rounded after each dimension, the last one first."""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from ...core import dtype as dt
from ...core.size import make_size
from ...core.tensor import Tensor, copy_of_array, empty, numel_of
from ...kernels.library.pixels import resize_bytes_across, resize_bytes_along
from ..machinery.memory import is_last, without_gaps
from .band import Band
from .resample import Bands

_TASKS = 16  # pieces that can run at the same time
_MOST_TAPS = 8  # inputs summed in one go; kernels are compiled for each number up to it


class _Tables:
    """A band in whole numbers, as the kernels read it."""

    def __init__(self, band: Band):
        weights = band.weights
        assert weights is not None
        self.bits = _weight_bits(float(weights.max()))
        whole = np.trunc(weights * 2**self.bits + np.copysign(0.5, weights)).astype(np.int32)
        self.taps = min(band.taps, _MOST_TAPS)
        self.blocks = -(-band.taps // self.taps)
        if self.blocks * self.taps > band.size:  # so few inputs that a block would reach beyond them
            self.taps, self.blocks = 1, band.taps
        # Every output reads as many inputs; those that would begin too late begin earlier, with weights of zero.
        width = self.blocks * self.taps
        begin = np.minimum(band.first, band.size - width)
        padded = np.zeros((band.out, width), np.int32)
        padded[:, : whole.shape[1]] = whole[:, :width]
        for late in np.flatnonzero(begin != band.first):
            padded[late] = np.roll(padded[late], band.first[late] - begin[late])
        self.begin = copy_of_array(begin, dt.int64)
        self._weights = padded
        self.width = copy_of_array(np.full(band.out, width), dt.int64)

    @cached_property
    def along(self) -> Tensor:
        """The weights [output, tap]."""
        return copy_of_array(self._weights, dt.int32)

    @cached_property
    def across(self) -> Tensor:
        """The weights [tap, output]."""
        return copy_of_array(np.ascontiguousarray(self._weights.T), dt.int32)


@lru_cache(1024)  # random crops of pictures meet every size up to theirs
def _tables(band: Band) -> _Tables:
    within = band.first.min(initial=0) >= 0 and (band.first + band.count).max(initial=0) <= band.size
    return _Tables(band if within else band.inside)


def _weight_bits(largest: float) -> int:
    """The most binary places with which the largest weight still fits 16 bits."""
    bits = 0
    while bits < 22 and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    return bits


def resize_bytes(input: Tensor, bands: Bands) -> Tensor:
    """input (N, C, ...) of uint8 resized along the dimensions after the second; channels that lie last stay there."""
    input = without_gaps(input)
    last = is_last(input)
    pixels = source = (input.movedim(1, -1) if last else input).contiguous()
    for i in reversed(range(len(bands))):
        if not bands[i].is_identity:
            pixels = _along_dimension(pixels, (1 if last else 2) + i, bands[i])
    if pixels is source:
        pixels = source.clone()
    return pixels.movedim(-1, 1) if last else pixels


def _along_dimension(pixels: Tensor, dim: int, band: Band) -> Tensor:
    shape = list(pixels.shape)
    outer, n, inner = numel_of(tuple(shape[:dim])), shape[dim], numel_of(tuple(shape[dim + 1 :]))
    shape[dim] = band.out
    out = empty(make_size(shape), dt.uint8)
    if 0 in shape:
        return out
    tables = _tables(band)
    if inner == 1:
        resize_bytes_along(
            out, pixels, tables.begin, tables.along, outer, n, band.out, tables.blocks, tables.bits,
            taps=tables.taps, several=tables.blocks > 1,
        )  # fmt: skip
    else:
        parts = min(band.out, -(-_TASKS // outer))
        scratch = empty((outer * parts, inner), dt.int32)
        resize_bytes_across(
            out,
            pixels,
            scratch,
            tables.begin,
            tables.width,
            tables.across,
            outer,
            parts,
            n,
            band.out,
            inner,
            tables.bits,
        )
    return out
