"""Names of PyTorch's compiled profiler."""

from __future__ import annotations

import traceback
from enum import Enum
from typing import Any

from ....core import modes
from ....profiler.event_tree import (  # noqa: F401  names that other people's tools ask for
    _EventType,
    _ExtraFields_Allocation,
    _ExtraFields_PyCall,
    _ExtraFields_PyCCall,
    _ExtraFields_TorchOp,
    _ProfilerEvent,
    _TensorMetadata,
)
from ....profiler.recorder import Recorder, described
from ....profiler.settings import ExperimentalConfig, ProfilerActivity, ProfilerState, RecordScope, switches

__all__ = ["ActiveProfilerType", "ProfilerActivity", "ProfilerState", "RecordScope"]

_ExperimentalConfig = ExperimentalConfig


class ActiveProfilerType(Enum):
    """The kind of profiler that is running."""

    NONE = 0
    LEGACY = 1
    KINETO = 2
    NVTX = 3
    ITT = 4
    PRIVATEUSE1 = 5


class _RecordFunctionFast:
    """A named range, with values to be shown; it can be entered repeatedly."""

    def __init__(self, name: str, input_values: Any = None, keyword_values: dict[str, Any] | None = None):
        self.name, self.values, self.keywords = name, list(input_values or ()), dict(keyword_values or {})
        self._open: list[tuple[modes.Observer, Any]] = []

    def __enter__(self) -> None:
        observer = modes.observing()
        if observer is None:
            return
        user = self.keywords.get("scope") == "user_scope"
        note = observer.begin(self.name, modes.USER if user else modes.FUNCTION)
        if isinstance(observer, Recorder) and observer.shapes:
            note.inputs, note.keywords = ([described(v) for v in self.values], {}), self.keywords
        self._open.append((observer, note))

    def __exit__(self, *exc: Any) -> None:
        if self._open:
            observer, note = self._open.pop()
            observer.end(note)


def _set_record_concrete_inputs_enabled_val(value: bool) -> None:
    """Set whether numbers among the arguments are shown together with shapes."""
    switches.concrete_inputs = value


def _get_record_concrete_inputs_enabled() -> bool:
    return switches.concrete_inputs


def _set_fwd_bwd_enabled_val(value: bool) -> None:
    """Set whether traces have arrows from forward calls to backward ones."""
    switches.links = value


def gather_traceback(python: bool = True, script: bool = False, cpp: bool = False) -> list:
    """Return the Python frames of the program's stack, the innermost first; there are none of TorchScript or C++."""
    return traceback.extract_stack()[-2::-1] if python else []


def symbolize_tracebacks(to_symbolize: list) -> list[list[dict]]:
    """Return the results of `gather_traceback` as dicts of file, line and function."""
    return [[{"filename": f.filename, "line": f.lineno, "name": f.name} for f in frames] for frames in to_symbolize]
