"""The worker processes of one iteration: starting them, receiving their messages, noticing that one died, stopping them."""

from __future__ import annotations

import _thread
import os
import select
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

from .channel import ChannelClosed, LoaderEnd, open_channel
from .worker import Job, worker_loop

_CHECK_SECONDS = 5.0  # how often to look at processes that neither answer nor signal their end
_JOIN_SECONDS = 5.0  # how long a worker may take to finish what it is doing when stopped
_POLL_SECONDS = 0.05  # seconds, for a finalizer to end
_EVENTS = select.POLLIN | select.POLLHUP | select.POLLERR


class _Crew:
    """Workers and channels, to be shut down when they are no longer needed."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.channels: list[LoaderEnd] = []
        self.processes: list[Any] = []
        self.patience = _JOIN_SECONDS

    def stop(self) -> None:
        if os.getpid() != self.owner:  # a forked child has copies of these objects, but the workers are not its own
            return
        for channel in self.channels:
            channel.close()  # tells a worker to finish
        _join(self.processes, self.patience)
        for force in ("terminate", "kill"):
            alive = [process for process in self.processes if process.is_alive()]
            for process in alive:
                getattr(process, force)()
            _join(alive, 1.0)

    def shut_down(self) -> None:
        """Stop the workers where Python would lose a Ctrl-C: one that arrives in the meantime is raised afterwards."""
        try:
            self.stop()
        except KeyboardInterrupt:
            self.patience = 0.0
            self.stop()
            threading.Timer(_POLL_SECONDS, _thread.interrupt_main).start()


def _join(processes: list[Any], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))


class Team:
    """Worker processes with a channel to each."""

    def __init__(self, context: Any, jobs: list[Job]):
        self._crew = crew = _Crew()
        self.channels, self.processes = crew.channels, crew.processes
        self.stop = weakref.finalize(self, crew.shut_down)  # when the team goes, or the interpreter exits
        self._poll = select.poll()
        self._numbers: dict[int, int] = {}
        try:
            for number, job in enumerate(jobs):
                self._start(context, number, job)
        except BaseException:
            self.stop()
            raise

    def _start(self, context: Any, number: int, job: Job) -> None:
        ours, theirs = open_channel()
        try:
            process = context.Process(target=worker_loop, args=(job, theirs))
            process.daemon = True
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.channels.append(ours)
        self.processes.append(process)
        for fd in (ours.fileno(), process.sentinel):
            self._numbers[fd] = number
            self._poll.register(fd, _EVENTS)

    def send(self, worker: int, message: Any) -> None:
        channel = self.channels[worker]
        channel.send(message)
        self._poll.modify(channel.fileno(), _EVENTS | (select.POLLOUT if channel.wants_to_send() else 0))

    def receive(self, deadline: float | None) -> Iterator[Any]:
        """Yield messages from workers, as they come; none if the deadline passes first. Raises if a worker has died."""
        if not self.stop.alive:
            raise RuntimeError("the worker processes of this DataLoader iterator have been stopped")
        while True:
            wait = _CHECK_SECONDS if deadline is None else min(_CHECK_SECONDS, max(0.0, deadline - time.monotonic()))
            ready = {self._numbers[fd] for fd, _ in self._poll.poll(wait * 1000)}
            messages = [message for number in sorted(ready) for message in self._receive_answer(number)]
            if messages:
                return iter(messages)
            if not ready:
                self._look_for_the_dead()
            if deadline is not None and time.monotonic() >= deadline:
                return iter(())

    def _receive_answer(self, number: int) -> list[Any]:
        channel = self.channels[number]
        if channel.wants_to_send():
            channel.flush()
            self._poll.modify(channel.fileno(), _EVENTS | (select.POLLOUT if channel.wants_to_send() else 0))
        try:
            messages = channel.receive()
            if not messages and not self.processes[number].is_alive():
                messages = channel.receive()  # its last words may have arrived just now
                if not messages:
                    raise ChannelClosed
            return messages
        except ChannelClosed:
            raise self._describe_death(number) from None
        except RuntimeError:  # messages and their memory no longer match
            self.stop()
            raise

    def _look_for_the_dead(self) -> None:
        for number, process in enumerate(self.processes):
            if not process.is_alive():
                raise self._describe_death(number)

    def _describe_death(self, number: int) -> RuntimeError:
        process = self.processes[number]
        process.join(_JOIN_SECONDS)
        pid, code = process.pid, process.exitcode
        self.stop()
        if code is not None and code < 0:
            hint = ""
            if -code == signal.SIGBUS:
                hint = " It may have run out of shared memory."
            elif -code == signal.SIGKILL:
                hint = " The system may have ended it for using too much memory."
            name = signal.strsignal(-code) or f"signal {-code}"
            cause = f"DataLoader worker (pid {pid}) is killed by signal: {name}.{hint}"
        else:
            cause = f"its exit code is {code}"
        return RuntimeError(f"DataLoader worker (pid(s) {pid}) exited unexpectedly: {cause}")

    def hurry(self) -> None:
        """Mark a worker as hanging: stopping will not wait for it."""
        self._crew.patience = 0.1
