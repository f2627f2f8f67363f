"""The autograd profiler: which operators ran, how long each took, what they allocated.

>>> with profile() as prof:
...     y = flambeau.ones(2, 2) @ flambeau.ones(2, 2)
>>> "aten::matmul" in [event.name for event in prof.function_events]
True
"""

from __future__ import annotations

import contextlib
import time
import uuid
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..backends.nvidia import cupti
from ..backends.nvidia.libraries import MissingLibrary
from ..core import modes
from ..core.naming import above
from .event_tree import PythonCalls
from .events import EventList, FunctionEventAvg
from .events import FunctionEvent as FunctionEvent
from .events import Interval as Interval
from .events import Kernel as Kernel
from .marks import emit_itt as emit_itt
from .marks import emit_nvtx as emit_nvtx
from .recorder import DeviceClock, Recorder
from .results import Results
from .settings import DeviceType as DeviceType
from .settings import ExperimentalConfig, ProfilerActivity, ProfilerState, config_of, supported_activities
from .settings import kineto_available as kineto_available

__all__ = ["EnforceUnique", "KinetoStepTracker", "emit_itt", "emit_nvtx", "profile", "record_function"]

_ExperimentalConfig = ExperimentalConfig
_is_profiler_enabled = False
_started: list[Any] = []  # profiles that are on; one at a time


class ProfilerConfig(NamedTuple):
    """The settings of a profile."""

    state: ProfilerState
    report_input_shapes: bool
    profile_memory: bool
    with_stack: bool
    with_flops: bool
    with_modules: bool
    experimental_config: ExperimentalConfig
    trace_id: str = ""


def _set_enabled(on: bool) -> None:
    global _is_profiler_enabled
    _is_profiler_enabled = on


def _gpu_recording() -> Any:
    """Return a recording of kernels; None if NVIDIA's library for that is missing, so that operators are measured by events instead."""
    try:
        return cupti.Recording()
    except MissingLibrary as problem:
        warnings.warn(f"kernels are not recorded, only operators: {problem}", stacklevel=4)
        return None


class _ProfilerStats:
    """Overhead of the profiler itself."""

    def took(self, what: str, began: int) -> int:
        """Record the time that something took since `began`; return the current time."""
        now = time.perf_counter_ns()
        setattr(self, f"{what}_call_duration_us", max(1, (now - began) // 1000))
        return now

    def __init__(self) -> None:
        self.profiling_window_duration_sec = 0.0
        self.number_of_events = 0
        self.profiler_prepare_call_duration_us = self.profiler_enable_call_duration_us = 0
        self.profiler_disable_call_duration_us = self.parse_kineto_call_duration_us = 0
        self.function_events_build_tree_call_duration_us = 0


class profile:  # noqa: N801
    """Context manager: record what runs in this thread.

    enabled: False makes it do nothing.
    use_device: "cuda" also measures the time on the GPU. `use_cuda=True` is its former name.
    record_shapes: keep the shapes of arguments, `with_flops` also counts floating point operations, `profile_memory` what is allocated,
    `with_stack` the lines of code that called, `with_modules` the layers of a network. acc_events: keep the events of former runs of the
    same profile."""

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        activity_filters: dict[ProfilerActivity, set[str]] | None = None,
    ):
        self.enabled = enabled
        if not enabled:
            return
        self.use_cuda, self.use_device = use_cuda, use_device
        if use_cuda:
            warnings.warn(
                "The attribute `use_cuda` will be deprecated soon, please use ``use_device = 'cuda'`` instead.",
                FutureWarning,
                stacklevel=2,
            )
            self.use_device = "cuda"
        self.record_shapes, self.with_flops = record_shapes or with_flops, with_flops
        self.profile_memory, self.with_stack, self.with_modules = profile_memory, with_stack, with_modules
        self.use_cpu, self.acc_events = use_cpu, acc_events
        self.experimental_config = config_of(experimental_config)
        self.custom_trace_id_callback = custom_trace_id_callback
        self.post_processing_timeout_s = post_processing_timeout_s
        self.activity_filters = activity_filters or {}
        self.trace_id = ""
        self.entered = False
        self.kineto_results: Results | None = None
        self.profiling_start_time_ns = self.profiling_end_time_ns = 0
        self._function_events: EventList | None = None
        self._stats = _ProfilerStats()
        self._recorder: Recorder | None = None
        self._check_device(use_kineto)
        if post_processing_timeout_s is not None and post_processing_timeout_s < 0:
            raise ValueError("post_processing_timeout_s must be non-negative")

    def _check_device(self, use_kineto: bool) -> None:
        if not self.use_cpu and not use_kineto:
            raise AssertionError("Device-only events supported only with Kineto (use_kineto=True)")
        if self.use_device is not None and self.use_device not in ("cuda", "xpu", "mtia", "hpu"):
            warnings.warn(f"The {self.use_device} is not a valid device option.", stacklevel=3)
            self.use_device = None
        if self.use_device is not None:
            known = ProfilerActivity[self.use_device.upper()]
            if known not in supported_activities():
                name = self.use_device.upper()
                warnings.warn(f"{name} is not available, disabling {name} profiling", stacklevel=3)
                self.use_cuda, self.use_device = False, None
        self.kineto_activities = {ProfilerActivity.CPU} if self.use_cpu else set()
        self.profiler_kind = ProfilerState.KINETO
        if self.use_device is not None:
            self.kineto_activities.add(ProfilerActivity[self.use_device.upper()])
            self.profiler_kind = ProfilerState.KINETO_GPU_FALLBACK
        if not self.kineto_activities:
            raise AssertionError("No activities specified for the profiler")

    # -- on and off -------------------------------------------------------------------------------------------------
    def default_trace_id(self) -> str:
        return f"{uuid.uuid4().int:032X}"

    def create_trace_id(self) -> str:
        return self.custom_trace_id_callback() if self.custom_trace_id_callback else self.default_trace_id()

    def config(self, create_trace_id: bool = False) -> ProfilerConfig:
        """Return the settings of the profile."""
        if create_trace_id:
            self.trace_id = self.create_trace_id()
        return ProfilerConfig(
            self.profiler_kind, self.record_shapes, self.profile_memory, self.with_stack, self.with_flops, self.with_modules,
            self.experimental_config, self.trace_id,
        )  # fmt: skip

    def __enter__(self) -> profile | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self._prepare_trace()
        self._start_trace()
        return self

    def _prepare_trace(self) -> None:
        began = time.perf_counter_ns()
        self.entered = True
        self.config(create_trace_id=True)
        self._stats.took("profiler_prepare", began)

    def _start_trace(self) -> None:
        if _started:
            raise RuntimeError("Profiler is already enabled on this thread")
        self.entered = True
        gpu = _gpu_recording() if self.use_device == "cuda" else None
        clock = None if self.use_device is None or gpu is not None else DeviceClock(above(self.use_device))
        self._recorder = Recorder(
            shapes=self.record_shapes,
            memory=self.profile_memory,
            stack=self.with_stack,
            clock=clock,
            results=self.with_flops,
        )
        self._recorder.gpu = gpu
        if self.with_stack:
            self._recorder.calls = PythonCalls(self._recorder)
        _started.append(self)
        _set_enabled(True)
        began = time.perf_counter_ns()
        self._recorder.start()
        self._stats.took("profiler_enable", began)
        self.profiling_start_time_ns = self._recorder.began

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> bool | None:
        if not self.enabled:
            return None
        recorder = self._recorder
        if recorder is None:
            raise RuntimeError("Can't disable Kineto profiler when it's not running")
        if self.use_device is not None:
            above(self.use_device).synchronize()
        began = time.perf_counter_ns()
        recorder.stop()
        self._stats.took("profiler_disable", began)
        _started.remove(self)
        _set_enabled(bool(_started))
        former = self._function_events if self.acc_events else None
        self.profiling_end_time_ns = recorder.ended
        self._stats.profiling_window_duration_sec = (recorder.ended - recorder.began) / 1e9
        self.kineto_results = Results(
            recorder, self.use_device, self.with_flops, self.experimental_config.capture_overload_names, self.trace_id
        )
        self._function_events = None
        if self.acc_events and not self.experimental_config.trace_only:
            self.function_events.extend(former or ())
        return False

    # -- what was found ---------------------------------------------------------------------------------------------
    @property
    def function_events(self) -> EventList:
        """The events, in the order they began."""
        if self.experimental_config.trace_only:
            raise RuntimeError(
                "events() is not available when trace_only=True in ExperimentalConfig. Use export_chrome_trace() instead."
            )
        if self._function_events is None:
            began = time.perf_counter_ns()
            found = [] if self.kineto_results is None else self.kineto_results.function_events()
            events = EventList(
                found, use_device=self.use_device, profile_memory=self.profile_memory, with_flops=self.with_flops
            )
            began = self._stats.took("parse_kineto", began)
            events._build_tree()
            self._stats.took("function_events_build_tree", began)
            self._stats.number_of_events = len(events)
            if self.kineto_results is None:
                return events
            self._function_events = events
        return self._function_events

    def _ensure_function_events(self) -> None:
        self.function_events  # noqa: B018  made when first asked for

    def __repr__(self) -> str:
        return self._render(repr)

    def __str__(self) -> str:
        return self._render(str)

    def _render(self, how: Callable[[Any], str]) -> str:
        if getattr(self, "kineto_results", None) is None:
            return "<unfinished torch.autograd.profile>"
        return how(self.function_events)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """Return the events as a table; see `EventList.table`."""
        widths = (max_src_column_width, max_name_column_width, max_shapes_column_width)
        return self.function_events.table(sort_by, row_limit, *widths, header, top_level_events_only)

    def export_chrome_trace(self, path: str, metadata: Any = None, use_python_export: bool = False) -> None:
        """Write a trace that chrome://tracing, Perfetto and TensorBoard show."""
        if self.kineto_results is None:
            raise AssertionError("Expected profiling results")
        self.kineto_results.metadata.update(metadata or {})
        self.kineto_results.save(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write call stacks to a file; see `EventList.export_stacks`."""
        events = self.function_events
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        events.export_stacks(path, metric)

    def toggle_collection_dynamic(self, enabled: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Pause or resume recording."""
        if ProfilerActivity.CPU in set(activities) and self._recorder is not None:
            modes.observe(self._recorder if enabled else None)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """Average events of the same name; see `EventList.key_averages`."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self) -> FunctionEventAvg:
        """Sum up all events; see `EventList.total_average`."""
        return self.function_events.total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events, each without those inside it."""
        return self.function_events.self_cpu_time_total


class record_function(contextlib.ContextDecorator):  # noqa: N801
    """Context manager or decorator: record what runs inside as a named range."""

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self.run_callbacks_on_exit = True
        self.record: Any = None
        self._observer: modes.Observer | None = None

    def _recreate_cm(self) -> record_function:
        return record_function(self.name, self.args)

    def __enter__(self) -> record_function:
        self._observer = modes.observing()
        if self._observer is not None:
            self.record = self._observer.begin(self.name, modes.USER)
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        if not self.run_callbacks_on_exit:
            current = modes.observing()
            if current is not None and current is self._observer:
                current.current = self.record.parent  # type: ignore[attr-defined]  # it goes on without a place of its own
        elif self._observer is not None:
            self._observer.end(self.record)

    def _call_end_callbacks_on_future(self, fut: Any) -> Any:
        """Extend the range until the future has its value; return a future with the same value."""
        if not self.run_callbacks_on_exit:
            raise RuntimeError("_call_end_callbacks_on_future can only be called once.")
        self.run_callbacks_on_exit = False

        def ended(done: Any) -> Any:
            if self._observer is not None:
                self._observer.end(self.record)
            return done.value()

        return fut.then(ended)


class EnforceUnique:
    """Raise when a key is seen twice."""

    def __init__(self) -> None:
        self.seen: set = set()

    def see(self, *key: Any) -> None:
        if key in self.seen:
            raise RuntimeError("duplicate key: " + str(key))
        self.seen.add(key)


class KinetoStepTracker:
    """Counter of training steps: each requester has a separate count, and the step is the greatest of them."""

    _current_step = 0
    _step_dict: dict[str, int] = defaultdict(int)

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        cls._step_dict[requester] = cls._current_step

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        return cls._step_dict.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Count another step of a requester; return the global step."""
        if requester not in cls._step_dict:
            cls.init_step_count(requester)
        cls._step_dict[requester] += 1
        new = max(cls._step_dict.values())
        if new > cls._current_step + 1:
            warnings.warn(
                f"Profiler step count has increased more than 1 - current_step = {cls._current_step} step dict = "
                f" {cls._step_dict}",
                stacklevel=2,
            )
        cls._current_step = max(new, cls._current_step)
        return cls._current_step

    @classmethod
    def current_step(cls) -> int:
        return cls._current_step


def _profiler_enabled() -> bool:
    return modes.observing() is not None


def _disable_profiler() -> None:
    """End the active profile; PyTorch's loggers call it before they begin their own."""
    _started[-1].__exit__(None, None, None)
