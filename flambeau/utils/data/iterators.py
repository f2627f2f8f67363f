"""Iterators over a DataLoader, in this process or with workers."""

from __future__ import annotations

import itertools
import multiprocessing
import time
import warnings
from collections.abc import Iterator
from typing import Any

from ...core.modes import named_range
from ._utils.failure import Failure
from ._utils.fetch import _DatasetKind
from ._utils.pin_memory import accelerator_available, pin_memory
from ._utils.team import Team
from ._utils.worker import EndOfData, Job, NextEpoch
from .sampler import draw_seed


class _BaseDataLoaderIter:
    """Base of both iterators over a DataLoader: the indices, the seed, the warnings."""

    def __init__(self, loader: Any):
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._pin_memory = loader.pin_memory and self._can_pin(loader)
        self._sampler_iter: Iterator = iter(self._index_sampler)
        self._base_seed = draw_seed(loader.generator)
        self._announced = loader._IterableDataset_len_called  # None unless someone asked for the length
        self._num_yielded = 0

    @staticmethod
    def _can_pin(loader: Any) -> bool:
        if loader.pin_memory_device:
            warnings.warn(
                "pin_memory_device is deprecated, the current accelerator will be used as the device, ignore"
                f" pin_memory_device='{loader.pin_memory_device}'.",
                stacklevel=5,
            )
        if accelerator_available():
            return True
        warnings.warn(
            "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
            stacklevel=5,
        )
        return False

    def _reset(self, loader: Any) -> None:
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._announced = loader._IterableDataset_len_called

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __next__(self) -> Any:
        with named_range(f"enumerate(DataLoader)#{type(self).__name__}.__next__"):
            data = self._next_data()
            if self._pin_memory:
                data = pin_memory(data)
        self._num_yielded += 1
        if self._announced is not None and self._num_yielded > self._announced:
            self._warn_of_length()
        return data

    def _next_data(self) -> Any:
        raise NotImplementedError

    def _warn_of_length(self) -> None:
        message = (
            f"Length of IterableDataset {self._dataset} was reported to be {self._announced} (when accessing"
            f" len(dataloader)), but {self._num_yielded} samples have been fetched. "
        )
        if self._num_workers > 0:
            message += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset"
                " replica at each worker: see get_worker_info()."
            )
        warnings.warn(message, stacklevel=3)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Iterator whose batches this process makes, on demand."""

    def __init__(self, loader: Any):
        super().__init__(loader)
        if loader.timeout != 0:
            raise AssertionError(f"_SingleProcessDataLoaderIter requires timeout == 0, but got {loader.timeout}")
        self._fetcher = _DatasetKind.create_fetcher(
            self._dataset_kind, self._dataset, loader._auto_collation, loader.collate_fn, loader.drop_last
        )

    def _next_data(self) -> Any:
        return self._fetcher.fetch(next(self._sampler_iter))


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Iterator whose batches workers make. Tasks are numbered; task n is answered by batch n, which waits for its turn in `_ready` (with
    in_order=False there are no turns). At most `prefetch_factor` tasks per worker are pending."""

    def __init__(self, loader: Any):
        super().__init__(loader)
        self._timeout = loader.timeout
        self._in_order = loader.in_order
        self._persistent = loader.persistent_workers
        self._ahead = loader.prefetch_factor * loader.num_workers
        if self._ahead <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")
        self._epoch = 0
        jobs = [
            Job(
                self._dataset_kind,
                self._dataset,
                loader._auto_collation,
                loader.collate_fn,
                loader.drop_last,
                self._base_seed,
                loader.worker_init_fn,
                worker_id,
                self._num_workers,
            )
            for worker_id in range(self._num_workers)
        ]
        self._team = Team(loader.multiprocessing_context or multiprocessing.get_context(), jobs)
        self._begin(loader)

    def alive(self) -> bool:
        return self._team.stop.alive

    def _reset(self, loader: Any) -> None:
        self._epoch += 1  # answers to questions of an earlier epoch are recognised by its number
        for worker in range(self._num_workers):
            self._team.send(worker, NextEpoch(self._epoch))
        self._begin(loader)

    def _begin(self, loader: Any) -> None:
        super()._reset(loader)
        self._sent = 0  # number of the next task
        self._turn = 0  # number of the next batch to hand out
        self._tasks: dict[int, int] = {}  # under way: task -> worker
        self._ready: dict[int, Any] = {}
        self._active = [True] * self._num_workers
        self._load = [0] * self._num_workers
        self._rota = itertools.cycle(range(self._num_workers))
        self._more_indices = True
        for _ in range(self._ahead):
            self._send_task()

    def _send_task(self) -> None:
        """Send the next indices to the next worker that still has data."""
        if not self._more_indices or (worker := self._next_worker()) is None:
            return
        try:
            index = next(self._sampler_iter)
        except StopIteration:
            self._more_indices = False
            return
        self._team.send(worker, (self._sent, index))
        self._tasks[self._sent] = worker
        self._load[worker] += 1
        self._sent += 1

    def _next_worker(self) -> int | None:
        for worker in itertools.islice(self._rota, self._num_workers):
            if self._active[worker] and (self._in_order or self._load[worker] < self._ahead // sum(self._active)):
                return worker
        return None

    def _next_data(self) -> Any:
        while True:
            if self._in_order:
                while self._turn < self._sent and self._turn not in self._tasks and self._turn not in self._ready:
                    self._turn += 1  # a task that met the end of an iterable dataset
                number = self._turn
            else:
                number = next(iter(self._ready), -1)
            if number in self._ready:
                return self._take_result(number)
            if not self._tasks:
                if not self._persistent:
                    self._team.stop()
                raise StopIteration
            self._collect()

    def _take_result(self, number: int) -> Any:
        data = self._ready.pop(number)
        if self._in_order:
            self._turn += 1
        self._send_task()
        if isinstance(data, Failure):
            data.reraise()
        return data

    def _collect(self) -> None:
        """Wait for answers and store them by number."""
        deadline = time.monotonic() + self._timeout if self._timeout > 0 else None
        heard = False
        for epoch, number, data in self._team.receive(deadline):
            heard = True
            if epoch != self._epoch:
                continue
            worker = self._tasks.pop(number)
            self._load[worker] -= 1
            if isinstance(data, EndOfData):
                self._active[worker] = False
                self._send_task()
            else:
                self._ready[number] = data
        if not heard:
            self._team.hurry()
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
