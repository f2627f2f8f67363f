"""Timeline of negotiations and reductions, as a trace that chrome://tracing shows."""

from __future__ import annotations

import json
import time
from typing import Any

from ...core.locks import new_lock
from . import state


class _Timeline:
    def __init__(self) -> None:
        self.lock = new_lock()
        self.path: str | None = None
        self.events: list[dict[str, Any]] = []
        self.mark_cycles = False
        self.numbers: dict[str, int] = {}

    def start(self, path: str, mark_cycles: bool) -> None:
        with self.lock:
            self.path, self.mark_cycles, self.numbers = path, mark_cycles, {}
            now = int(time.time() * 1e6)
            self.events = [{"name": "start", "ph": "M", "args": {"start_time_since_epoch_in_micros": now}}]
            self.zero = time.perf_counter()

    def _lane(self, tensor: str) -> int:
        if tensor not in self.numbers:
            self.numbers[tensor] = len(self.numbers) + 1
            lane = {"name": "process_name", "ph": "M", "pid": self.numbers[tensor], "args": {"name": tensor}}
            self.events.append(lane)
        return self.numbers[tensor]

    def add(self, tensor: str, what: str, begin: float, end: float) -> None:
        with self.lock:
            if self.path is not None:
                entry = {"name": what, "ph": "X", "pid": self._lane(tensor), "ts": (begin - self.zero) * 1e6}
                self.events.append({**entry, "dur": (end - begin) * 1e6})

    def cycle(self) -> None:
        with self.lock:
            if self.path is not None and self.mark_cycles:
                moment = (time.perf_counter() - self.zero) * 1e6
                self.events.append({"name": "CYCLE_START", "ph": "i", "pid": 0, "ts": moment, "s": "g"})

    def stop(self) -> None:
        with self.lock:
            if self.path is not None:
                with open(self.path, "w") as file:
                    json.dump(self.events, file)
            self.path, self.events = None, []


timeline = _Timeline()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Record rank 0's operations from now on; `stop_timeline` writes them to the file."""
    if state.rank() == 0:
        timeline.start(file_path, mark_cycles)


def stop_timeline() -> None:
    timeline.stop()
