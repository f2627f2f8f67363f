"""Resizing images of bytes: integer arithmetic with 16-bit weights, rounded after each dimension, the last one first."""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from ...core import dtype as dt
from ...core.size import make_size
from ...core.tensor import Tensor, empty, numel_of
from ...kernels.library.pixels import resize_bytes_across, resize_bytes_along
from ..machinery.declare import internal
from ..machinery.inplace import raw_copy
from ..machinery.memory import Table, bare, is_last, layout_like, without_gaps
from ..machinery.record import NewTensor
from .band import Band
from .resample import Outlines

_TASKS = 16  # pieces that can run at the same time
_MOST_TAPS = 8  # inputs summed in one go; kernels are compiled for each number up to it


class _Tables:
    """A band in integers, in the form the kernels read."""

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
        self.begin = Table(begin, dt.int64)
        self._weights = padded
        self.width = Table(np.full(band.out, width), dt.int64)

    @cached_property
    def along(self) -> Table:
        """Return the weights as [output, tap]."""
        return Table(self._weights, dt.int32)

    @cached_property
    def across(self) -> Table:
        """Return the weights as [tap, output]."""
        return Table(np.ascontiguousarray(self._weights.T), dt.int32)


@lru_cache(1024)  # random crops of images meet every size up to theirs
def _tables(band: Band) -> _Tables:
    within = band.first.min(initial=0) >= 0 and (band.first + band.count).max(initial=0) <= band.size
    return _Tables(band if within else band.inside)


def _weight_bits(largest: float) -> int:
    """Return the most binary places with which the largest weight still fits 16 bits."""
    bits = 0
    while bits < 22 and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    return bits


@internal(batching="each")
def resize_bytes(input: Tensor, bands: Outlines) -> NewTensor:
    """input (N, C, ...) of uint8 resized along the dimensions after the second; channels that are last stay there."""
    return layout_like(input, (*input.shape[:2], *(b.out for b in bands)))


@resize_bytes.on("any")
def _(out: Tensor, input: Tensor, bands: Outlines) -> None:
    source = without_gaps(input)
    last = is_last(source)
    pixels, target = (bare(t.movedim(1, -1) if last else t) for t in (source, out))
    todo = [i for i in reversed(range(len(bands))) if not bands[i].band.is_identity]
    if not todo:
        raw_copy(out, source)
    for i in todo:
        dim, shape = (1 if last else 2) + i, list(pixels.shape)
        shape[dim] = bands[i].out
        step = target if i == todo[-1] else empty(make_size(shape), dt.uint8, out.device)
        _along_dimension(step, pixels, dim, bands[i].band)
        pixels = step


def _along_dimension(out: Tensor, pixels: Tensor, dim: int, band: Band) -> None:
    shape, where = pixels.shape, out.device
    outer, n, inner = numel_of(shape[:dim]), shape[dim], numel_of(shape[dim + 1 :])
    tables = _tables(band)
    if inner == 1:
        resize_bytes_along(
            out, pixels, tables.begin.on(where), tables.along.on(where), outer, n, band.out, tables.blocks, tables.bits,
            taps=tables.taps, several=tables.blocks > 1,
        )  # fmt: skip
    else:
        parts = min(band.out, -(-_TASKS // outer))
        scratch = empty((outer * parts, inner), dt.int32, where)
        resize_bytes_across(
            out, pixels, scratch, tables.begin.on(where), tables.width.on(where), tables.across.on(where), outer, parts, n,
            band.out, inner, tables.bits,
        )  # fmt: skip
