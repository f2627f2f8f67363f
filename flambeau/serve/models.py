"""A registered model: its settings, the jobs that wait for it, and its workers."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any, Protocol

from .archive_reader import ModelArchive, file_name_of
from .batching import batcher_for
from .job import Job
from .nursery import Nursery
from .pool import LOADED, Worker
from .settings import ModelSettings, Settings


class Owner(Protocol):
    """The interface of the server that its models use."""

    settings: Settings
    nursery: Nursery

    @property
    def work_folder(self) -> Path: ...

    def background(self, work: Any) -> None: ...
    def model_output(self, worker: Worker, line: str, is_error: bool) -> None: ...
    def model_metrics(self, lines: list[str]) -> None: ...
    def worker_time(self, milliseconds: float) -> None: ...
    def worker_loaded(self, worker: Worker, milliseconds: float) -> None: ...
    def changed(self) -> None: ...
    def next_worker(self) -> int: ...
    def next_gpu(self, model: Model) -> int | None: ...


class Model:
    """A version of a model: its archive and settings, the jobs that wait for it, and its workers."""

    def __init__(self, archive: ModelArchive, settings: ModelSettings, owner: Owner):
        self.archive, self.settings, self.pool_owner = archive, settings, owner
        self.name, self.version = archive.name, archive.version
        self.workers: list[Worker] = []
        self.batcher = batcher_for(settings, owner.settings.sequence_keys)
        self.min_workers = self.max_workers = 0
        self.max_response_size = owner.settings.number("max_response_size", 6_553_500)
        self.python: str | None = None  # of the model's own environment
        self.packages: list[str] = []  # folders with packages of its own
        self.in_workflow = False
        self.why = ""  # what the last worker said that could not load the model
        self.example = ""  # a request that it answers, if a worker was asked for one: JSON of a content type and a body
        self.unsuccessful = 0  # batches in a row that no worker answered in time
        self.gpu_turn = 0
        self._is_closed = False
        self._pending: list[tuple[set[Worker], asyncio.Future[int]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._scaling = asyncio.Lock()
        self.latencies: list[float] = []  # of the last requests, in ms: what the page draws

    # -- jobs --

    def submit(self, job: Job) -> bool:
        """Queue a job; return False if it cannot be served: no workers, a full queue, or no free worker where job tickets are in use."""
        if not self.workers:
            return False
        if self.settings.use_job_ticket and sum(w.idle for w in self.workers) <= len(self.batcher):
            return False
        ahead = sum(len(w.batches) - 1 for w in self.workers if len(w.batches) > 1)  # these jobs wait, too
        if ahead and len(self.batcher) + ahead * self.settings.batch_size >= self.settings.job_queue_size:
            return False
        if not self.batcher.offer(job):
            return False
        self.pump()
        return True

    def pump(self) -> None:
        """Send waiting jobs to free workers, and full batches ahead to fast ones."""
        for worker in self.workers:
            if not worker.idle:
                continue
            batch = self.batcher.take(worker)
            if isinstance(batch, float):
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(batch, self._end_batch_delay)
            elif batch:
                worker.send(batch)
        while self.batcher.ahead:
            eager = [w for w in self.workers if w.takes_more]
            if not eager:
                return
            min(eager, key=lambda w: len(w.batches)).send(self.batcher.collect(self.settings.batch_size))

    def _end_batch_delay(self) -> None:
        self._timer = None
        self.pump()

    # -- what workers tell --

    def order(self, number: int, gpu: int | None) -> dict[str, Any]:
        """Return the message that starts a new worker."""
        settings = self.pool_owner.settings
        return {
            "name": f"{number}-{time.monotonic_ns()}",
            "model": self.name,
            "folder": str(self.archive.folder),
            "packages": self.packages,
            "manifest": self.archive.manifest,
            "handler": self.archive.handler,
            "envelope": self.archive.model.get("envelope"),
            "batch_size": self.settings.batch_size,
            "processes": max(self.settings.parallel_level, 1) if self.settings.parallel_type else 1,
            "gpu": gpu,
            "limit_max_image_pixels": settings.flag("limit_max_image_pixels", True),
            "metrics_config": settings.text("metrics_config"),
            "example": settings.flag("show_examples", False),
            "environment": settings.worker_environment(),
        }

    def on_loaded(self, worker: Worker) -> None:
        self.pool_owner.worker_loaded(worker, (time.time() - worker.started) * 1000)
        for workers, future in list(self._pending):
            workers.discard(worker)
            if not workers and not future.done():
                future.set_result(200)
        self._pending = [p for p in self._pending if not p[1].done()]
        self.pump()

    def on_stopped(self, worker: Worker, code: int) -> None:
        for workers, future in self._pending:
            if worker in workers and not future.done():
                future.set_result(code)
        self._pending = [p for p in self._pending if not p[1].done()]

    def on_answered(self, worker: Worker, seconds: float) -> None:
        self.pool_owner.worker_time(seconds * 1000)
        self.pump()

    def on_metrics(self, lines: list[str]) -> None:
        if lines:
            self.pool_owner.model_metrics(lines)

    # -- how many --

    async def scale(self, minimum: int, maximum: int) -> int:
        """Start or stop workers; return 200 when the new ones have loaded the model, or an error's status if one could not."""
        async with self._scaling:
            if self._is_closed:  # asked for before it was unregistered, and come to its turn only now
                minimum = maximum = 0
            self.min_workers, self.max_workers = minimum, maximum
            missing = minimum - len(self.workers)
            if missing > 0:
                new = [
                    Worker(self, self.pool_owner.next_worker(), self.pool_owner.next_gpu(self)) for _ in range(missing)
                ]
                self.workers += new
                future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
                self._pending.append((set(new), future))
                for worker in new:
                    self.pool_owner.background(worker.start())
                return await future
            await self._stop_workers(len(self.workers) - maximum)
            return 200

    async def _stop_workers(self, count: int) -> None:
        leaving = [self.workers.pop() for _ in range(max(count, 0))]
        for worker in leaving:
            worker.scale_down()
        deadline = time.monotonic() + self.pool_owner.settings.number("unregister_model_timeout", 120)
        while not all(w.has_ended for w in leaving) and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        for worker in leaving:
            worker.kill()

    async def close(self) -> None:
        """Stop all workers after their batches; waiting jobs fail, because the model has been removed."""
        self._is_closed = True
        for worker in self.workers:
            if worker.state != LOADED:  # whoever waits until it has loaded the model need not
                worker.scale_down()
        await self.scale(0, 0)
        for job in self.batcher.drain():
            job.fail(503, f'Model "{self.name}" is being unregistered.')
        await asyncio.to_thread(self.archive.clean)

    def check(self, now: float) -> None:
        for worker in self.workers:
            worker.check(now)

    # -- words about it --

    def describe(self, at_startup: bool) -> dict[str, Any]:
        """Return the description that `GET /models/{name}` shows."""
        s = self.settings
        result = {
            "modelName": self.name,
            "modelVersion": self.version,
            "modelUrl": self.archive.url,
            "runtime": self.archive.runtime,
            "minWorkers": self.min_workers,
            "maxWorkers": self.max_workers,
            "batchSize": s.batch_size,
            "maxBatchDelay": s.max_batch_delay,
            "responseTimeout": s.response_timeout,
            "startupTimeout": s.startup_timeout,
            "maxRetryTimeoutInSec": s.max_retry_timeout,
            "clientTimeoutInMills": s.client_timeout_ms,
            "parallelType": s.parallel_type,
            "parallelLevel": s.parallel_level,
            "deviceType": s.device_type,
            **({"deviceIds": s.device_ids} if s.device_ids else {}),
            "continuousBatching": s.continuous_batching,
            "useJobTicket": s.use_job_ticket,
            "useVenv": s.use_venv,
            "stateful": s.sequence_batching,
            "sequenceMaxIdleMSec": s.sequence_max_idle_ms,
            "sequenceTimeoutMSec": s.sequence_timeout_ms,
            "maxNumSequence": s.max_num_sequence if s.sequence_batching else 0,
            "maxSequenceJobQueueSize": s.max_sequence_job_queue_size if s.sequence_batching else 0,
            "loadedAtStartup": at_startup,
            "workers": [_describe_worker(w) for w in self.workers],
            "jobQueueStatus": {
                "remainingCapacity": max(s.job_queue_size - len(self.batcher), 0),
                "pendingRequests": len(self.batcher),
            },
        }
        return {k: v for k, v in result.items() if v is not None}

    def state(self, is_default: bool) -> dict[str, Any]:
        """Return the state that a snapshot stores."""
        s = self.settings
        return {
            "defaultVersion": is_default,
            "marName": file_name_of(self.archive.url or ""),
            "minWorkers": self.min_workers,
            "maxWorkers": self.max_workers,
            "batchSize": s.batch_size,
            "maxBatchDelay": s.max_batch_delay,
            "responseTimeout": s.response_timeout,
            "startupTimeout": s.startup_timeout,
            "runtimeType": self.archive.runtime,
            **({"parallelLevel": s.parallel_level} if s.parallel_level else {}),
        }


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _describe_worker(worker: Worker) -> dict[str, Any]:
    at = time.gmtime(worker.started)
    millis = int(worker.started * 1000) % 1000
    return {
        "id": str(worker.number),
        "startTime": time.strftime(f"%Y-%m-%dT%H:%M:%S.{millis:03d}Z", at),
        "status": "READY" if worker.state == LOADED else "UNLOADING",
        "memoryUsage": resident_bytes(worker.pid) if worker.pid else 0,
        "pid": worker.pid,
        "gpu": worker.gpu is not None,
        "gpuUsage": "N/A" if worker.gpu is None else f"gpuId::{worker.gpu}",
    }
