"""Main loop of a worker process: receive indices, fetch batches, send them back."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flambeau.backends.cpu.threads import set_num_threads
from flambeau.core.generator import manual_seed

from .channel import ChannelClosed, WorkerEnd
from .failure import Failure
from .fetch import _DatasetKind
from .info import WorkerInfo, get_worker_info, set_worker_info


@dataclass(frozen=True)
class EndOfData:
    """Message that a worker's copy of an iterable dataset has ended."""


@dataclass(frozen=True)
class NextEpoch:
    """Message that makes a persistent worker start over: requests of an earlier epoch are dropped."""

    number: int


@dataclass
class Job:
    """Description of a worker's task, sent to it when it starts."""

    kind: int
    dataset: Any
    auto_collation: bool
    collate_fn: Callable
    drop_last: bool
    base_seed: int
    init_fn: Callable[[int], None] | None
    worker_id: int
    num_workers: int

    def fetcher(self) -> Any:
        return _DatasetKind.create_fetcher(
            self.kind, self.dataset, self.auto_collation, self.collate_fn, self.drop_last
        )


def numpy_seed(base_seed: int, worker_id: int) -> np.ndarray:
    """Return the integers that seed NumPy's global generator in a worker, different from the seeds of the other two."""
    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return np.random.SeedSequence(entropy).generate_state(4)


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Return the words that seed NumPy in a worker, as PyTorch's function of this name does."""
    return numpy_seed(base_seed, worker_id).tolist()


def _prepare(job: Job) -> None:
    set_num_threads(1)
    seed = job.base_seed + job.worker_id
    random.seed(seed)
    manual_seed(seed)
    np.random.seed(numpy_seed(job.base_seed, job.worker_id))
    set_worker_info(WorkerInfo(job.worker_id, job.num_workers, seed, job.dataset))


def worker_loop(job: Job, channel: WorkerEnd) -> None:
    """Serve tasks until the loader closes its end, or is gone."""
    try:
        _Worker(job, channel).run()
    except (ChannelClosed, KeyboardInterrupt):  # a keyboard interrupt reaches the loader's process as well
        pass
    finally:
        channel.close()


class _Worker:
    def __init__(self, job: Job, channel: WorkerEnd):
        self.job, self.channel = job, channel
        self.where = f"in DataLoader worker process {job.worker_id}"
        self.fetcher: Any = None
        self.ended = False
        self.epoch = 0
        self.init_failure: Failure | None = None

    def run(self) -> None:
        _prepare(self.job)
        try:
            if self.job.init_fn is not None:
                self.job.init_fn(self.job.worker_id)
            self.fetcher = self.job.fetcher()
        except Exception as problem:
            self.init_failure = Failure.of(problem, self.where)
        while True:
            message = self.channel.receive()
            if isinstance(message, NextEpoch):
                self._start_epoch(message.number)
            else:
                number, index = message
                self._answer(number, self._result(index))

    def _start_epoch(self, epoch: int) -> None:
        self.epoch, self.ended = epoch, False
        try:
            self.fetcher = self.job.fetcher()
        except Exception as problem:
            self.init_failure = Failure.of(problem, self.where)

    def _result(self, index: Any) -> Any:
        if self.init_failure is not None:
            failure, self.init_failure = self.init_failure, None
            return failure
        if self.ended:
            return EndOfData()
        try:
            return self.fetcher.fetch(index)
        except Exception as problem:
            if isinstance(problem, StopIteration) and self.job.kind == _DatasetKind.Iterable:
                self.ended = True
                return EndOfData()
            return Failure.of(problem, self.where)

    def _answer(self, number: int, result: Any) -> None:
        try:
            self.channel.send(self.epoch, number, result)
        except ChannelClosed:
            raise
        except Exception as problem:  # the batch cannot be pickled, or there is no shared memory left
            self.channel.send(self.epoch, number, Failure.of(problem, self.where))


def __getattr__(name: str) -> Any:
    if name == "_worker_info":
        return get_worker_info()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
