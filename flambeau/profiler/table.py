"""Table that a profiler prints, with PyTorch's columns and widths."""

from __future__ import annotations

import math
from typing import Any

from .settings import DeviceType

_WIDTH = 12
_FLOPS_UNITS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")
_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}
_ON_DEVICE = (DeviceType.CUDA, DeviceType.PrivateUse1, DeviceType.MTIA, DeviceType.XPU)


def _format_time(time_us: float) -> str:
    """Format microseconds in a suitable unit."""
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if time_us >= size:
            return f"{time_us / size:.3f}{unit}"
    return f"{time_us:.3f}us"


def _format_time_share(time_us: float, total_time_us: float) -> str:
    """Format a share of a time in percent."""
    if total_time_us == 0:
        if time_us != 0:
            raise AssertionError(f"Expected time_us == 0 but got {time_us}")
        return "NaN"
    return f"{time_us * 100.0 / total_time_us:.2f}%"


def _format_memory(nbytes: int) -> str:
    """Format bytes in a suitable unit."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if abs(nbytes) >= 1024**power:
            return f"{nbytes / 1024**power:.2f} {unit}"
    return f"{nbytes} B"


def _limit_width(width: int, most: int | None) -> int:
    return width if most is None else min(width, most)


class Table:
    """Table of a list of events, with a column for each value that they have."""

    def __init__(
        self,
        events: list,
        memory: bool,
        flops: bool,
        time_unit: str | None,
        name_width: int | None,
        shapes_width: int | None,
        source_width: int | None,
    ):
        self.events, self.memory, self.time_unit, self.most = events, memory, time_unit, name_width
        self.device_time = any(e.self_device_time_total > 0 for e in events)
        self.device = events[0].use_device
        if not self.device and self.device_time:
            raise RuntimeError("use_device is None, but there is device performance data.")
        self.device_memory = bool(memory and self.device and any(e.self_device_memory_usage > 0 for e in events))
        self.shapes = any(e.input_shapes is not None and len(e.input_shapes) > 0 for e in events)
        self.overloads = any(e.overload_name is not None and len(e.overload_name) > 0 for e in events)
        self.node_ids = any(e.node_id != -1 for e in events)
        self.stacks = any(e.stack for e in events)
        counted = [e.flops for e in events if e.flops is not None and e.flops > 0] if flops else []
        self.flops_power = min(int(math.log10(min(counted)) / 3), len(_FLOPS_UNITS) - 1) if counted else None
        self.name_width = _limit_width(max(len(e.key) for e in events) + 4, name_width)
        self.shapes_width = _limit_width(max(len(str(e.input_shapes)) for e in events) + 4, shapes_width)
        longest = max((len(line) for e in events for line in e.stack or ()), default=0)
        self.source_width = _limit_width(longest + 4, source_width)
        self.cpu_total = sum(e.self_cpu_time_total for e in events)
        self.device_total = sum(e.self_device_time_total for e in events if self._counts_on_device(e))
        self.columns = self._columns()

    @staticmethod
    def _counts_on_device(event: Any) -> bool:
        if event.device_type == DeviceType.CPU:
            return event.is_legacy
        return event.device_type in _ON_DEVICE and not event.is_user_annotation

    def _columns(self) -> list[tuple[str, int, str]]:
        """Return heading, width and alignment of each column."""
        device = self.device.upper() if self.device is not None else "None"
        names = [("Name", self.name_width)]
        if self.overloads:
            names.append(("Overload Name", self.name_width))
        plain = ["Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
        if self.device_time:
            plain += [f"Self {device}", f"Self {device} %", f"{device} total", f"{device} time avg"]
        if self.memory:
            plain += ["CPU Mem", "Self CPU Mem"]
        if self.device_memory:
            plain += [f"{device} Mem", f"Self {device} Mem"]
        plain.append("# of Calls")
        if self.node_ids:
            plain.append("Node ID")
        columns = [(text, width, ">") for text, width in (*names, *((text, _WIDTH) for text in plain))]
        if self.shapes:
            columns.append(("Input Shapes", self.shapes_width, ">"))
        if self.stacks:
            columns.append(("Source Location", self.source_width, "<"))
        if self.flops_power is not None:
            columns.append((f"Total {_FLOPS_UNITS[self.flops_power]}", _WIDTH, ">"))
        return columns

    def text(self, row_limit: int, header: str | None, top_level_only: bool) -> str:
        rule = "".join("-" * width + "  " for _, width, _ in self.columns)
        double = "=" * (sum(width + 2 for _, width, _ in self.columns) - 2)
        lines = [] if header is None else [double, header]
        if top_level_only:
            lines += [double, "This report only display top-level ops statistics"]
        lines += [rule, self._line([name for name, _, _ in self.columns]), rule]
        shown = [e for e in self.events if not (top_level_only and e.cpu_parent is not None)]
        for event in shown if row_limit < 0 else shown[:row_limit]:
            lines += self._rows(event)
        lines += [rule, f"Self CPU time total: {self._time(self.cpu_total)}"]
        if self.device_time:
            lines.append(f"Self {self.device.upper()} time total: {self._time(self.device_total)}")
        return "\n".join(lines) + "\n"

    def _line(self, values: list[Any]) -> str:
        return "".join(f"{value: {side}{width}}  " for value, (_, width, side) in zip(values, self.columns))

    def _time(self, microseconds: float) -> str:
        unit = _UNITS.get(self.time_unit or "")
        return _format_time(microseconds) if unit is None else f"{microseconds / unit:.3f}{self.time_unit}"

    def _shorten(self, name: str) -> str:
        return name if self.most is None or len(name) < self.most - 3 else f"{name[: self.most - 3]}..."

    def _rows(self, event: Any) -> list[str]:
        """Return the event's row, and the rest of its stack below it."""
        stack = event.stack or []
        lines = [self._line(self._values(event, self._source(stack[0]) if stack else ""))]
        if self.stacks:
            empty = [""] * (len(self.columns) - 1)
            lines += [self._line([*empty, self._source(entry)]) for entry in stack[1:]]
            lines.append(self._line([*empty, ""]))
        return lines

    def _values(self, event: Any, source: str) -> list[Any]:
        event.self_cpu_percent = _format_time_share(event.self_cpu_time_total, self.cpu_total)
        event.total_cpu_percent = 0 if event.is_async else _format_time_share(event.cpu_time_total, self.cpu_total)
        values: list[Any] = [self._shorten(event.key)]
        if self.overloads:
            values.append(self._shorten(event.overload_name))
        values += [event.self_cpu_percent, self._time(event.self_cpu_time_total), event.total_cpu_percent]
        values += [self._time(event.cpu_time_total), self._time(event.cpu_time)]
        if self.device_time:
            event.total_device_percent = _format_time_share(event.self_device_time_total, self.device_total)
            values += [self._time(event.self_device_time_total), event.total_device_percent]
            values += [self._time(event.device_time_total), self._time(event.device_time)]
        if self.memory:
            values += [_format_memory(event.cpu_memory_usage), _format_memory(event.self_cpu_memory_usage)]
        if self.device_memory:
            values += [_format_memory(event.device_memory_usage), _format_memory(event.self_device_memory_usage)]
        values.append(event.count)
        if self.node_ids:
            values.append(event.node_id)
        if self.shapes:
            values.append(str(event.input_shapes)[: self.shapes_width])
        flops = event.flops or 0
        counted = "--" if flops <= 0 else f"{flops * 10.0 ** (-3 * (self.flops_power or 0)):8.3f}"
        ends = ([counted] if self.flops_power is not None else [], [source] if self.stacks else [])
        return [*values, *ends[0], *ends[1]]  # in this order, as PyTorch has them, whatever the headings' is

    def _source(self, line: str) -> str:
        """Return the end of a line, cut to the width of its column."""
        if len(line) <= self.source_width:
            return line
        line = line[len(line) - self.source_width :]
        return f"...{line[3:]}" if len(line) > 3 else line
