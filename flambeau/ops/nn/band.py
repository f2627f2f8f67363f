"""Linear maps along one dimension in which each output is a weighted sum of a few neighbouring inputs.

A Band is such a map as tables, made once per size and cached. Averages (`divisors`), interpolation (`weights`) and the transposes of both are
bands; applying one along several dimensions is `resample`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core import watching
from ...core.device import device
from ...core.dtype import dtype
from ...core.tensor import Tensor
from ..machinery.memory import Table

_MOST_STEPS = 8  # larger windows and strides are not worth a kernel of their own


class Outline:
    """The sizes of a band, how to make it, and from what settings: tensors without values need only this, however large they are."""

    def __init__(self, size: int, out: int, make: Callable[[], Band], settings: tuple[Any, ...]):
        self.size, self.out, self._make, self.settings = size, out, make, settings

    @cached_property
    def band(self) -> Band:
        return self._make()

    @cached_property
    def transposed(self) -> Outline:
        result = Outline(self.out, self.size, lambda: self.band.transposed, self.settings)
        result.__dict__["transposed"] = self  # the other way round is known
        return result


def outlined(most: int) -> Callable[[Callable[..., Band]], Callable[..., Outline]]:
    """Decorator for a function that makes bands from size, number of outputs and more: it caches at most `most` outlines, and their bands are
    made when a kernel needs them."""

    def declare(make: Callable[..., Band]) -> Callable[..., Outline]:
        @lru_cache(most)
        def outline(size: int, out: int, *rest: Any) -> Outline:
            return Outline(size, out, lambda: make(size, out, *rest), rest)

        return outline

    return declare


class Band:
    """A sparse linear map: output o is the sum over k < count[o] of weights[o, k] * input[first[o] + k], or the plain sum over divisors[o].
    Inputs outside repeat the border."""

    def __init__(
        self,
        size: int,
        first: np.ndarray,
        count: np.ndarray,
        weights: np.ndarray | None = None,
        divisors: np.ndarray | None = None,
    ):
        self.size, self.first, self.count = size, first.astype(np.int64), count.astype(np.int64)
        self.weights, self.divisors = weights, divisors
        self.out = len(first)
        self._tables: dict[tuple[dtype, device], tuple[Tensor, Tensor, Tensor]] = {}

    @property
    def flat(self) -> bool:
        return self.weights is None

    @cached_property
    def taps(self) -> int:
        return int(self.count.max(initial=1))

    @cached_property
    def is_identity(self) -> bool:
        if self.out != self.size or not self.picks:
            return False
        return bool((self.first == np.arange(self.size)).all())

    @cached_property
    def picks(self) -> bool:
        """Return whether every output is a copy of one input."""
        factors = self.divisors if self.weights is None else self.weights
        return bool((self.count == 1).all() and factors is not None and (factors == 1).all())

    @cached_property
    def repeat(self) -> int:
        """Return how often a picking band repeats each input in turn; 0 if it does something else."""
        times = self.out // self.size if self.size else 0
        if not self.picks or times * self.size != self.out or not 1 <= times <= _MOST_STEPS:
            return 0
        return times if (self.first == np.arange(self.out) // times).all() else 0

    def tables(self, d: dtype, where: device) -> tuple[Tensor, Tensor, Tensor]:
        """Return first, count, and weights [tap, output] or divisors, for kernels that compute in `d`."""
        found = self._tables.get((d, where))
        if found is None:
            factors: Any = self.divisors if self.weights is None else self.weights.T
            found = self._tables[d, where] = (
                Table(self.first, dt.int64).on(where),
                Table(self.count, dt.int64).on(where),
                Table(np.ascontiguousarray(factors, d.numpy), d).on(where),
            )
        if watching.active:
            for table in found:
                watching.tell_constant(table)
        return found

    @cached_property
    def steps(self) -> tuple[int, int, int] | None:
        """Return (step, lead, taps) if output o reads `taps` inputs from o * step - lead on, those outside counting as zero; None if not."""
        if self.out < 2 or self.count.min() < 1:
            return None
        place, last = np.arange(self.out), self.first + self.count
        middle = self.out // 2
        step = int(self.first[middle] - self.first[middle - 1])
        lead = int((place * step - self.first).max())
        start = place * step - lead
        taps = int((last - start).max())
        if not (1 <= step <= _MOST_STEPS and 1 <= taps <= _MOST_STEPS and lead >= 0):
            return None
        # Inputs of a window of `taps` beyond its own must be outside the line.
        before_ok = (start == self.first) | (self.first == 0)
        after_ok = (start + taps == last) | (last == self.size)
        inside = (self.first >= 0) & (last <= self.size)
        return (step, lead, taps) if bool((before_ok & after_ok & inside).all()) else None

    @cached_property
    def stepped(self) -> Band:
        """Return this band with tables for the inputs that `steps` gives."""
        assert self.steps is not None
        if self.weights is None:
            return self
        step, lead, taps = self.steps
        first = np.arange(self.out) * step - lead
        weights = np.zeros((self.out, taps))
        rows, columns, values = self._entries()
        weights[rows, columns - first[rows]] = values
        return Band(self.size, first, np.full(self.out, taps), weights)

    def _entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return outputs, inputs and weights of all nonzero entries; those at the border are not yet added up."""
        rows = np.repeat(np.arange(self.out), self.count)
        taps = np.arange(len(rows)) - np.repeat(np.cumsum(self.count) - self.count, self.count)
        columns = np.clip(self.first[rows] + taps, 0, max(self.size - 1, 0))
        if self.weights is None:
            assert self.divisors is not None
            return rows, columns, 1 / self.divisors[rows]
        return rows, columns, self.weights[rows, taps]

    @cached_property
    def inside(self) -> Band:
        """Return this band with the weights of inputs outside added to the border's."""
        rows, columns, values = self._entries()
        first = np.clip(self.first, 0, self.size - 1)
        last = np.clip(self.first + self.count - 1, 0, self.size - 1)
        weights = np.zeros((self.out, self.taps))
        np.add.at(weights, (rows, columns - first[rows]), values)
        return Band(self.size, first, last - first + 1, weights)

    @cached_property
    def weighted(self) -> Band:
        """Return this band with weights in place of divisors."""
        if self.weights is not None:
            return self
        rows, _, values = self._entries()
        taps = np.arange(len(rows)) - np.repeat(np.cumsum(self.count) - self.count, self.count)
        weights = np.zeros((self.out, self.taps))
        weights[rows, taps] = values
        return Band(self.size, self.first, self.count, weights)

    @cached_property
    def transposed(self) -> Band:
        rows, columns, values = self._entries()
        low = np.full(self.size, self.out)
        high = np.full(self.size, -1)
        np.minimum.at(low, columns, rows)
        np.maximum.at(high, columns, rows)
        count = np.maximum(high - low + 1, 0)
        first = np.where(count > 0, low, 0)
        weights = np.zeros((self.size, int(count.max(initial=1)) or 1))
        np.add.at(weights, (columns, rows - first[columns]), values)
        result = Band(self.out, first, count, weights)
        result.__dict__["transposed"] = self  # the other way round is known
        return result
