"""Handling of the workers' output: shown, written to files, or both, with the worker's number before every line."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from enum import IntFlag
from string import Template
from typing import Any, TextIO


class Std(IntFlag):
    """Standard streams: NONE, OUT, ERR or ALL."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3

    @classmethod
    def from_str(cls, text: str) -> Std | dict[int, Std]:
        """Parse `3` (all workers) or `0:1,1:2` (per worker)."""

        def one(value: str) -> Std:
            if value not in ("0", "1", "2", "3"):
                raise ValueError(f"{text} does not match: <d>|<d>:<d>,<d>:<d>.. where d is [0..3]")
            return Std(int(value))

        if ":" not in text:
            return one(text)
        pairs = [pair.split(":") for pair in text.split(",")]
        if any(len(pair) != 2 or not pair[0].isdigit() for pair in pairs):
            raise ValueError(f"{text} does not match: <d>|<d>:<d>,<d>:<d>.. where d is [0..3]")
        return {int(rank): one(value) for rank, value in pairs}


def to_map(value: Std | dict[int, Std], local_world_size: int) -> dict[int, Std]:
    """Return the redirected streams of each worker."""
    if isinstance(value, Std):
        return dict.fromkeys(range(local_world_size), value)
    return {rank: value.get(rank, Std.NONE) for rank in range(local_world_size)}


class LogsSpecs:
    """Specification of the files and streams to which each worker's output is written."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
    ) -> None:
        self.root_log_dir, self.redirects, self.tee = log_dir, redirects, tee
        self.local_ranks_filter = local_ranks_filter
        self.filters = (duplicate_stdout_filters, duplicate_stderr_filters)
        self._run_dir: str | None = None

    def run_dir(self, run_id: str) -> str:
        """Make the log directory of this job."""
        if self._run_dir is None:
            if self.root_log_dir is not None:
                os.makedirs(self.root_log_dir, exist_ok=True)
            self._run_dir = tempfile.mkdtemp(prefix=f"{run_id}_", dir=self.root_log_dir)
        return self._run_dir


DefaultLogsSpecs = LogsSpecs


class WorkerLogs:
    """The log files of one worker in one attempt, and the threads that print what is written to them."""

    def __init__(
        self, specs: LogsSpecs, folder: str, local_rank: int, local_world_size: int, role: str, rank: str = ""
    ) -> None:
        self.folder = os.path.join(folder, str(local_rank))
        os.makedirs(self.folder, exist_ok=True)
        self.error_file = os.path.join(self.folder, "error.json")
        redirect = to_map(specs.redirects, local_world_size)[local_rank]
        tee = to_map(specs.tee, local_world_size)[local_rank]
        if specs.local_ranks_filter is not None and local_rank not in specs.local_ranks_filter:
            redirect, tee = Std.ALL, Std.NONE
        template = Template(os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[${role_name}${local_rank}]:"))
        self.prefix = template.safe_substitute(role_name=role, local_rank=local_rank, rank=rank)
        self.files: dict[str, Any] = {}
        self.tails: list[_Tail] = []
        for name, flag, screen, words in (
            ("stdout", Std.OUT, sys.stdout, specs.filters[0]),
            ("stderr", Std.ERR, sys.stderr, specs.filters[1]),
        ):
            if not (redirect | tee) & flag and words is None:
                self.files[name] = None
                continue
            path = os.path.join(self.folder, f"{name}.log")
            self.files[name] = open(path, "wb", buffering=0)  # noqa: SIM115  until the worker ends
            if tee & flag:
                self.tails.append(_Tail(path, screen, self.prefix, None))
            elif words is not None and not redirect & flag:
                self.tails.append(_Tail(path, screen, "", None))
            if words:
                target = open(os.path.join(os.path.dirname(folder), f"filtered_{name}.log"), "a")  # noqa: SIM115  until the worker ends
                self.tails.append(_Tail(path, target, self.prefix, words))

    def close(self) -> None:
        for file in self.files.values():
            if file is not None:
                file.close()
        for tail in self.tails:
            tail.stop()


class _Tail:
    """Thread that copies lines of a growing file to an output stream."""

    def __init__(self, path: str, target: TextIO, prefix: str, words: list[str] | None):
        self.path, self.target, self.prefix, self.words = path, target, prefix, words
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with open(self.path, encoding="utf-8", errors="replace") as file:
            rest = ""
            while True:
                ending = self._ended.is_set()  # before reading: what was written until now is still shown
                data = file.read()
                *lines, rest = (rest + data).split("\n")
                self._copy_lines([line + "\n" for line in lines])
                if ending and not data:
                    self._copy_lines([rest] if rest else [])
                    return
                if not data:
                    self._ended.wait(0.1)

    def _copy_lines(self, lines: list[str]) -> None:
        for line in lines:
            if self.words is None or any(word in line for word in self.words):
                self.target.write(self.prefix + line)
        if lines:
            self.target.flush()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(5)
