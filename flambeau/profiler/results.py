"""Conversion of recorded notes to events and to a trace for chrome://tracing, Perfetto and TensorBoard."""

from __future__ import annotations

import bisect
import functools
import gzip
import itertools
import json
import os
import socket
from collections.abc import Iterator
from typing import Any

from ..core import modes
from .event_tree import event_tree
from .events import MEMORY_EVENT_NAME, FunctionEvent, _rewrite_name
from .recorder import Described, Note, Recorder, frame_text
from .settings import DeviceType, device_type, switches

_numbers = itertools.count()
_BASE = 1790857026000000000  # traces count their microseconds from here, nanoseconds since 1970


class KinetoEvent:
    """An event with a method for each of its fields, like PyTorch's."""

    def __init__(self, event: FunctionEvent):
        self.event = event

    def correlation_id(self) -> int:
        return self.event.external_id

    def start_ns(self) -> int:
        return int(self.event.time_range.start * 1000)

    def end_ns(self) -> int:
        return int(self.event.time_range.end * 1000)

    def duration_ns(self) -> int:
        return self.end_ns() - self.start_ns()

    def start_thread_id(self) -> int:
        return self.event.thread

    def shapes(self) -> Any:
        return self.event.input_shapes

    def nbytes(self) -> int:
        return self.event.cpu_memory_usage + self.event.device_memory_usage

    def name(self) -> str:
        return self.event.trace_name or self.event.name

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.event, name)
        return lambda: value


class Results:
    """Results of one run of a recorder; events are made on first use."""

    def __init__(
        self,
        recorder: Recorder,
        use_device: str | None = None,
        flops: bool = False,
        overloads: bool = False,
        trace_id: str = "",
        modules: bool = False,
    ):
        self.recorder, self.use_device, self.flops, self.overloads = recorder, use_device, flops, overloads
        self.trace_id, self.modules = trace_id, modules
        self.metadata: dict[str, Any] = {}
        self.notes = list(recorder.finished())
        self._base = next(_numbers) << 20  # correlations of one process all differ
        self.threads: dict[int, int] = {}
        self._inputs: dict[int, list[Any]] = {}

    def trace_start_ns(self) -> int:
        return self.recorder.began_at

    def _thread(self, native: int) -> int:
        return self.threads.setdefault(native, len(self.threads) + 1)

    # -- events -----------------------------------------------------------------------------------------------------
    def events(self) -> list[KinetoEvent]:
        """Return the events with PyTorch's methods."""
        return [KinetoEvent(event) for event in self.function_events()]

    def experimental_event_tree(self) -> list[Any]:
        """Return calls, operators and allocations nested in each other, under PyTorch's names: the outermost, in the order they began."""
        return event_tree(self)

    def function_events(self) -> list[FunctionEvent]:
        """Return the events in the order they began."""
        made = [self._event(i, note) for i, note in enumerate(self.notes, 1)]
        self._add_memory(made)
        made += self._collectives(len(made))
        made += self._kernels(made[: len(self.notes)], len(made))
        made.sort(key=lambda e: (e.time_range.start, -e.time_range.end))
        return made

    def _microseconds(self, moment: int) -> float:
        return (moment - self.recorder.began) / 1000

    def _event(self, number: int, note: Note) -> FunctionEvent:
        inputs = self.inputs_of(note)
        user, thread = note.scope == modes.USER, self._thread(note.thread)
        event = FunctionEvent(
            number,
            _rewrite_name(note.name, True),
            thread,
            self._microseconds(note.start),
            self._microseconds(note.end),
            overload_name=note.operator.overload if self.overloads and note.operator is not None else "",
            fwd_thread=thread if note.scope == modes.BACKWARD else 0,
            input_shapes=[list(v.shape) if isinstance(v, Described) else [] for v in inputs],
            stack=[frame_text(frame) for frame in note.stack or ()],
            scope=note.scope,
            use_device=self.use_device,
            is_async=note.end_thread not in (None, note.thread),
            sequence_nr=note.sequence,
            trace_name=note.name,
            concrete_inputs=[_concrete(v) for v in inputs] if switches.concrete_inputs else [],
            kwinputs=dict(note.keywords or {}),
            flops=flops_of(note, inputs) if self.flops else 0,
            is_user_annotation=user,
            is_python_function=note.extra == "python",
            activity_type="user_annotation" if user else "cpu_op",
            external_id=self._base + number,
            structured_input_shapes=[_structure(v, "shape") for v in inputs],
            structured_input_strides=[_structure(v, "strides") for v in inputs],
            input_dtypes=[type_word(v) for v in inputs],
        )
        if note.marks is not None and self.recorder.clock is not None:
            elapsed = self.recorder.clock.between(note.marks)
            if elapsed > 0:
                event.append_kernel(event.name, 0, elapsed)
                event.is_legacy = True
        return event

    def inputs_of(self, note: Note) -> list[Any]:
        """Return the arguments of an operator in the order of its declaration, tensors without their values."""
        if note.inputs is None:
            return []
        found = self._inputs.get(id(note))
        if found is None:
            args, kwargs = note.inputs
            found = list(args) + list(kwargs.values())
            if note.operator is not None and note.operator.arguments:
                try:
                    found = list(note.operator.bind(tuple(args), kwargs).values())
                except TypeError:  # a form of the call that only the operator itself understands
                    pass
            self._inputs[id(note)] = found
        return found

    def _add_memory(self, made: list[FunctionEvent]) -> None:
        """Add to each event what it allocated, including calls inside; allocations outside of any become separate events."""
        by_note = {id(note): event for note, event in zip(self.notes, made)}
        for note in self.notes:
            around: Note | None = note
            while around is not None and (note.memory or note.device_memory):
                event = by_note.get(id(around))
                if event is not None:
                    event.cpu_memory_usage += note.memory
                    event.device_memory_usage += note.device_memory
                around = around.parent
        for entry in self.recorder.memory_notes:
            if entry.note is None or id(entry.note) not in by_note:
                moment, thread = self._microseconds(entry.time), self._thread(entry.thread)
                event = FunctionEvent(
                    len(made) + 1, MEMORY_EVENT_NAME, thread, moment, moment, overload_name="", fwd_thread=thread,
                    input_shapes=[], stack=[], use_device=self.use_device,
                )  # fmt: skip
                where = "cpu_memory_usage" if entry.device.type == "cpu" else "device_memory_usage"
                setattr(event, where, entry.nbytes)
                made.append(event)

    def _collectives(self, count: int) -> Iterator[FunctionEvent]:
        for i, (name, shapes, began, ended, thread) in enumerate(self.recorder.elsewhere, count + 1):
            times = (self._microseconds(int(began * 1e9)), self._microseconds(int(ended * 1e9)))
            yield FunctionEvent(
                i, name, self._thread(thread), *times, overload_name="", fwd_thread=0, input_shapes=shapes, stack=[],
                scope=modes.USER, use_device=self.use_device, is_async=True, trace_name=name, is_user_annotation=True,
            )  # fmt: skip

    def _kernels(self, made: list[FunctionEvent], count: int) -> Iterator[FunctionEvent]:
        """Yield the device's events, each linked to the innermost call that launched it."""
        for i, activity in enumerate(self.recorder.activities, count + 1):
            owner = self.caller_of(activity)
            times = self._microseconds(activity.start), self._microseconds(activity.end)
            if owner is not None:
                made[owner].append_kernel(activity.name, activity.device, times[1] - times[0])
            yield FunctionEvent(
                i, activity.name, 0, *times, overload_name="", fwd_thread=0, input_shapes=[], stack=[], flops=0,
                use_device=self.use_device, device_type=DeviceType.CUDA, device_index=activity.device,
                device_resource_id=activity.stream, trace_name=activity.name, activity_type=activity.kind,
                linked_correlation_id=0 if owner is None else owner + 1,
                extra_meta={key: json.dumps(value) for key, value in activity.details.items()},
            )  # fmt: skip

    def caller_of(self, activity: Any) -> int | None:
        """Return the position of the innermost note during which the host launched this activity."""
        if activity.called is None:
            return None
        best = bisect.bisect_right(self._start_events, activity.called) - 1
        while best >= 0 and self.notes[best].end < activity.called:
            best -= 1
        return best if best >= 0 else None

    @functools.cached_property
    def _start_events(self) -> list[int]:
        return [note.start for note in self.notes]

    # -- the trace --------------------------------------------------------------------------------------------------
    def save(self, path: str) -> None:
        """Write the trace; compressed if the name ends in .gz."""
        text = json.dumps(self.trace(os.path.basename(path)), indent=1)
        if path.endswith(".gz"):
            with gzip.open(path, "wt") as packed:
                packed.write(text)
        else:
            with open(path, "w") as file:
                file.write(text)

    def trace(self, name: str = "") -> dict[str, Any]:
        """Return the trace in the form of PyTorch's profiler."""
        entries = [*self._names(), *self._calls(), *self._arrows(), *self._gpu_events(), *self._memory(), *self._ends()]
        return {
            "schemaVersion": 1,
            "deviceProperties": [],
            **self.metadata,
            "trace_id": self.trace_id,
            "host_name": socket.gethostname(),
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": _BASE,
            "traceEvents": entries,
            "traceName": name,
        }

    def _moment(self, moment: int) -> float:
        return (moment - self.recorder.began + self.recorder.began_at - _BASE) / 1000

    def _names(self) -> Iterator[dict[str, Any]]:
        start, process = self._moment(self.recorder.began), os.getpid()

        def named(what: str, thread: int, **args: Any) -> dict[str, Any]:
            return {"ph": "M", "name": what, "ts": start, "pid": process, "tid": thread, "args": args}

        yield named("process_name", 0, name="python")
        yield named("process_labels", 0, labels="CPU")
        yield named("process_sort_index", 0, sort_index=process)
        for thread in sorted({note.thread for note in self.notes} | {one[-1] for one in self.recorder.elsewhere}):
            yield named("thread_name", thread, name=f"thread {thread} (python)")
            yield named("thread_sort_index", thread, sort_index=thread)

    def _calls(self) -> Iterator[dict[str, Any]]:
        process = os.getpid()
        for i, note in enumerate(self.notes):
            args: dict[str, Any] = {"External id": i + 1, "Record function id": 0}
            if note.sequence >= 0:
                args["Sequence number"] = note.sequence
                args["Fwd thread id"] = self._thread(note.thread) if note.scope == modes.BACKWARD else 0
            inputs = self.inputs_of(note)
            if note.inputs is not None:
                if switches.concrete_inputs:
                    shown = [_concrete(v) for v in inputs]
                    args["Concrete Inputs"] = ["" if v is None else str(v) for v in shown]
                args["Input type"] = [type_word(v) for v in inputs]
                args["Input Strides"] = [_structure(v, "strides") for v in inputs]
                args["Input Dims"] = [_structure(v, "shape") for v in inputs]
            if note.stack:
                args["Call stack"] = ";".join(frame_text(frame) for frame in note.stack)
            for key, value in (note.keywords or {}).items():
                args[key] = "None" if isinstance(value, str) and '"' in value else value
            args["Ev Idx"] = i
            kind = "user_annotation" if note.scope == modes.USER else "cpu_op"
            if note.extra == "python":
                kind = "python_function"
            yield {
                "ph": "X", "cat": kind, "name": note.name, "pid": process, "tid": note.thread, "ts": self._moment(note.start),
                "dur": (note.end - note.start) / 1000, "args": args,
            }  # fmt: skip
        for name, shapes, began, ended, thread in self.recorder.elsewhere:
            start = self._moment(int(began * 1e9))
            yield {
                "ph": "X", "cat": "user_annotation", "name": name, "pid": process, "tid": thread, "ts": start,
                "dur": (ended - began) * 1e6, "args": {"Input Dims": shapes},
            }  # fmt: skip

    def _arrows(self) -> Iterator[dict[str, Any]]:
        """Yield arrows from a forward call to the node of the backward pass that it created."""
        if not switches.links:
            return
        forward: dict[int, Note] = {}
        process, drawn = os.getpid(), set()
        for note in self.notes:
            if note.sequence >= 0 and note.scope != modes.BACKWARD:
                forward[note.sequence] = note  # parts come after the whole: the innermost stays
        for note in self.notes:
            if note.scope != modes.BACKWARD or note.sequence not in forward or note.sequence in drawn:
                continue
            drawn.add(note.sequence)
            common = {"cat": "fwdbwd", "name": "fwdbwd", "id": len(drawn), "pid": process}
            start = forward[note.sequence]
            yield {**common, "ph": "s", "tid": start.thread, "ts": self._moment(start.start)}
            yield {**common, "ph": "f", "bp": "e", "tid": note.thread, "ts": self._moment(note.start)}

    def _gpu_events(self) -> Iterator[dict[str, Any]]:
        """Yield the device's activities, with arrows from the calls that launched them."""
        process = os.getpid()
        for activity in self.recorder.activities:
            owner = self.caller_of(activity)
            place = {"pid": activity.device, "tid": activity.stream}
            start = self._moment(activity.start)
            args = {
                "External id": 0 if owner is None else owner + 1, "device": activity.device, "context": activity.context,
                "stream": activity.stream, "correlation": activity.correlation, **activity.details,
            }  # fmt: skip
            length = (activity.end - activity.start) / 1000
            yield {
                "ph": "X",
                "cat": activity.kind,
                "name": activity.name,
                **place,
                "ts": start,
                "dur": length,
                "args": args,
            }
            if owner is not None:
                common = {"cat": "ac2g", "name": "ac2g", "id": activity.correlation}
                called = {"pid": process, "tid": self.notes[owner].thread, "ts": self._moment(activity.called)}
                yield {**common, "ph": "s", **called}
                yield {**common, "ph": "f", "bp": "e", **place, "ts": start}

    def _memory(self) -> Iterator[dict[str, Any]]:
        process = os.getpid()
        for i, entry in enumerate(self.recorder.memory_notes):
            on_cpu = entry.device.type == "cpu"
            kind = DeviceType.CPU if on_cpu else device_type(entry.device.type)
            yield {
                "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": MEMORY_EVENT_NAME, "pid": process, "tid": entry.thread,
                "ts": self._moment(entry.time),
                "args": {
                    "Total Reserved": 0, "Total Allocated": entry.total, "Bytes": entry.nbytes, "Addr": entry.address,
                    "Device Id": -1 if on_cpu else entry.device.index or 0, "Device Type": kind.value, "Ev Idx": i,
                },
            }  # fmt: skip

    def _ends(self) -> Iterator[dict[str, Any]]:
        start, process = self._moment(self.recorder.began), os.getpid()
        length = (self.recorder.ended - self.recorder.began) / 1000
        yield {
            "ph": "X", "cat": "Trace", "ts": start, "dur": length, "pid": "Spans", "tid": "PyTorch Profiler",
            "name": "PyTorch Profiler (0)", "args": {"Op count": len(self.notes)},
        }  # fmt: skip
        yield {
            "name": "process_sort_index",
            "ph": "M",
            "ts": start,
            "pid": "Spans",
            "tid": 0,
            "args": {"sort_index": 536870912},
        }
        yield {"name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces", "tid": "Trace PyTorch Profiler",
               "ts": start}  # fmt: skip
        yield {"name": "Record Window End", "ph": "i", "s": "g", "pid": process, "tid": process, "ts": start + length}


def _concrete(value: Any) -> Any:
    """Return a number, a text or a list of such; None for everything else."""
    if isinstance(value, list):
        return None if any(_concrete(v) is None for v in value) else value
    return value if isinstance(value, (int, float, str)) else None


def _structure(value: Any, field: str) -> list:
    if isinstance(value, Described):
        return list(getattr(value, field) or ())
    if isinstance(value, list) and any(isinstance(v, Described) for v in value):
        return [_structure(v, field) for v in value]
    return []


def type_word(value: Any) -> str:
    """Return the type of an argument as PyTorch's traces name it."""
    if isinstance(value, Described):
        return value.dtype.cpp
    if isinstance(value, list):
        return "TensorList" if value and all(isinstance(v, Described) for v in value) else "ScalarList"
    return "" if value is None or isinstance(value, str) else "Scalar"


def flops_of(note: Note, inputs: list[Any]) -> int:
    """Return the floating point operations of a call, 0 if its operator's record does not count them."""
    op = note.operator
    return 0 if op is None or op.flops is None else op.flops(*inputs, note.result)[1]
