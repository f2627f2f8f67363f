"""Metrics of the server and its models: in log files, or for Prometheus, under TorchServe's names."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.caching import remember
from .archive_reader import read_yaml
from .settings import ConfigurationError, host_name

_HOST = ["Level", "Hostname"]
_MODEL = ["model_name", "model_version", "hostname"]
_DEFAULT: dict[str, dict[str, list[tuple[str, str, list[str]]]]] = {
    "ts_metrics": {
        "counter": [
            *((f"Requests{c}XX", "Count", _HOST) for c in "245"),
            ("ts_inference_requests_total", "Count", _MODEL),
            ("ts_inference_latency_microseconds", "Microseconds", _MODEL),
            ("ts_queue_latency_microseconds", "Microseconds", _MODEL),
        ],
        "gauge": [
            ("QueueTime", "Milliseconds", _HOST),
            ("WorkerThreadTime", "Milliseconds", _HOST),
            ("WorkerLoadTime", "Milliseconds", ["WorkerName", *_HOST]),
            ("CPUUtilization", "Percent", _HOST),
            ("MemoryUsed", "Megabytes", _HOST),
            ("MemoryAvailable", "Megabytes", _HOST),
            ("MemoryUtilization", "Percent", _HOST),
            ("DiskUsage", "Gigabytes", _HOST),
            ("DiskUtilization", "Percent", _HOST),
            ("DiskAvailable", "Gigabytes", _HOST),
            *((n, u, ["Level", "DeviceId", "Hostname"]) for n, u in (("GPUMemoryUtilization", "Percent"),
              ("GPUMemoryUsed", "Megabytes"), ("GPUUtilization", "Percent"))),
        ],
    },
    "model_metrics": {
        "gauge": [("HandlerTime", "ms", ["ModelName", "Level"]), ("PredictionTime", "ms", ["ModelName", "Level"])],
    },
}  # fmt: skip
_UNITS = {"ms": "Milliseconds", "s": "Seconds", "percent": "Percent", "count": "Count", "MB": "Megabytes",
          "GB": "Gigabytes", "kB": "Kilobytes", "B": "Bytes"}  # fmt: skip
_LINE = re.compile(
    r"(?P<name>[\w\s]+)\.(?P<unit>[\w\s/%]+):(?P<value>[\d.eE+-]+)\|#(?P<labels>[^|]*)"
    r"(?:\|#type:(?P<type>\w+))?\|#hostname:(?P<host>[^,]+),(?P<time>\d+)(?:,(?P<request>.*))?"
)
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


@dataclass
class Metric:
    """A metric's kind, unit and labels, and its values by label."""

    name: str
    kind: str
    unit: str
    labels: list[str]
    values: dict[tuple[str, ...], float] = field(default_factory=dict)
    buckets: dict[tuple[str, ...], list[int]] = field(default_factory=dict)
    counts: dict[tuple[str, ...], int] = field(default_factory=dict)

    def add(self, labels: tuple[str, ...], value: float) -> None:
        if self.kind == "gauge":
            self.values[labels] = value
            return
        self.values[labels] = self.values.get(labels, 0.0) + value
        if self.kind == "histogram":
            self.counts[labels] = self.counts.get(labels, 0) + 1
            row = self.buckets.setdefault(labels, [0] * len(_BUCKETS))
            for i, bound in enumerate(_BUCKETS):
                row[i] += value <= bound

    def text(self) -> str:
        """Return the metric in Prometheus's text format."""
        lines = [f"# HELP {self.name} Torchserve prometheus {self.kind} metric with unit: {self.unit}",
                 f"# TYPE {self.name} {self.kind}"]  # fmt: skip
        for labels, value in self.values.items():
            words = ",".join(f'{n}="{_escape(v)}"' for n, v in zip(self.labels, labels)) + ("," if labels else "")
            inner = f"{{{words}}}" if words else ""
            if self.kind != "histogram":
                lines.append(f"{self.name}{inner} {value}")
                continue
            for bound, count in zip((*_BUCKETS, "+Inf"), (*self.buckets[labels], self.counts[labels])):
                lines.append(f'{self.name}_bucket{{{words}le="{bound}",}} {float(count)}')
            lines.append(f"{self.name}_count{inner} {float(self.counts[labels])}")
            lines.append(f"{self.name}_sum{inner} {value}")
        return "\n".join(lines) + "\n"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Metrics:
    """All metrics. In the mode `log` each change is written to a log, in the mode `prometheus` values are kept for `/metrics`; in the mode
    `legacy` metrics called ts_... are kept and the others are logged."""

    def __init__(
        self,
        mode: str = "log",
        config: str | None = None,
        auto_detect: bool = False,
        server_log: Callable[[str], None] = lambda line: None,
        model_log: Callable[[str], None] = lambda line: None,
    ):
        self.mode = mode
        self.auto_detect = auto_detect or mode == "legacy"
        self.server_log, self.model_log = server_log, model_log
        self.host = host_name()
        self.server: dict[str, Metric] = {}
        self.model: dict[str, Metric] = {}
        self._words: dict[tuple[str, tuple[str, ...]], tuple[str, str]] = {}  # what lines have around their values
        self._declare(read_yaml(Path(config), ConfigurationError) if config else None)

    def _declare(self, config: dict[str, Any] | None) -> None:
        for section, into in (("ts_metrics", self.server), ("model_metrics", self.model)):
            kinds: dict[str, Any] = _DEFAULT[section] if config is None else config.get(section) or {}
            for kind, entries in kinds.items():
                for entry in entries or ():
                    name, unit, labels = (
                        entry if isinstance(entry, tuple) else (entry["name"], entry["unit"], entry["dimensions"])
                    )
                    more = ["Hostname"] if into is self.model else []
                    into[name] = Metric(name, kind, _UNITS.get(unit) or unit, [*labels, *more])

    def add(self, name: str, labels: tuple[str, ...], value: float) -> None:
        """Record a value of one of the server's metrics; ignored if the configuration does not declare the metric."""
        metric = self.server.get(name)
        if metric is None:
            return
        if self.mode == "prometheus" or (self.mode == "legacy" and name.startswith("ts_")):
            metric.add(labels, value)
            return
        words = self._words.get((name, labels))
        if words is None:
            pairs = ",".join(f"{n}:{v}" for n, v in zip(metric.labels[:-1], labels))
            words = f"{name}.{metric.unit}:", f"|#{pairs}|#hostname:{self.host},timestamp:"
            remember(self._words, (name, labels), words, 10_000)
        self.server_log(f"{words[0]}{value}{words[1]}{int(time.time())}")

    def add_line(self, line: str) -> None:
        """Record a value that a worker reports, as a line in the format of TorchServe's workers."""
        if self.mode != "prometheus":
            match = None if self.auto_detect else _LINE.fullmatch(line)
            if self.auto_detect or (match and match["name"] in self.model):
                self.model_log(line)
            return
        match = _LINE.fullmatch(line)
        if match is None:
            return
        pairs = [pair.partition(":") for pair in match["labels"].split(",") if pair]
        metric = self.model.get(match["name"])
        if metric is None:
            if not self.auto_detect:
                return
            kind = (match["type"] or "counter").lower()
            labels = [p[0] for p in pairs] + ["Hostname"]
            metric = self.model[match["name"]] = Metric(match["name"], kind, match["unit"], labels)
        values = (*(p[2] for p in pairs), match["host"])
        if len(values) == len(metric.labels):
            metric.add(values, float(match["value"]))

    def text(self, names: list[str]) -> str:
        """Return the text of `/metrics`: all metrics, or those asked for by name."""
        if self.mode == "log":
            return ""
        every = [*self.server.values(), *self.model.values()] if self.mode == "prometheus" else self.server.values()
        found = [
            m
            for m in every
            if (not names or m.name in names) and (self.mode == "prometheus" or m.name.startswith("ts_"))
        ]
        return "".join(m.text() for m in found)


def system(gpus: int) -> list[tuple[str, tuple[str, ...], float]]:
    """Return metrics of the machine: CPU, memory, disk."""

    memory: dict[str, int] = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            key, _, rest = line.partition(":")
            memory[key] = int(rest.split()[0]) * 1024
    total, available = memory["MemTotal"], memory["MemAvailable"]
    disk = shutil.disk_usage("/")
    mega, giga = 1 << 20, 1 << 30
    return [
        ("CPUUtilization", ("Host",), round(_cpu_percent(), 1)),
        ("DiskAvailable", ("Host",), disk.free / giga),
        ("DiskUsage", ("Host",), disk.used / giga),
        ("DiskUtilization", ("Host",), round(100 * disk.used / (disk.used + disk.free), 1)),
        ("MemoryAvailable", ("Host",), available / mega),
        ("MemoryUsed", ("Host",), (total - available) / mega),
        ("MemoryUtilization", ("Host",), round(100 * (total - available) / total, 1)),
    ]


class _Cpu:
    last = (0, 0)


def _cpu_percent() -> float:
    """Return the share of the cores' time, in percent, that was busy since the last call."""
    with open("/proc/stat", encoding="ascii") as file:
        numbers = [int(n) for n in file.readline().split()[1:]]
    now = (sum(numbers), numbers[3] + numbers[4])
    spent, idle = now[0] - _Cpu.last[0], now[1] - _Cpu.last[1]
    _Cpu.last = now
    return 100 * (spent - idle) / spent if spent else 0.0
