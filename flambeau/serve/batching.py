"""Batching: which waiting requests go to a worker together.

A `Batcher` holds a model's waiting jobs. `offer` accepts or refuses one; `take` returns a worker's next batch, or how long to
wait for more; `done` is told the outcome of each job. The kinds differ in what a batch may hold:

    Batcher              up to batch_size jobs, the oldest at most max_batch_delay ms old
    ContinuousBatcher    a worker keeps its unfinished jobs: each step of generation is a batch of those and of new ones
    SequenceBatcher      one job of each sequence, and all jobs of a sequence to the same worker, in order
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from .job import Job
from .settings import ModelSettings

Batch = list[Job]


class Batcher:
    """Dynamic batching: the batch leaves when it is full, or when its oldest job has waited long enough."""

    def __init__(self, settings: ModelSettings):
        self.settings = settings
        self.waiting: deque[Job] = deque()

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def ahead(self) -> bool:
        """Return whether a full batch waits that could be sent to a busy worker."""
        return len(self.waiting) >= self.settings.batch_size and not self.waiting[0].describe

    def offer(self, job: Job) -> bool:
        """Queue a job; return False if there is no room."""
        if len(self.waiting) >= self.settings.job_queue_size:
            return False
        self.waiting.append(job)
        return True

    def give_back(self, jobs: Batch) -> None:
        """Return jobs that no worker has seen to the front of the queue."""
        self.waiting.extendleft(reversed(jobs))

    def _drop_abandoned(self) -> None:
        """Remove jobs whose clients have left or waited too long."""
        waiting, now = self.waiting, time.perf_counter()
        while waiting and (waiting[0].expires < now or not waiting[0].is_open()):
            waiting.popleft()

    def take(self, worker: Any) -> Batch | float:
        """Return the next batch for a free worker, the seconds to wait for more jobs, or an empty batch."""
        self._drop_abandoned()
        waiting, settings = self.waiting, self.settings
        if not waiting:
            return []
        if waiting[0].describe:
            return [waiting.popleft()]
        if len(waiting) < settings.batch_size:
            left = settings.max_batch_delay / 1000 - (time.perf_counter() - waiting[0].created)
            if left > 0 and settings.batch_size > 1:
                return left
        return self.collect(settings.batch_size)

    def collect(self, room: int) -> Batch:
        """Remove and return the next jobs, at most `room`, without those whose clients have gone."""
        batch: Batch = []
        if len(self.waiting) > 1 and self.waiting[0].may_wait():
            self.waiting = deque(sorted(self.waiting, key=lambda job: job.may_wait()))
        waiting, now = self.waiting, time.perf_counter()
        while waiting and len(batch) < room and not waiting[0].describe:
            job = waiting.popleft()
            if job.expires >= now and job.is_open():
                batch.append(job)
        return batch

    def done(self, worker: Any, job: Job, headers: dict[str, str], more: bool) -> None:
        """Hook for subclasses: a job has been answered, completely or (with `more`) in part."""

    def lost(self, worker: Any) -> None:
        """Forget the jobs that a lost worker held."""

    def drain(self) -> Batch:
        """Remove and return all waiting jobs, because the model is being removed."""
        jobs = list(self.waiting)
        self.waiting.clear()
        return jobs


class ContinuousBatcher(Batcher):
    """Batcher for streams: jobs whose answer has `ts_stream_next: true` stay in the worker's batch, new ones replace those that end."""

    ahead = False  # the next batch depends on the answers to this one

    def __init__(self, settings: ModelSettings):
        super().__init__(settings)
        self.held: dict[Any, dict[str, Job]] = {}

    def take(self, worker: Any) -> Batch | float:
        held = self.held.setdefault(worker, {})
        for job in [j for j in held.values() if not j.is_open()]:
            del held[job.id]
        if not held:
            batch = super().take(worker)
            if isinstance(batch, float):
                return batch
        else:
            batch = self.collect(self.settings.batch_size - len(held))
        if not (batch and batch[0].describe):
            batch = [*held.values(), *batch]
            held.update((job.id, job) for job in batch)
        return batch

    def done(self, worker: Any, job: Job, headers: dict[str, str], more: bool) -> None:
        if more:
            job.cached = True
        else:
            self.held.get(worker, {}).pop(job.id, None)

    def lost(self, worker: Any) -> None:
        self.held.pop(worker, None)


class _Sequence:
    """The waiting jobs of one sequence, and the worker that has its state."""

    __slots__ = ("jobs", "worker", "busy", "expires", "idle_since")

    def __init__(self, timeout_ms: int):
        now = time.monotonic()
        self.jobs: deque[Job] = deque()
        self.worker: Any = None
        self.busy = False
        self.expires = now + timeout_ms / 1000 if timeout_ms > 0 else float("inf")
        self.idle_since = now


class SequenceBatcher(Batcher):
    """Batcher for stateful models: a sequence belongs to the worker that took its first job, until it ends or has been idle too long."""

    ahead = False  # a sequence's jobs must not overtake each other

    def __init__(self, settings: ModelSettings, keys: tuple[str, str, str]):
        super().__init__(settings)
        _, self.start_key, self.end_key = keys
        self.sequences: dict[str, _Sequence] = {}
        self.closed: dict[str, None] = {}  # the last ones that ended: what comes for them later is refused

    def __len__(self) -> int:
        return len(self.waiting) + sum(len(s.jobs) for s in self.sequences.values())

    def offer(self, job: Job) -> bool:
        if not job.sequence:
            return super().offer(job)
        self._close_idle()
        sequence = self.sequences.get(job.sequence)
        if sequence is None:
            starts = job.headers.get(self.start_key, "").lower() == "true"
            if len(self.sequences) >= self.settings.max_num_sequence or (job.sequence in self.closed and not starts):
                return False
            self.closed.pop(job.sequence, None)
            sequence = self.sequences[job.sequence] = _Sequence(self.settings.sequence_timeout_ms)
        if len(sequence.jobs) >= self.settings.max_sequence_job_queue_size:
            return False
        sequence.jobs.append(job)
        return True

    def give_back(self, jobs: Batch) -> None:
        for job in reversed(jobs):
            if sequence := self.sequences.get(job.sequence):
                sequence.busy = False
                sequence.jobs.appendleft(job)
            elif not job.sequence:
                self.waiting.appendleft(job)

    def _close_idle(self) -> None:
        now, idle = time.monotonic(), self.settings.sequence_max_idle_ms / 1000
        for name, s in list(self.sequences.items()):
            if now > s.expires or (not s.busy and not s.jobs and now - s.idle_since > idle):
                self._close(name, 503, "The sequence has expired.")

    def _close(self, name: str, status: int, words: str) -> None:
        """End a sequence; its waiting jobs fail with this status and message."""
        sequence = self.sequences.pop(name, None)
        if sequence is None:
            return
        self.closed[name] = None
        if len(self.closed) > 4096:
            del self.closed[next(iter(self.closed))]
        for job in sequence.jobs:
            job.fail(status, words)

    def take(self, worker: Any) -> Batch | float:
        self._close_idle()
        ready = [s for s in self.sequences.values() if s.jobs and not s.busy and s.worker in (None, worker)]
        if not ready:
            return super().take(worker)
        room = self.settings.batch_size
        if len(ready) < room:
            oldest = min(s.jobs[0].created for s in ready)
            left = self.settings.max_batch_delay / 1000 - (time.perf_counter() - oldest)
            if left > 0:
                return left
        batch = []
        for sequence in ready[:room]:
            sequence.worker, sequence.busy = worker, True
            batch.append(sequence.jobs.popleft())
        return batch

    def done(self, worker: Any, job: Job, headers: dict[str, str], more: bool) -> None:
        ended = [name.strip() for name in headers.get(self.end_key, "").split(";")]
        sequence = self.sequences.get(job.sequence)
        if sequence is not None and not more:
            sequence.busy = False
            sequence.idle_since = time.monotonic()
        if job.headers.get(self.end_key, "").lower() == "true" and not more:
            ended.append(job.sequence)
        for name in ended:
            self._close(name, 503, "The sequence has ended.")

    def lost(self, worker: Any) -> None:
        """Fail the jobs of sequences whose state was lost with their worker."""
        for name, s in list(self.sequences.items()):
            if s.worker is worker:
                self._close(name, 500, "Worker died.")

    def drain(self) -> Batch:
        jobs = super().drain() + [job for s in self.sequences.values() for job in s.jobs]
        self.sequences.clear()
        return jobs


class ContinuousSequenceBatcher(SequenceBatcher):
    """Batcher of sequences with continuous batching: a worker gets another step while any of its jobs has more to come."""

    def __init__(self, settings: ModelSettings, keys: tuple[str, str, str]):
        super().__init__(settings, keys)
        self.held: dict[Any, dict[str, Job]] = {}

    def take(self, worker: Any) -> Batch | float:
        held = self.held.setdefault(worker, {})
        for job in [j for j in held.values() if not j.is_open()]:
            del held[job.id]
        self._close_idle()
        room = 2 * self.settings.batch_size - len(held)
        ready = [s for s in self.sequences.values() if s.jobs and not s.busy and s.worker in (None, worker)]
        if not ready and not held:
            return Batcher.take(self, worker)
        for sequence in ready[: max(room, 0)]:
            sequence.worker, sequence.busy = worker, True
            job = sequence.jobs.popleft()
            held[job.id] = job
        return list(held.values())

    def done(self, worker: Any, job: Job, headers: dict[str, str], more: bool) -> None:
        if more:  # a later request of the sequence may change or stop this one: it joins the next step
            job.cached = True
            if sequence := self.sequences.get(job.sequence):
                sequence.busy = False
        else:
            self.held.get(worker, {}).pop(job.id, None)
        super().done(worker, job, headers, more)

    def lost(self, worker: Any) -> None:
        self.held.pop(worker, None)
        super().lost(worker)


def batcher_for(settings: ModelSettings, keys: tuple[str, str, str]) -> Batcher:
    """Return the batcher for a model's settings. `keys` are the names of the headers of sequences: id, start, end."""
    if settings.sequence_batching:
        kind = ContinuousSequenceBatcher if settings.continuous_batching else SequenceBatcher
        return kind(settings, keys)
    return ContinuousBatcher(settings) if settings.continuous_batching else Batcher(settings)
