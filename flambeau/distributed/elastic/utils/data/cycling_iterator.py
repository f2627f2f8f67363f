"""Iterator over several epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class CyclingIterator:
    """Iterator over the results of `generator_fn(epoch)` for epochs `start_epoch` to n, one after the other."""

    def __init__(self, n: int, generator_fn: Callable[[int], Iterator], start_epoch: int = 0) -> None:
        self._n, self._epoch, self._generator_fn = n, start_epoch, generator_fn
        self._iter = generator_fn(start_epoch)

    def __iter__(self) -> CyclingIterator:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                return next(self._iter)
            except StopIteration:
                if self._epoch >= self._n - 1:
                    raise
                self._epoch += 1
                self._iter = self._generator_fn(self._epoch)
