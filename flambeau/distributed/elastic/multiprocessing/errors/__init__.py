"""Errors of workers, reported to the process that started them.

>>> @record
... def main():
...     ...            # an exception is written to the file TORCHELASTIC_ERROR_FILE names, and raised as usual
"""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .error_handler import ErrorHandler
from .handlers import get_error_handler

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]

_NO_TRACEBACK = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


@dataclass
class ProcessFailure:
    """The failure of one worker process."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    message: str = ""
    timestamp: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.error_file_data: dict = {}
        if os.path.isfile(self.error_file):
            with open(self.error_file, encoding="utf-8") as file:
                self.error_file_data = json.load(file)
            self.message, self.timestamp = self._read_message(self.error_file_data)
        else:
            self.error_file = "<N/A>"
        if not self.message:
            self.message = (
                f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
                if self.exitcode < 0
                else _NO_TRACEBACK
            )

    def _read_message(self, data: dict) -> tuple[str, int]:
        """Return message and time from any of the formats in which workers write them."""
        said = data["message"]
        if isinstance(said, dict):
            details = said.get("extraInfo", said)
            return str(said["message"]), int(details.get("timestamp", self.timestamp))
        return str(said), int(data.get("timestamp", self.timestamp))

    def signal_name(self) -> str:
        if self.exitcode >= 0:
            return "<N/A>"
        try:
            return signal.Signals(-self.exitcode).name
        except ValueError:
            return "<Unknown>"

    def timestamp_isoformat(self) -> str:
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")


class ChildFailedError(Exception):
    """Workers failed: the message has a table of them, with the first one as the likely cause."""

    def __init__(self, name: str, failures: dict[int, ProcessFailure]):
        self.name, self.failures = name, failures
        super().__init__(self.format_msg())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        rank = min(self.failures, key=lambda r: (self.failures[r].timestamp, r))
        return rank, self.failures[rank]

    def format_msg(self, boundary: str = "=", section: str = "-") -> str:
        root, _ = self.get_first_failure()
        others = [r for r in sorted(self.failures) if r != root]
        parts = [self._describe_failure(position, rank) for position, rank in enumerate(others, 1)]
        title = f"{self.name} FAILED"
        text = [
            title,
            "Failures:",
            *(parts or ["  <NO_OTHER_FAILURES>"]),
            "Root Cause (first observed failure):",
            self._describe_failure(0, root),
        ]
        width = min(60, max(len(line) for part in text for line in part.split("\n")))
        return "\n".join(
            ["", boundary * width, title, section * width, *text[1:-2], section * width, *text[-2:], boundary * width]
        )

    def _describe_failure(self, position: int, rank: int) -> str:
        failure = self.failures[rank]
        message = failure.message if isinstance(failure.message, str) else json.dumps(failure.message)
        return "\n".join(
            [
                f"[{position}]:",
                f"  time      : {failure.timestamp_isoformat()}",
                f"  host      : {socket.getfqdn()}",
                f"  rank      : {rank} (local_rank: {failure.local_rank})",
                f"  exitcode  : {failure.exitcode} (pid: {failure.pid})",
                f"  error_file: {failure.error_file}",
                f"  traceback : {message}",
            ]
        )


def record(fn: Callable[..., Any], error_handler: ErrorHandler | None = None) -> Callable[..., Any]:
    """Decorate a main function so that its exceptions are reported to the agent that started the process."""
    handler = error_handler or get_error_handler()

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as problem:
            if problem.code == 0:
                return None
            if problem.code is not None:
                handler.record_exception(problem)
            raise
        except ChildFailedError as problem:
            _, failure = problem.get_first_failure()
            if failure.error_file != "<N/A>":
                handler.dump_error_file(failure.error_file, failure.exitcode)
            raise
        except Exception as problem:
            handler.record_exception(problem)
            raise

    return wrapped
