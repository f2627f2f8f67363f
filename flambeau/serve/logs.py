"""The server's log files: access, server, model and metrics, each a list of lines written out several times a second."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import IO

_NAMES = {
    "server": "ts_log.log", "access": "access_log.log", "model": "model_log.log", "server_metrics": "ts_metrics.log",
    "model_metrics": "model_metrics.log",
}  # fmt: skip
ROTATE = 100 << 20


class LogFile:
    """Collects lines; `flush` writes them. Grown beyond 100 MB it starts again, keeping one old file."""

    def __init__(self, path: Path):
        self.path = path
        self._lines: list[str] = []
        self._file: IO[str] | None = None

    def write(self, line: str) -> None:
        self._lines.append(line)

    def flush(self) -> None:
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "a", encoding="utf-8", errors="replace")  # noqa: SIM115  open as long as the server
        self._file.write("\n".join(lines) + "\n")
        self._file.flush()
        if self._file.tell() > ROTATE:
            self._file.close()
            self._file = None
            self.path.replace(self.path.with_suffix(".1.log"))

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None


class Logs:
    """All log files of a server."""

    def __init__(self, folder: Path, console: bool = False):
        self.files = {kind: LogFile(folder / name) for kind, name in _NAMES.items()}
        self.console = console
        self._second, self._stamp = -1, ""

    def stamp(self) -> str:
        """Now, to the millisecond."""
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(second))
        return f"{self._stamp},{int((now - second) * 1000):03d}"

    def access(self, words: str) -> None:
        self.files["access"].write(f"{self.stamp()} - {words}")

    def model(self, worker: str, line: str, is_error: bool) -> None:
        name = f"{worker}-{'stderr' if is_error else 'stdout'}"
        self._write("model", f"{self.stamp()} [{'WARN ' if is_error else 'INFO '}] {name} MODEL_LOG - {line}")

    def server(self, level: str, name: str, line: str) -> None:
        self._write("server", f"{self.stamp()} [{level:<5}] main {name} - {line}")

    def server_metrics(self, line: str) -> None:
        self.files["server_metrics"].write(f"{self.stamp()} - {line}")

    def model_metrics(self, line: str) -> None:
        self.files["model_metrics"].write(f"{self.stamp()} - {line}")

    def _write(self, kind: str, line: str) -> None:
        self.files[kind].write(line)
        if self.console:
            print(line, file=sys.stdout, flush=True)

    def flush(self) -> None:
        for file in self.files.values():
            file.flush()

    def close(self) -> None:
        for file in self.files.values():
            file.close()


class Handler(logging.Handler):
    """Sends what the server logs to its file."""

    def __init__(self, logs: Logs):
        super().__init__()
        self.logs = logs
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        level = "WARN" if record.levelname == "WARNING" else record.levelname
        self.logs.server(level, record.name, self.format(record))
