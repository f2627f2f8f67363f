"""Events of a profiler and lists of them: times, memory, parents and children, averages."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, NamedTuple

from .settings import DeviceType, EventMetadata, build_metadata
from .table import Table, _format_time

__all__ = [
    "EventList", "EventMetadata", "FormattedTimesMixin", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel", "MemRecordsAcc",
    "StringTable",
]  # fmt: skip

MEMORY_EVENT_NAME = "[memory]"
OUT_OF_MEMORY_EVENT_NAME = "[OutOfMemory]"
_STACK_METRICS = ["self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total", "self_privateuse1_time_total"]


def of_device(name: str) -> str:
    """Return the current name of a field: `cuda_time_total` is the former name of `device_time_total`."""
    for device in ("cuda", "xpu", "privateuse1"):
        name = name.replace(device, "device")
    return name


def _former_property(name: str, current: str) -> property:
    """Return a property under its former name."""

    def get(self: Any) -> Any:
        advice = ", please use" if name == "cuda_time" else ". Use"
        warnings.warn(f"`{name}` is deprecated{advice} `{current}` instead.", FutureWarning, stacklevel=2)
        return getattr(self, current)

    return property(get)


def _text_of(name: str) -> property:
    return property(lambda self: _format_time(getattr(self, name)))


class FormattedTimesMixin:
    """Times as texts, and per call. Classes that use it have `cpu_time_total`, `device_time_total` and `count`."""

    count: int
    cpu_time_total: Any
    device_time_total: Any

    cpu_time_str = _text_of("cpu_time")
    device_time_str = _text_of("device_time")
    cpu_time_total_str = _text_of("cpu_time_total")
    device_time_total_str = _text_of("device_time_total")
    self_cpu_time_total_str = _text_of("self_cpu_time_total")
    self_device_time_total_str = _text_of("self_device_time_total")
    cuda_time = _former_property("cuda_time", "device_time")

    @property
    def cpu_time(self) -> float:
        """The mean CPU time of a call, in microseconds."""
        return 0.0 if self.count == 0 else 1.0 * self.cpu_time_total / self.count

    @property
    def device_time(self) -> float:
        """Microseconds of one call on the accelerator."""
        return 0.0 if self.count == 0 else 1.0 * self.device_time_total / self.count


class Interval:
    """Interval from `start` to `end`, in microseconds."""

    def __init__(self, start: float, end: float):
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        return self.end - self.start


class Kernel(NamedTuple):
    """A kernel that an operator ran on an accelerator."""

    name: str
    device: int
    duration: float


# -- events -----------------------------------------------------------------------------------------------------------
class FunctionEvent(FormattedTimesMixin):
    """A call of an operator, or a range with a name. Times are microseconds since the profiler began.

    `cpu_children` are the calls made inside, `cpu_parent` the one it was made in; `kernels` what it ran on an accelerator;
    `cpu_memory_usage` the bytes allocated less those freed. `sequence_nr` is the number of the node of the graph that a forward call
    made, and that of the node which a backward call runs: equal numbers belong together."""

    def __init__(
        self,
        id: int,
        name: str,
        thread: int,
        start_us: float,
        end_us: float,
        overload_name: str | None = None,
        fwd_thread: int | None = None,
        input_shapes: Any = None,
        stack: Any = None,
        scope: int = 0,
        use_device: str | None = None,
        cpu_memory_usage: int = 0,
        device_memory_usage: int = 0,
        is_async: bool = False,
        is_remote: bool = False,
        sequence_nr: int = -1,
        node_id: int = -1,
        device_type: DeviceType = DeviceType.CPU,
        device_index: int = 0,
        device_resource_id: int | None = None,
        is_legacy: bool = False,
        flops: int | None = None,
        trace_name: str | None = None,
        concrete_inputs: Any = None,
        kwinputs: Any = None,
        is_user_annotation: bool = False,
        is_python_function: bool = False,
        activity_type: str | None = None,
        metadata_json: str | None = None,
        flow_id: int | None = None,
        flow_type: int | None = None,
        flow_start: bool | None = None,
        external_id: int = 0,
        linked_correlation_id: int = 0,
        extra_meta: dict[str, str] | None = None,
        structured_input_shapes: Any = None,
        structured_input_strides: Any = None,
        input_dtypes: Any = None,
        python_id: int = -1,
        python_parent_id: int = -1,
        python_module_id: int = -1,
    ):
        given = dict(locals())
        for left in ("self", "start_us", "end_us", "metadata_json", "extra_meta", "__class__"):
            given.pop(left, None)
        self.__dict__.update(given)
        self.id, self.name, self.thread, self.use_device = id, name, thread, use_device
        self.time_range = Interval(start_us, end_us)
        self.device_resource_id = thread if device_resource_id is None else device_resource_id
        self.device_type, self.is_async, self.is_legacy, self.scope = device_type, is_async, is_legacy, scope
        self.cpu_memory_usage, self.device_memory_usage = cpu_memory_usage, device_memory_usage
        self.sequence_nr, self.node_id, self.input_shapes, self.stack = sequence_nr, node_id, input_shapes, stack
        self.flops, self.fwd_thread, self.is_remote = flops, fwd_thread, is_remote
        self.overload_name, self.trace_name, self.external_id = overload_name, trace_name, external_id
        self.kernels: list[Kernel] = []
        self.count = 1
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.self_cpu_percent: Any = -1
        self.total_cpu_percent: Any = -1
        self.total_device_percent: Any = -1
        self._metadata_json = metadata_json
        self.event_metadata = build_metadata(extra_meta) if extra_meta else None

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        self._must_be_on_cpu(self, "device_type")
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Add a call made directly inside this one."""
        self._must_be_on_cpu(self, "device_type")
        if not isinstance(child, FunctionEvent):
            raise AssertionError("Expected child to be a FunctionEvent")
        self._must_be_on_cpu(child, "child device_type")
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Set the call that directly contains this one."""
        self._must_be_on_cpu(self, "device_type")
        if not isinstance(parent, FunctionEvent):
            raise AssertionError("Expected parent to be a FunctionEvent")
        self._must_be_on_cpu(parent, "parent device_type")
        self.cpu_parent = parent

    @staticmethod
    def _must_be_on_cpu(event: FunctionEvent, what: str) -> None:
        if event.device_type != DeviceType.CPU:
            raise AssertionError(f"Expected {what} to be CPU")

    def _without_children(self, name: str) -> Any:
        if self.is_async or self.device_type != DeviceType.CPU:
            return 0
        return getattr(self, name) - sum(getattr(child, name) for child in self.cpu_children)

    @property
    def self_cpu_memory_usage(self) -> int:
        return self._without_children("cpu_memory_usage")

    @property
    def self_device_memory_usage(self) -> int:
        return self._without_children("device_memory_usage")

    @property
    def cpu_time_total(self) -> float:
        return self.time_range.elapsed_us() if self.device_type == DeviceType.CPU else 0

    @property
    def self_cpu_time_total(self) -> float:
        return self._without_children("cpu_time_total")

    @property
    def device_time_total(self) -> float:
        if self.is_async or not self.use_device:
            return 0
        if self.device_type != DeviceType.CPU:
            return self.time_range.elapsed_us()
        own = sum(kernel.duration for kernel in self.kernels)
        return own if self.is_legacy else own + sum(child.device_time_total for child in self.cpu_children)

    @property
    def self_device_time_total(self) -> float:
        if self.is_async or not self.use_device:
            return 0
        if self.device_type != DeviceType.CPU:
            return self.device_time_total
        return self.device_time_total - sum(child.device_time_total for child in self.cpu_children)

    @property
    def metadata_json(self) -> str | None:
        warnings.warn("`metadata_json` is deprecated. Use `event_metadata` instead.", FutureWarning, stacklevel=2)
        return self._metadata_json

    self_cuda_memory_usage = _former_property("self_cuda_memory_usage", "self_device_memory_usage")
    cuda_time_total = _former_property("cuda_time_total", "device_time_total")
    self_cuda_time_total = _former_property("self_cuda_time_total", "self_device_time_total")

    @property
    def key(self) -> str:
        return self.name

    def __repr__(self) -> str:
        device = self.use_device
        children = [child.id for child in self.cpu_children]
        return (
            f"<FunctionEvent id={self.id} name={self.name} overload_name={self.overload_name} device_type={self.device_type}"
            f" node_id={self.node_id} cpu_time={self.cpu_time_str} start_us={self.time_range.start}"
            f" end_us={self.time_range.end} cpu_children={children} {device}_time={self.device_time_str} name={self.name}"
            f" thread={self.thread} input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}"
            f" {device}_memory_usage={self.device_memory_usage} is_async={self.is_async} is_remote={self.is_remote}"
            f" seq_nr={self.sequence_nr} is_legacy={self.is_legacy}>"
        )


_SUMMED_FIELDS = (
    "cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total", "cpu_memory_usage",
    "device_memory_usage", "self_cpu_memory_usage", "self_device_memory_usage", "count",
)  # fmt: skip
_COPIED_FIELDS = (
    "node_id", "is_async", "is_remote", "cpu_parent", "cpu_children", "overload_name", "input_shapes", "stack", "scope",
    "device_type", "is_legacy", "use_device", "is_user_annotation",
)  # fmt: skip


class FunctionEventAvg(FormattedTimesMixin):
    """All calls with the same key, summed; `cpu_time` and `device_time` are the averages."""

    cpu_memory_usage: int
    device_memory_usage: int

    def __init__(self) -> None:
        self.__dict__.update(dict.fromkeys(_SUMMED_FIELDS, 0), **dict.fromkeys(_COPIED_FIELDS))
        self.key: str | None = None
        self.count = self.flops = self.node_id = 0
        self.is_async = self.is_remote = self.is_legacy = self.is_user_annotation = False
        self.device_type = DeviceType.CPU
        self.use_device: str | None = None
        self.input_shapes: Any = None
        self.stack: Any = None
        self.overload_name: Any = None

    def add(self, other: Any) -> FunctionEventAvg:
        """Add the times of another event of the same name."""
        if self.key is None:
            self.key = other.key
            for name in _COPIED_FIELDS:
                setattr(self, name, getattr(other, name))
        if not isinstance(other, (FunctionEvent, FunctionEventAvg)):
            raise AssertionError("Expected other to be a FunctionEvent or FunctionEventAvg")
        if other.key != self.key:
            raise AssertionError(f"Expected keys to match, but got {other.key} vs {self.key}")
        for name in _SUMMED_FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if self.flops is None:
            self.flops = other.flops
        elif other.flops is not None:
            self.flops += other.flops
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        device = self.use_device or "cuda"
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str} "
            f" self_{device}_time={self.self_device_time_total_str} {device}_time={self.device_time_str}"
            f" input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}"
            f" {device}_memory_usage={self.device_memory_usage}>"
        )


# -- lists of events --------------------------------------------------------------------------------------------------
class EventList(list):
    """Events in the order they began, with the tables and files made from them."""

    def __init__(self, *args: Any, **kwargs: Any):
        self._use_device = kwargs.pop("use_device", None)
        self._profile_memory = kwargs.pop("profile_memory", False)
        self._with_flops = kwargs.pop("with_flops", False)
        self._tree_built = False
        super().__init__(*args, **kwargs)

    def __str__(self) -> str:
        return self.table()

    # -- the tree ---------------------------------------------------------------------------------------------------
    def _build_tree(self) -> None:
        self._populate_cpu_children()
        self._remove_dup_nodes()
        self._set_backward_stacktraces()
        self._tree_built = True

    def _populate_cpu_children(self) -> None:
        """Link events: one within the time of another of the same thread is its child."""
        open_events: dict[tuple, list[FunctionEvent]] = defaultdict(list)
        on_cpu = (e for e in self if not e.is_async and e.device_type == DeviceType.CPU)
        for event in sorted(on_cpu, key=lambda e: (e.time_range.start, -e.time_range.end)):
            around = open_events[event.thread, event.node_id]
            start, end = event.time_range.start, event.time_range.end
            while around and (start >= around[-1].time_range.end or end > around[-1].time_range.end):
                around.pop()
            if around:
                if event.cpu_parent is not None:
                    raise AssertionError(f"There is already a CPU parent event for {event.key}")
                around[-1].append_cpu_child(event)
                event.set_cpu_parent(around[-1])
            around.append(event)

    def _remove_dup_nodes(self) -> None:
        """Remove events that contain nothing but one of the same name."""
        dropped: set[int] = set()
        for event in reversed(self):
            parent = event.cpu_parent
            if parent is not None and parent.name == event.name and len(parent.cpu_children) == 1:
                parent.cpu_children, parent.kernels = event.cpu_children, event.kernels
                for child in event.cpu_children:
                    child.cpu_parent = parent
                dropped.add(id(event))
        if dropped:
            self[:] = [event for event in self if id(event) not in dropped]

    def _set_backward_stacktraces(self) -> None:
        """Set the source lines of events of a backward pass to those of their forward calls."""
        stacks: dict[tuple, Any] = {}
        backward: list[tuple[FunctionEvent, FunctionEvent]] = []
        for event in self:
            around = event
            while around is not None and around.scope != 1:
                around = around.cpu_parent
            if around is not None:
                backward.append((event, around))
            elif event.stack is not None:
                stacks.setdefault((event.sequence_nr, event.thread), event.stack)
        for event, around in backward:
            if around.fwd_thread is None:
                raise AssertionError("Expected fwd_thread to be set for backward parent")
            event.stack = stacks.get((around.sequence_nr, around.fwd_thread), [])

    # -- sums -------------------------------------------------------------------------------------------------------
    @property
    def self_cpu_time_total(self) -> float:
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """Group calls of the same name; with these arguments, only those with the same shapes, lines of code or overload."""
        if not self._tree_built:
            raise AssertionError("Expected tree to be built before calling key_averages")
        groups: dict[tuple, FunctionEventAvg] = defaultdict(FunctionEventAvg)
        for event in self:
            key = [event.key, event.node_id, event.device_type, event.is_legacy, event.is_user_annotation]
            if group_by_overload_name:
                key.append(event.overload_name)
            if group_by_input_shapes:
                key.append(str(event.input_shapes))
            if group_by_stack_n > 0:
                key += event.stack[:group_by_stack_n]
            groups[tuple(key)].add(event)
        averages = self._like(groups.values())
        for average in averages:
            average.stack = (average.stack or [])[:group_by_stack_n]
            if not group_by_input_shapes:
                average.input_shapes = ""
            if not group_by_overload_name:
                average.overload_name = ""
        return averages

    def total_average(self) -> FunctionEventAvg:
        """Return the sums over all events."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
            total.key = None
        total.key = "Total"
        return total

    def _like(self, events: Iterable) -> EventList:
        return EventList(
            events, use_device=self._use_device, profile_memory=self._profile_memory, with_flops=self._with_flops
        )

    # -- texts and files --------------------------------------------------------------------------------------------
    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """Return the events as text, sorted by one of their times or sizes, the first `row_limit` of them."""
        if not self:
            return ""
        events = self
        if sort_by is not None:
            events = self._like(sorted(self, key=attrgetter(of_device(sort_by)), reverse=True))
        widths = (max_name_column_width, max_shapes_column_width, max_src_column_width)
        made = Table(events, self._profile_memory, self._with_flops, time_unit, *widths)
        return made.text(row_limit, header, top_level_events_only)

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as a list that chrome://tracing shows."""
        entries = []
        for event in self:
            if event.trace_name is None:
                continue
            thread = f" node_id:{event.node_id}, thread_id:{event.thread} " if event.is_remote else event.thread
            start = event.time_range.start
            common = {"name": event.trace_name, "ts": start, "tid": thread, "pid": "CPU functions"}
            entries.append({**common, "ph": "X", "dur": event.time_range.elapsed_us(), "args": {}})
            for _ in event.kernels:
                arrow = {"ph": "s", "id": len(entries), "cat": f"cpu_to_{self._use_device or 'cuda'}", "args": {}}
                entries.append({**common, **arrow})
        with open(path, "w") as file:
            json.dump(entries, file)

    def supported_export_stacks_metrics(self) -> list[str]:
        return list(_STACK_METRICS)

    def export_stacks(self, path: str, metric: str) -> None:
        """Write the lines of code that events came from, with their times, in the format of programs that draw flame graphs."""
        if metric not in _STACK_METRICS:
            raise ValueError(f"metric should be one of: {_STACK_METRICS}")
        joined = str.maketrans(" ;\t\n", "____")
        with open(path, "w") as file:
            for event in self:
                value = int(getattr(event, of_device(metric))) if event.stack else 0
                if value > 0:
                    file.write(";".join(entry.translate(joined) for entry in reversed(event.stack)) + f" {value}\n")


class StringTable(defaultdict):
    """Display names of events; no name is mangled here."""

    def __missing__(self, key: str) -> str:
        self[key] = key
        return key


class MemRecordsAcc:
    """Finds the records of memory that fall into an interval."""

    def __init__(self, mem_records: list):
        self._records = sorted(((r[0].start_ns(), i) for i, r in enumerate(mem_records)))
        self._mem_records = mem_records

    def in_interval(self, start_ns: int, end_ns: int) -> Iterable:
        return (self._mem_records[i] for start, i in self._records if start_ns <= start <= end_ns)


def _rewrite_name(name: str, with_wildcard: bool = False) -> str:
    """Return the name that calls are grouped by: numbered steps have one name."""
    return "ProfilerStep*" if with_wildcard and name.startswith("ProfilerStep#") else name
