"""The operators of a run with their arguments, as a graph in a file: PyTorch's execution trace."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from ..core.ownership import refuse_planted
from .recorder import Described, Note, Recorder
from .results import Results, type_word


class ExecutionTraceObserver:
    """Writes the calls between `start` and `stop` into the file that `register_callback` names: one node per call, with its arguments and
    results, below the call it was made in."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._running: Recorder | None = None

    def register_callback(self, output_file_path: str) -> ExecutionTraceObserver:
        """Set the file to which the execution trace is written."""
        self._path = output_file_path
        return self

    def unregister_callback(self) -> None:
        """Stop writing execution traces."""
        self.stop()
        self._path = None

    @property
    def is_registered(self) -> bool:
        return self._path is not None

    def is_running(self) -> bool:
        return self._running is not None

    def get_output_file_path(self) -> str | None:
        return self._path

    def start(self) -> None:
        """Start recording; no effect if it has started."""
        if self._path is not None and self._running is None:
            self._running = _ChainedRecorder()
            self._running.start()

    def stop(self) -> None:
        """End the trace and write the file."""
        recorder, self._running = self._running, None
        if recorder is not None and self._path is not None:
            recorder.stop()
            with open(self._path, "w") as file:
                json.dump(written(recorder), file, indent=1)

    def cleanup(self) -> None:
        self.unregister_callback()


class _ChainedRecorder(Recorder):
    """A recorder that works alongside the profiler's: both see every call."""

    def __init__(self) -> None:
        super().__init__(shapes=True, results=True)

    def operator(self, op: Any, run: Any, args: tuple, kwargs: dict) -> Any:
        before = self._before
        if before is None:
            return super().operator(op, run, args, kwargs)
        return super().operator(op, lambda *a, **k: before.operator(op, run, a, k), args, kwargs)

    def begin(self, name: str, scope: int, sequence: int = -1) -> Note:
        note = super().begin(name, scope, sequence)
        note.extra = None if self._before is None else self._before.begin(name, scope, sequence)
        return note

    def end(self, event: Note) -> None:
        if self._before is not None:
            self._before.end(event.extra)
        super().end(event)


def _value(v: Any) -> Any:
    if isinstance(v, Described):
        return [v.storage, v.storage, 0, v.shape.numel(), v.dtype.itemsize, str(v.device)]
    if isinstance(v, (list, tuple)):
        return [_value(one) for one in v]
    return "<None>" if v is None else v


def _shape(v: Any) -> list:
    return list(v.shape) if isinstance(v, Described) else [_shape(one) for one in v] if isinstance(v, list) else []


def _describe_values(values: list[Any]) -> dict[str, list]:
    return {
        "values": [_value(v) for v in values],
        "shapes": [_shape(v) for v in values],
        "types": [f"Tensor({type_word(v)})" if isinstance(v, Described) else type(v).__name__ for v in values],
        "strides": [list(v.strides or ()) if isinstance(v, Described) else [] for v in values],
    }


def written(recorder: Recorder) -> dict[str, Any]:
    """Return the content of the file."""
    results = Results(recorder)
    numbers = {id(note): i for i, note in enumerate(recorder.notes, 2)}
    root = {
        "id": 1,
        "name": "[pytorch|profiler|execution_trace|process]",
        "ctrl_deps": 1,
        "inputs": _describe_values([]),
        "outputs": _describe_values([]),
    }
    nodes: list[dict[str, Any]] = [{**root, "attrs": []}]
    for i, note in enumerate(recorder.finished(), 1):
        given = results.inputs_of(note)
        found = [] if note.result is None else note.result if isinstance(note.result, list) else [note.result]
        attributes = {
            "rf_id": i, "fw_parent": 0, "seq_id": note.sequence, "scope": note.scope, "tid": threading.get_native_id(), "fw_tid": 0,
            "op_schema": "" if note.operator is None else str(note.operator.schema),
        }  # fmt: skip
        nodes.append({
            "id": numbers[id(note)], "name": note.name,
            "ctrl_deps": 1 if note.parent is None else numbers.get(id(note.parent), 1),
            "inputs": _describe_values(given), "outputs": _describe_values(found),
            "attrs": [{"name": k, "type": "string" if isinstance(v, str) else "uint64", "value": v} for k, v in attributes.items()],
        })  # fmt: skip
    return {
        "schema": "1.1.1-chakra.0.0.4", "pid": os.getpid(), "time": "", "start_ts": recorder.began_at // 1000, "nodes": nodes,
        "finish_ts": (recorder.began_at + recorder.ended - recorder.began) // 1000,
    }  # fmt: skip


def from_environment() -> ExecutionTraceObserver | None:
    """Return the observer that PyTorch's environment variables ask for, or None."""
    if os.environ.get("ENABLE_PYTORCH_EXECUTION_TRACE", "0") != "1":
        return None
    folder = os.environ.get("ENABLE_PYTORCH_EXECUTION_TRACE_SAVE_PATH", ".")
    path = os.path.join(folder, f"pytorch_execution_trace_{os.getpid()}.json")
    refuse_planted(path, "an execution trace")  # its name can be guessed
    return ExecutionTraceObserver().register_callback(path)
