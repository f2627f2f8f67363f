"""Profiler: which operators ran, when, how long, in which layer, with how much memory.

>>> with profile(activities=[ProfilerActivity.CPU]) as prof:
...     y = flambeau.ones(2, 2) @ flambeau.ones(2, 2)
>>> print(prof.key_averages().table(sort_by="cpu_time_total").splitlines()[1].split()[0])
Name

`python -m flambeau.profiler script.py` profiles a whole program."""

from . import itt as itt
from .execution_trace import ExecutionTraceObserver
from .profiler import (
    ProfilerAction,
    _KinetoProfile,  # noqa: F401
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from .session import KinetoStepTracker as KinetoStepTracker
from .session import record_function
from .settings import DeviceType, ProfilerActivity, kineto_available
from .settings import ExperimentalConfig as _ExperimentalConfig  # noqa: F401
from .settings import RecordScope as RecordScope

__all__ = [
    "DeviceType", "ExecutionTraceObserver", "ProfilerAction", "ProfilerActivity", "kineto_available", "profile",
    "record_function", "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip
