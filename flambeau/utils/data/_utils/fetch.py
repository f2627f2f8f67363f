"""Fetching of a batch by indices, in the loader's process and in workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dataset import Subset, TensorDataset
from .collate import default_collate, gather_rows


class IterableFetcher:
    """Fetches batches of an iterable dataset: indices only determine the number of samples."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool):
        self.auto_collation, self.collate_fn, self.drop_last = auto_collation, collate_fn, drop_last
        self.dataset_iter = iter(dataset)
        self.ended = False

    def fetch(self, index: Any) -> Any:
        """Return the next batch; raises StopIteration when the data has ended."""
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        samples = []
        for _ in index:
            try:
                samples.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not samples or (self.drop_last and len(samples) < len(index)):
            raise StopIteration
        return self.collate_fn(samples)


class MapFetcher:
    """Fetches batches of a dataset with indices."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool):
        self.dataset, self.auto_collation, self.collate_fn = dataset, auto_collation, collate_fn
        self.getitems = getattr(dataset, "__getitems__", None)

    def fetch(self, index: Any) -> Any:
        if not self.auto_collation:
            return self.collate_fn(self.dataset[index])
        if self.collate_fn is default_collate:
            batch = _gather_rows(self.dataset, index)
            if batch is not None:
                return batch
        if self.getitems:
            return self.collate_fn(self.getitems(index))
        dataset = self.dataset
        return self.collate_fn([dataset[i] for i in index])


def _gather_rows(dataset: Any, index: Any) -> list | None:
    """Return the batch of a TensorDataset, or a subset of one, in one operation: the same as collating its samples one by one.
    None if that might differ (a subclass may have its own samples, indices may be anything)."""
    while type(dataset) is Subset and type(dataset.indices) in (list, range):
        indices = dataset.indices
        try:
            index = [indices[i] for i in index]
        except (IndexError, TypeError):
            return None
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or "__getitem__" in dataset.__dict__:
        return None
    return gather_rows(dataset.tensors, index)


class _DatasetKind:
    """Kinds of datasets: with indices (Map), or iterated (Iterable)."""

    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(kind: int, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> Any:
        fetcher = MapFetcher if kind == _DatasetKind.Map else IterableFetcher
        return fetcher(dataset, auto_collation, collate_fn, drop_last)
