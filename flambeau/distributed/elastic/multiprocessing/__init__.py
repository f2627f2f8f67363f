"""Worker processes and the destinations of their output."""

from .logs import DefaultLogsSpecs, LogsSpecs, Std, to_map
from .workers import RunResult, SignalException, Workers, handled_signals

__all__ = [
    "DefaultLogsSpecs", "LogsSpecs", "RunResult", "SignalException", "Std", "Workers", "handled_signals", "to_map",
]  # fmt: skip
