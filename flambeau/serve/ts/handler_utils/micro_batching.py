"""Micro-batching: a batch is split into parts whose preprocessing, inference and post-processing overlap in threads."""

from __future__ import annotations

import queue
import threading
from typing import Any

STEPS = ("preprocess", "inference", "postprocess")


class _Stage(threading.Thread):
    """Thread that runs one step of the handler on the micro-batches in its queue, until it is told to stop."""

    def __init__(self, step: Any, source: queue.Queue, target: queue.Queue, local: threading.local):
        super().__init__(daemon=True)
        self.step, self.source, self.target, self.local = step, source, target, local
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                index, data, error = self.source.get(timeout=0.5)
            except queue.Empty:
                continue
            self.local.index = index
            if error is None:
                try:
                    data = self.step(data)
                except BaseException as e:  # raised again where the batch was handed in
                    error = e
            self.target.put((index, data, error))


class MicroBatching:
    """Replacement of a handler's `handle` that splits batches: `self.handle = MicroBatching(self, micro_batch_size=4)`."""

    def __init__(self, parent_handler: Any, micro_batch_size: int = 1, parallelism: dict[str, int] | None = None):
        self.handler = parent_handler
        self.micro_batch_size = micro_batch_size
        self._parallelism = dict(parallelism or {})
        self._queues: list[queue.Queue] = [queue.Queue() for _ in range(len(STEPS) + 1)]
        self._local = threading.local()
        self.thread_groups: dict[str, list[_Stage]] = {step: [] for step in STEPS}
        self._adapt()

    def __del__(self) -> None:
        self.shutdown()

    @property
    def parallelism(self) -> dict[str, int]:
        """The number of threads that run each step."""
        return dict(self._parallelism)

    @parallelism.setter
    def parallelism(self, parallelism: dict[str, int]) -> None:
        if not set(parallelism) <= set(STEPS):
            raise ValueError(f"the steps are {', '.join(STEPS)}, got {sorted(parallelism)}")
        self._parallelism.update(parallelism)
        self._adapt()

    def _adapt(self) -> None:
        for i, step in enumerate(STEPS):
            group, wanted = self.thread_groups[step], self._parallelism.get(step, 1)
            while len(group) < wanted:
                stage = _Stage(getattr(self.handler, step), self._queues[i], self._queues[i + 1], self._local)
                stage.start()
                group.append(stage)
            while len(group) > wanted:
                group[-1].stopping.set()
                group.pop().join()

    def shutdown(self) -> None:
        """Stop the threads."""
        for group in self.thread_groups.values():
            for stage in group:
                stage.stopping.set()

    def get_micro_batch_idx(self) -> int | None:
        """Return the index of the micro-batch that the calling thread is processing."""
        return getattr(self._local, "index", None)

    def handle(self, data: list[Any]) -> list[Any]:
        """Return the answers to a batch, in order."""
        starts = range(0, len(data), self.micro_batch_size)
        for index, start in enumerate(starts):
            self._queues[0].put((index, data[start : start + self.micro_batch_size], None))
        done = sorted((self._queues[-1].get() for _ in starts), key=lambda piece: piece[0])
        for _, _, error in done:
            if error is not None:
                raise error
        return [answer for _, answers, _ in done for answer in answers]

    def __call__(self, data: list[Any], context: Any) -> list[Any]:
        return self.handler.answer(data, context, self.handle)
