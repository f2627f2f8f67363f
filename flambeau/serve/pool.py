"""Worker processes of a model: started, given batches, monitored, restarted if they die, and stopped without losing a request."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core import naming
from .channel import LARGE, Arena, Frames, frame
from .job import Job
from .nursery import python_path_first

if TYPE_CHECKING:
    from .models import Model

logger = logging.getLogger("flambeau.serve.pool")
BACK_OFF = (0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597)
GRACE = 2.0  # seconds that a process may take to end after its connection, or a connection after its process
AHEAD, FAST = 32, 0.005  # how many batches a worker may have, and how many seconds of work beyond the front end's delay
_TIMEOUT = "org.pytorch.serve.wlm.WorkerInitializationException"  # the text that log monitors look for
STARTED, LOADED, STOPPED, SCALED_DOWN = "STARTED", "MODEL_LOADED", "STOPPED", "SCALED_DOWN"


class Output(asyncio.Protocol):
    """Reader of a worker's standard output, line by line."""

    def __init__(self, line: Callable[[str], None]):
        self._line = line
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-65536:]
        for line in lines:
            self._line(line.decode(errors="replace").rstrip("\r"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._rest:
            self._line(self._rest.decode(errors="replace"))


class WorkerProcess:
    """A worker's process, watched and killed through a descriptor, which cannot come to mean another process.

    What the process has started is killed when it ends: its children may hold the connection open, so that its end would go unnoticed."""

    def __init__(self, pid: int, ended: Callable[[WorkerProcess], None], process: subprocess.Popen | None = None):
        self.pid, self._on_end, self._process = pid, ended, process
        self._descriptor: int | None = None
        with contextlib.suppress(ProcessLookupError):  # it may have ended already
            self._descriptor = os.pidfd_open(pid)
            asyncio.get_running_loop().add_reader(self._descriptor, self._ended)

    @property
    def runs(self) -> bool:
        return self._descriptor is not None

    def kill(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def _ended(self) -> None:
        assert self._descriptor is not None
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = None
        if self._process is not None:
            self._process.poll()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._on_end(self)


class Worker(asyncio.Protocol):
    """The server's end of one worker process, which is restarted when it dies."""

    def __init__(self, model: Model, number: int, gpu: int | None):
        self.model, self.number, self.gpu = model, number, gpu
        self.state = STARTED
        self.started = time.time()
        self.pid = 0
        self.jobs: dict[str, Job] = {}
        self.batches: deque[list[Job]] = deque()  # sent and not answered, in order
        self.deadline = float("inf")
        self.sent_at = 0.0
        self.usual = 1.0  # seconds for a batch, lately
        self.delay = 0.0  # seconds between an answer and the front end's turn to see it, lately
        self.code = 500  # the status of waiting requests, if the worker dies now
        self.tries = 0
        self.failing_since = 0.0
        self.retry: asyncio.TimerHandle | None = None
        self.transport: Any = None
        self.arenas: tuple[Arena, Arena] | None = None
        self._frames = Frames()
        self._process: WorkerProcess | None = None
        self._is_starting = False

    @property
    def name(self) -> str:
        return f"W-{self.number}-{self.model.name}_{self.model.version}"

    @property
    def healthy(self) -> bool:
        """Return whether a restart is worthwhile: the worker has not been failing for longer than the model's retry time."""
        limit = self.model.settings.max_retry_timeout
        return not self.failing_since or time.monotonic() - self.failing_since < limit

    @property
    def idle(self) -> bool:
        return self.state == LOADED and not self.batches and self.transport is not None

    @property
    def takes_more(self) -> bool:
        """Return whether a further batch may be sent ahead. With a fast handler, or while the front end is busy (refusing excess requests,
        for example), the worker would otherwise wait for the front end. A single worker gets the next batch anyway."""
        count = len(self.batches)
        if self.state != LOADED or self.transport is None or not 0 < count < AHEAD:
            return False
        return self.usual * count < FAST + 2 * self.delay or (count == 1 and len(self.model.workers) == 1)

    @property
    def has_ended(self) -> bool:
        return not self._is_starting and self.transport is None and (self._process is None or not self._process.runs)

    # -- life --

    async def start(self) -> None:
        """Start a process that loads the model; the model's `on_loaded` or `on_stopped` is called afterwards."""
        if self.state == SCALED_DOWN:
            return
        self.started, self.state = time.time(), STARTED
        self._frames = Frames()
        self._is_starting = True
        try:
            with contextlib.ExitStack() as opened:
                await self._begin(opened)
            return
        except OSError as e:
            logger.error("%s could not be started: %s", self.name, e)
        finally:
            self._is_starting = False
        self._handle_exit()

    async def _begin(self, opened: contextlib.ExitStack) -> None:
        """Start the process and connect with it. What `opened` holds is to be closed if that fails."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        opened.enter_context(ours)
        reads: list[int] = []
        with contextlib.ExitStack() as given:
            given.enter_context(theirs)
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            arenas = opened.enter_context(Arena()), opened.enter_context(Arena())
            descriptors = [theirs.fileno(), arenas[0].descriptor, arenas[1].descriptor]
            for _ in range(2):
                read, write = os.pipe()
                opened.callback(os.close, read)
                given.callback(os.close, write)
                reads.append(read)
                descriptors.append(write)
            self.pid = await self._start_process(descriptors)
        opened.pop_all()
        self.arenas = arenas
        # uvloop closes the descriptor and then the file: by the second time another thread may have a file of that number.
        closes = not type(loop).__module__.startswith("uvloop")
        for read, log in zip(reads, (self._stdout, self._stderr)):
            await loop.connect_read_pipe(lambda log=log: Output(log), os.fdopen(read, "rb", 0, closefd=closes))  # type: ignore[misc]
        ours.setblocking(False)
        timeout = self.model.settings.startup_timeout
        self.deadline = time.monotonic() + timeout
        await loop.create_unix_connection(lambda: self, sock=ours)

    async def _start_process(self, descriptors: list[int]) -> int:
        model = self.model
        order = model.order(self.number, self.gpu)
        if model.pool_owner.settings.flag("single_process", False):
            return self._thread(order, descriptors)
        if model.python is None:
            pid = await model.pool_owner.nursery.spawn(order, descriptors)
            self._process = WorkerProcess(pid, self._process_ended)
            return pid
        environment = python_path_first(order.pop("environment"))
        environment["FLAMBEAU_WORKER"] = json.dumps(order)
        talk, first, second, out, err = descriptors
        process = subprocess.Popen(
            [model.python, "-m", f"{__package__}.worker", str(talk), str(first), str(second)],
            pass_fds=[talk, first, second], env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
        self._process = WorkerProcess(process.pid, self._process_ended, process)
        return process.pid

    def _thread(self, order: dict[str, Any], descriptors: list[int]) -> int:
        """Run a worker in a thread of this process, with copies of the descriptors; return 0 as its process id."""
        talk, ours, theirs = (os.dup(d) for d in descriptors[:3])
        run = functools.partial(naming.above("serve.worker").run, order, talk, ours, theirs, own_process=False)
        threading.Thread(target=run, name=self.name, daemon=True).start()
        return 0

    def _stdout(self, line: str) -> None:
        self.model.pool_owner.model_output(self, line, False)

    def _stderr(self, line: str) -> None:
        self.model.pool_owner.model_output(self, line, True)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self.state == SCALED_DOWN:
            self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        for arena in self.arenas or ():
            arena.close()
        self.arenas = None
        if self._process is not None:  # without its connection it is of no more use
            asyncio.get_running_loop().call_later(GRACE, self._process.kill)
        self._handle_exit()

    def _process_ended(self, process: WorkerProcess) -> None:
        """Close the connection soon, if something that the process has started still holds it open."""
        if self._process is process and self.transport is not None:
            asyncio.get_running_loop().call_later(GRACE, self.transport.abort)

    def _handle_exit(self) -> None:
        """Handle the end of the process: waiting jobs fail, and it is restarted after a pause."""
        loaded_before = self.state == LOADED
        self.deadline = float("inf")
        batches, self.batches = self.batches, deque()
        self.jobs = {}
        code = self.code
        self.code = 500
        for job in batches.popleft() if batches else ():
            job.fail(code, "Worker died.")
        self.model.batcher.give_back([job for batch in batches for job in batch])  # the worker had not begun these
        self.model.batcher.lost(self)
        if self.state == SCALED_DOWN:
            self.model.on_stopped(self, code)
            return
        logger.info("%s Worker disconnected. %s", self.number, self.state)
        self.state = STOPPED
        if not self.failing_since:
            self.failing_since = time.monotonic()
            logger.info("Auto recovery start timestamp: %d", time.time() * 1000)
        else:
            logger.warning("Auto recovery failed again")
        self.model.on_stopped(self, code)
        if not self.healthy or self.state == SCALED_DOWN:
            return
        pause = 0 if loaded_before else BACK_OFF[min(self.tries, len(BACK_OFF) - 1)]
        self.tries += 1
        logger.info("Retry worker: %s in %s seconds.", self.number, pause)
        self.retry = asyncio.get_running_loop().call_later(pause, self._restart)

    def _restart(self) -> None:
        if self.state != SCALED_DOWN:
            self.model.pool_owner.background(self.start())

    def kill(self) -> None:
        """Kill the worker process and what it has started."""
        if self._process is not None:
            self._process.kill()
        if self.transport is not None:
            self.transport.abort()

    def scale_down(self) -> None:
        """Stop the worker: once its current batches are finished, or at once if it has not loaded the model."""
        loaded, self.state = self.state == LOADED, SCALED_DOWN
        if self.retry is not None:
            self.retry.cancel()
        if not loaded:
            self.kill()
        elif not self.batches and self.transport is not None:
            self.transport.close()

    def check(self, now: float) -> None:
        """Kill a worker that has not answered in time."""
        if now > self.deadline:
            self.deadline = float("inf")
            if self.jobs:
                self.model.unsuccessful += 1
                logger.error("Number or consecutive unsuccessful inference %d", self.model.unsuccessful)
            logger.error(
                "%s: Backend worker error\n%s: Backend worker did not respond in given time", self.name, _TIMEOUT
            )
            self.kill()

    # -- work --

    def send(self, batch: list[Job]) -> None:
        """Send a batch to the worker."""
        assert self.arenas is not None
        arena, alone = self.arenas[0], not self.batches
        now = time.perf_counter()
        if alone:  # both sides have taken out what was in the shared memory
            arena.reset()
            self.sent_at = now
            self.deadline = time.monotonic() + self.model.settings.response_timeout
        message = []
        for job in batch:
            job.scheduled = now
            self.jobs[job.id] = job
            parameters: list[Any] = []
            if not job.cached:
                for name, content_type, value in job.parameters:
                    parameters.append(
                        (
                            name,
                            content_type,
                            arena.put(value) if len(value) >= LARGE and arena.room(len(value)) else value,
                        )
                    )
            message.append((job.id, job.headers, parameters))
        self.batches.append(batch)
        self.transport.write(frame((alone, message)))

    def data_received(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            if self.state == STARTED:
                self._handle_loaded(message)
            else:
                self._handle_answers(message)

    def _handle_loaded(self, message: Any) -> None:
        code, words, _, metrics, *_, example = message
        self.deadline = float("inf")
        self.model.on_metrics(metrics)
        if code != 200:
            self.code = code
            self.model.why = words
            logger.error("%s: the model could not be loaded (%d): %s", self.name, code, words)
            return  # the process ends itself
        self.state = LOADED
        self.model.example = example
        if self.failing_since:
            logger.info("Auto recovery succeeded, reset recoveryStartTS")
        self.tries, self.failing_since = 0, 0.0
        self.model.on_loaded(self)

    def _handle_answers(self, message: Any) -> None:
        code, text, answers, metrics, more, began, ended, reason = message
        if not self.batches:
            return
        model, jobs = self.model, self.jobs
        model.on_metrics(metrics)
        if code == 200:
            model.unsuccessful = 0
            self._deliver(answers, more)
        else:
            if reason:
                logger.error("%s: %s: %s", self.name, text, reason)
            for job in self.batches[0]:
                if jobs.pop(job.id, None) is not None:
                    job.fail(code, text)
                    model.batcher.done(self, job, {}, False)
        if more:
            self.deadline = time.monotonic() + model.settings.response_timeout
            return
        for job in self.batches.popleft():
            jobs.pop(job.id, None)
        now = time.perf_counter()
        spent, self.sent_at = now - self.sent_at, now
        self.usual += 0.2 * (ended - began - self.usual)
        self.delay += 0.2 * (now - ended - self.delay)
        self.deadline = time.monotonic() + model.settings.response_timeout if self.batches else float("inf")
        model.on_answered(self, spent)
        if self.state == SCALED_DOWN and not self.batches and self.transport is not None:
            self.transport.close()

    def _deliver(self, answers: list[Any], more: bool) -> None:
        assert self.arenas is not None
        finished = []
        for item in answers:
            job = self.jobs.get(item[0])
            if job is None:
                continue
            body = item[5]
            if isinstance(body, tuple):
                body = self.arenas[1].take(body)
            if len(body) > self.model.max_response_size:
                job.fail(500, f"The answer is larger than {self.model.max_response_size} bytes (max_response_size).")
                to_come = False
            else:
                to_come = job.answer(item, body)
            if not more:
                finished.append((job, item[4], to_come))
        for job, headers, to_come in finished:
            del self.jobs[job.id]
            self.model.batcher.done(self, job, headers, to_come)
