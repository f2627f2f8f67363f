"""Execution of a function in several processes, and collection of their errors."""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

__all__ = [
    "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext",
    "spawn", "start_processes",
]  # fmt: skip

_PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal a process gets when its parent dies


class ProcessException(Exception):
    """Raised when a process ends with an error."""

    def __init__(self, msg: str, error_index: int, pid: int | None):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self) -> tuple:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """Raised when the function raised; the message has the traceback of that process."""

    def __init__(self, msg: str, error_index: int, error_pid: int | None):
        super().__init__(msg, error_index, error_pid)
        self.error_pid = error_pid


class ProcessExitedException(ProcessException):
    """Raised when a process ended by a signal or with an exit code other than 0."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int | None, exit_code: int, signal_name: str | None = None
    ):
        super().__init__(msg, error_index, error_pid)
        self.error_pid, self.exit_code, self.signal_name = error_pid, exit_code, signal_name

    def __reduce__(self) -> tuple:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _run(function: Callable, rank: int, args: tuple, error_file: str) -> None:
    """Run the function in a spawned process. A traceback goes into a file, which unlike a pipe has room for any length without a reader."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    try:
        function(rank, *args)
    except KeyboardInterrupt:
        pass  # the parent was interrupted or has died, and speaks for all
    except Exception:
        with open(error_file, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """Processes that were started together; `join` waits for them."""

    def __init__(self, processes: list[Any], error_files: list[str]):
        self.processes, self.error_files = processes, error_files
        self.sentinels = {process.sentinel: rank for rank, process in enumerate(processes)}

    def pids(self) -> list[int]:
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one or more processes end; return True if none is left, False if some are.

        If one failed, the others are terminated (killed after `grace_period` seconds), and its failure is raised."""
        if not self.sentinels:
            return True
        for sentinel in multiprocessing.connection.wait(list(self.sentinels), timeout):
            rank = self.sentinels.pop(sentinel)
            self.processes[rank].join()
            if self.processes[rank].exitcode != 0:
                self._end_others(grace_period)
                self._raise(rank)
            self._remove_process(rank)
        return not self.sentinels

    def _end_others(self, grace_period: float | None) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        deadline = time.monotonic() + (30 if grace_period is None else grace_period)
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def _remove_process(self, rank: int) -> None:
        if os.path.exists(self.error_files[rank]):
            os.unlink(self.error_files[rank])

    def _raise(self, rank: int) -> None:
        process = self.processes[rank]
        with open(self.error_files[rank], encoding="utf-8") as file:
            told = file.read()
        for other in range(len(self.processes)):
            self._remove_process(other)
        if told:
            message = f"\n\n-- Process {rank} terminated with the following error:\n{told}"
            raise ProcessRaisedException(message, rank, process.pid)
        code = process.exitcode
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"<Unknown signal {-code}>"
            raise ProcessExitedException(f"process {rank} terminated with signal {name}", rank, process.pid, code, name)
        raise ProcessExitedException(f"process {rank} terminated with exit code {code}", rank, process.pid, code)


class SpawnContext(ProcessContext):
    """Former name of ProcessContext."""


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    *,
    numa_options: None = None,
) -> ProcessContext | None:
    """Run `fn(rank, *args)` in `nprocs` processes; wait for them or, if `join` is false, return a ProcessContext."""
    if numa_options is not None:
        raise NotImplementedError("start_processes(): numa_options is not supported; bind the processes in `fn`")
    context: Any = multiprocessing.get_context(start_method)
    processes: list = []
    error_files: list[str] = []
    for rank in range(nprocs):
        handle, error_file = tempfile.mkstemp(prefix="flambeau-errors-", suffix=".txt")
        os.close(handle)
        error_files.append(error_file)
        process = context.Process(target=_run, args=(fn, rank, args, error_file), daemon=daemon)
        try:
            process.start()
        except BaseException:
            ProcessContext(processes, error_files)._end_others(None)
            for name in error_files:
                os.unlink(name)
            raise
        processes.append(process)
    started = ProcessContext(processes, error_files)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(rank, *args)` in `nprocs` new processes.

    >>> flambeau.multiprocessing.spawn(train, args=(model,), nprocs=4)
    """
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\nTo use a different start_method use:\n\t\t"
            " torch.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
