"""The worker processes of one agent in one attempt: started, polled, ended together."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....core import naming
from .errors import ProcessFailure, record
from .logs import LogsSpecs, WorkerLogs

_PR_SET_PDEATHSIG = 1
LOCAL_RANK_MARK = "${local_rank}"  # in arguments of a command: the number of the worker


class SignalException(Exception):
    """Raised when the agent itself receives a signal to end."""

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval


@contextlib.contextmanager
def handled_signals(names: str) -> Iterator[None]:
    """Context manager: these signals raise SignalException, so that workers are ended before the agent is."""

    def handle(number: int, frame: Any) -> None:
        name = signal.Signals(number)
        raise SignalException(f"Process {os.getpid()} got signal: {number}", sigval=name)

    before = {}
    for name in filter(None, (part.strip() for part in names.split(","))):
        number = getattr(signal, name, None)
        if number is None:
            raise ValueError(f"signals-to-handle: there is no signal {name}")
        with contextlib.suppress(ValueError):  # not in the main thread: the program's own business
            before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class RunResult:
    """Outcome of the workers: return values by local rank, failures by local rank."""

    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)

    def is_failed(self) -> bool:
        return bool(self.failures)


def _die_with_parent(parent: int) -> None:
    """Make this new process end when the agent does, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _run_function(
    function: Callable, args: tuple, environment: dict[str, str], files: dict[str, str], parent: int, pipe: Any
) -> None:
    """Run a function as a worker."""
    _die_with_parent(parent)
    os.environ.update(environment)
    for name, path in files.items():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1 if name == "stdout" else 2)
    pipe.send(record(function)(*args))
    pipe.close()


class _FunctionWorker:
    """A worker that is a Python function."""

    def __init__(self, entry: Callable, args: tuple, environment: dict[str, str], logs: WorkerLogs, method: str):
        context: Any = multiprocessing.get_context(method)
        self.pipe, theirs = context.Pipe(duplex=False)
        files = {name: file.name for name, file in logs.files.items() if file is not None}
        arguments = (entry, args, environment, files, os.getpid(), theirs)
        self.process = context.Process(target=_run_function, args=arguments, daemon=False)
        self.process.start()
        theirs.close()
        self.pid = self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def value(self) -> Any:
        return self.pipe.recv() if self.pipe.poll() else None

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, timeout: float) -> None:
        self.process.join(timeout)


class _CommandWorker:
    """A worker that is a command; it leads a new session, so that its child processes end with it."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], logs: WorkerLogs):
        parent = os.getpid()
        self.process = subprocess.Popen(
            list(command),
            env=environment,
            stdout=logs.files["stdout"],
            stderr=logs.files["stderr"],
            preexec_fn=lambda: _die_with_parent(parent),
            start_new_session=True,
        )
        self.pid = self.process.pid

    def poll(self) -> int | None:
        return self.process.poll()

    def value(self) -> Any:
        return None

    def send_signal(self, number: int) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def wait(self, timeout: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout)


def python_command(script: str, arguments: Sequence[str], module: bool) -> list[str]:
    """Return the command by which a worker runs a program, with Flambeau in the place of PyTorch."""
    return [sys.executable, "-u", "-m", naming.PACKAGE, *(["-m"] if module else []), script, *arguments]


class Workers:
    """The worker processes of one attempt."""

    def __init__(
        self,
        entrypoint: Callable | str,
        args: tuple,
        environments: dict[int, dict[str, str]],
        specs: LogsSpecs,
        folder: str,
        role: str,
        start_method: str = "spawn",
        shutdown_timeout: float = 30.0,
    ) -> None:
        self.shutdown_timeout = shutdown_timeout
        self.logs = {
            local: WorkerLogs(specs, folder, local, len(environments), role, own.get("RANK", ""))
            for local, own in environments.items()
        }
        self.processes: dict[int, Any] = {}
        root = os.path.dirname(sys.modules[naming.PACKAGE].__path__[0])
        try:
            for rank, environment in environments.items():
                logs = self.logs[rank]
                environment["TORCHELASTIC_ERROR_FILE"] = logs.error_file
                if callable(entrypoint):
                    made: Any = _FunctionWorker(entrypoint, args, environment, logs, start_method)
                else:
                    path = os.environ.get("PYTHONPATH", "")
                    inherited = {
                        **os.environ,
                        "PYTHONPATH": path if root in path.split(":") else f"{path}:{root}".strip(":"),
                    }
                    command = [str(part).replace(LOCAL_RANK_MARK, str(rank)) for part in (entrypoint, *args)]
                    made = _CommandWorker(command, {**inherited, **environment}, logs)
                self.processes[rank] = made
        except BaseException:
            self.end()
            raise

    def pids(self) -> dict[int, int]:
        return {rank: process.pid for rank, process in self.processes.items()}

    def poll(self) -> RunResult | None:
        """Return None while none has failed and some still run; else the outcome."""
        codes = {rank: process.poll() for rank, process in self.processes.items()}
        failed = {rank: code for rank, code in codes.items() if code}
        if failed:
            result = RunResult()
            for rank, code in failed.items():
                pid = self.processes[rank].pid
                result.failures[rank] = ProcessFailure(rank, pid, code, self.logs[rank].error_file)
            return result
        if None in codes.values():
            return None
        return RunResult({rank: process.value() for rank, process in self.processes.items()})

    def end(self, number: int = signal.SIGTERM) -> None:
        """End all workers, first by SIGTERM and then by SIGKILL."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(number)
                process.send_signal(signal.SIGCONT)  # a stopped process could not receive it
        deadline = time.monotonic() + self.shutdown_timeout
        for process in self.processes.values():
            process.wait(max(0.0, deadline - time.monotonic()))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait(10)
        for logs in self.logs.values():
            logs.close()
