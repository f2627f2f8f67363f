"""The server's log files: access, server, model and metrics, each buffered and written several times a second."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from ..core.ownership import open_own, refuse_planted

_NAMES = {
    "server": "ts_log.log", "access": "access_log.log", "model": "model_log.log", "server_metrics": "ts_metrics.log",
    "model_metrics": "model_metrics.log",
}  # fmt: skip
ROTATE = 100 << 20


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    """Return a text without control characters, which could hide or forge lines and change the terminal that shows them."""
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", text)


def _show(line: str, file: IO[str]) -> None:
    """Print a line, if it can be printed: a closed terminal or pipe must not stop the server."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=file, flush=True)


class LogFile:
    """Collects lines; `flush` writes them. A file above 100 MB is rotated, keeping one old file."""

    def __init__(self, path: Path):
        self.path = path
        self._lines: list[str] = []
        self._file: IO[bytes] | None = None
        self._is_failing = False

    def open(self) -> None:
        """Create the log file; warn with the reason if that fails."""
        try:
            refuse_planted(self.path, "a log")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = open_own(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self._file = open(descriptor, "ab", buffering=0)  # noqa: SIM115  open as long as the server
        except OSError as e:
            _show(f"{self.path} cannot be written: {e}", sys.stderr)

    def write(self, line: str) -> None:
        self._lines.append(line)

    def flush(self) -> None:
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        if self._file is None:
            return
        try:
            self._file.write(("\n".join(lines) + "\n").encode("utf-8", "replace"))
            if self._file.tell() > ROTATE:
                self.path.replace(self.path.with_suffix(".1.log"))
                self._file.close()
                self.open()
            self._is_failing = False
        except OSError as e:  # requests are answered even if the disk is full
            if not self._is_failing:
                _show(f"{self.path} cannot be written: {e}", sys.stderr)
            self._is_failing = True

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None


class Logs:
    """All log files of a server. `soon` is called when there is output to flush, once until it is flushed."""

    def __init__(
        self, folder: Path, metrics_folder: Path, console: bool = False, soon: Callable[[], None] = lambda: None
    ):
        self.files = {
            kind: LogFile((metrics_folder if "metrics" in kind else folder) / name) for kind, name in _NAMES.items()
        }
        self.console, self.soon = console, soon
        self._asked = False
        self._now = self._second = -1
        self._day = self._stamp = ""

    def open(self) -> None:
        for file in self.files.values():
            file.open()

    def _put(self, kind: str, line: str) -> None:
        self.files[kind].write(line)
        if not self._asked:
            self._asked = True
            self.soon()

    def stamp(self) -> str:
        """Return the current time, to the millisecond."""
        now = int(time.time() * 1000)
        if now != self._now:
            self._now = now
            second = now // 1000
            if second != self._second:
                self._second, self._day = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(second))
            self._stamp = f"{self._day},{now % 1000:03d}"
        return self._stamp

    def access(self, words: str) -> None:
        self._put("access", f"{self.stamp()} - {visible(words)}")

    def model(self, worker: str, line: str, is_error: bool) -> None:
        name = f"{worker}-{'stderr' if is_error else 'stdout'}"
        self._write("model", f"{self.stamp()} [{'WARN ' if is_error else 'INFO '}] {name} MODEL_LOG - {line}")

    def server(self, level: str, name: str, line: str) -> None:
        text = f"{self.stamp()} [{level:<5}] main {name} - {line}"
        self._write("server", text)
        # Reasons of failures are always shown to the server's operator.
        if not self.console and level == "ERROR":
            _show(text, sys.stderr)

    def server_metrics(self, line: str) -> None:
        self._put("server_metrics", f"{self.stamp()} - {line}")

    def model_metrics(self, line: str) -> None:
        self._put("model_metrics", f"{self.stamp()} - {line}")

    def _write(self, kind: str, line: str) -> None:
        self._put(kind, line)
        if self.console:
            _show(line, sys.stdout)

    def flush(self) -> None:
        self._asked = False
        for file in self.files.values():
            file.flush()

    def close(self) -> None:
        for file in self.files.values():
            file.close()


class Handler(logging.Handler):
    """Logging handler that writes the server's records to its log file."""

    def __init__(self, logs: Logs):
        super().__init__()
        self.logs = logs
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        level = "WARN" if record.levelname == "WARNING" else record.levelname
        self.logs.server(level, record.name, visible(self.format(record)))
