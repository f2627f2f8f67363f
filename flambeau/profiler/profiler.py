"""The profiler: recording by a schedule of steps, and its outputs."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from ..core.naming import PACKAGE
from . import flame, memory
from . import session as prof
from .events import EventList
from .execution_trace import from_environment
from .layers import named_layers
from .settings import ProfilerActivity, supported_activities

PROFILER_STEP_NAME = "ProfilerStep"
_DEVICES = ("CUDA", "XPU", "MTIA", "HPU")
_FORWARDED_OPTIONS = (  # settings of a profile that autograd's has, too
    "acc_events", "activity_filters", "custom_trace_id_callback", "experimental_config", "post_processing_timeout_s", "profile_memory",
    "record_shapes", "use_device", "with_flops", "with_modules", "with_stack",
)  # fmt: skip


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=4)


def _parse_activities(activities: Iterable) -> tuple[set[ProfilerActivity], dict[ProfilerActivity, set[str]]]:
    """Return the kinds of activity to collect, and the kinds of which only some are wanted."""
    kinds: set[ProfilerActivity] = set()
    filters: dict[ProfilerActivity, set[str]] = {}
    for item in activities:
        if not isinstance(item, (ProfilerActivity, dict)):
            raise TypeError(f"Expected ProfilerActivity or dict, got {type(item)}")
        for kind in item if isinstance(item, dict) else (item,):
            if kind in kinds:
                raise ValueError(f"Activity {kind} specified more than once")
            kinds.add(kind)
            if isinstance(item, dict):
                filters[kind] = set(item[kind])
    return kinds, filters


class _KinetoProfile:
    """Recording, from `start` to `stop`, and its outputs. `profile` adds a schedule.

    activities: what to collect, by default everything supported.
    record_shapes, profile_memory, with_stack, with_flops, with_modules: see autograd.profiler.profile. With modules or stacks, each call of
    a layer is an event too."""

    def __init__(
        self,
        *,
        activities: Iterable | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        self.activities, self.activity_filters = (
            (supported_activities(), {}) if activities is None else _parse_activities(activities)
        )
        self.record_shapes, self.with_flops, self.profile_memory = record_shapes, with_flops, profile_memory
        self.with_stack, self.with_modules = with_stack, with_modules
        self.experimental_config, self.execution_trace_observer = experimental_config, execution_trace_observer
        self.acc_events, self.custom_trace_id_callback = acc_events, custom_trace_id_callback
        self.post_processing_timeout_s = post_processing_timeout_s
        self.profiler: Any = None
        self.use_device = next((d.lower() for d in _DEVICES if ProfilerActivity[d] in self.activities), None)
        self.preset_metadata: dict[str, str] = {}
        self._trace_metadata: dict[str, Any] = {}
        self._layers = contextlib.ExitStack()

    # -- on and off -------------------------------------------------------------------------------------------------
    def start(self) -> None:
        self.prepare_trace()
        self.start_trace()

    def stop(self) -> None:
        self.stop_trace()

    def prepare_trace(self) -> None:
        """Prepare the profiler for recording."""
        if self.profiler is not None and not self.acc_events:
            _warn_once(
                "Warning: Profiler clears events at the end of each cycle. Only events from the current cycle will be reported."
                " To keep events across cycles, set acc_events=True."
            )
        if self.profiler is None or not self.acc_events:
            given = {name: getattr(self, name) for name in _FORWARDED_OPTIONS}
            self.profiler = prof.profile(use_cpu=ProfilerActivity.CPU in self.activities, use_kineto=True, **given)
        self.profiler._prepare_trace()

    def start_trace(self) -> None:
        """Start recording."""
        if self.profiler is None:
            raise AssertionError("Profiler must be initialized before starting trace")
        self.profiler._start_trace()
        if self.execution_trace_observer:
            self.execution_trace_observer.start()
        if self.with_modules or self.with_stack:
            self._layers.enter_context(named_layers(self.profiler._recorder))
        for name in ("profile_memory", "with_stack", "record_shapes", "with_modules", "with_flops"):
            if getattr(self, name):
                self.add_metadata_json(name, "1")
        ranks = self._get_distributed_info()
        if ranks:
            self.add_metadata_json("distributedInfo", json.dumps(ranks))
        for key, value in self.preset_metadata.items():
            self.add_metadata_json(key, value)

    def stop_trace(self) -> None:
        """Stop recording."""
        if self.profiler is None:
            raise AssertionError("Profiler must be initialized before stopping trace")
        self._layers.close()
        if self.execution_trace_observer:
            self.execution_trace_observer.stop()
        self.profiler.__exit__(None, None, None)

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Pause or resume recording."""
        if self.profiler is not None:
            self.profiler.toggle_collection_dynamic(enable, activities)

    # -- what was found -----------------------------------------------------------------------------------------------
    def _require_results(self, purpose: str) -> Any:
        if self.profiler is None:
            raise AssertionError(f"Profiler must be initialized before {purpose}")
        return self.profiler

    def events(self) -> EventList:
        """Return the events, in the order they began."""
        return self._require_results("accessing events").function_events

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """Group calls of the same operator; see EventList.key_averages."""
        found = self._require_results("getting key averages")
        return found.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def export_chrome_trace(self, path: str, use_python_export: bool = False) -> None:
        """Write a trace that chrome://tracing, Perfetto and TensorBoard show; compressed if the name ends in .gz."""
        metadata = {key: json.loads(value) for key, value in self._trace_metadata.items()}
        self._require_results("exporting chrome trace").export_chrome_trace(path, metadata)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write lines of code with their times, for programs that draw flame graphs."""
        self._require_results("exporting stacks").export_stacks(path, metric)

    def export_flame_graph(self, path: str) -> None:
        """Write a flame graph as an SVG image: each call is above the one it was made in, with a width proportional to its time."""
        flame.save(path, self.events())

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Write the memory in use over time by category: as an image (.svg, or .html around one), as numbers (.json, .json.gz) or as single
        events (.raw.json.gz)."""
        warnings.warn(
            "`export_memory_timeline` is deprecated and will be removed in a future version. Please use"
            " `torch.cuda.memory._record_memory_history` and `torch.cuda.memory._export_memory_snapshot` instead.",
            FutureWarning,
            stacklevel=2,
        )
        self._memory_profile().save(path, device or (f"{self.use_device}:0" if self.use_device else "cpu"))

    def _memory_profile(self) -> memory.MemoryProfile:
        missing = [f"{n}=True" for n in ("record_shapes", "profile_memory", "with_stack") if not getattr(self, n)]
        if missing:
            raise ValueError(f"{', '.join(missing)} required for memory profiling.")
        if self.profiler is None or self.profiler.kineto_results is None:
            raise AssertionError("Profiler and kineto_results must be initialized for memory profiling")
        return memory.MemoryProfile(self.profiler.kineto_results)

    # -- about the recording ------------------------------------------------------------------------------------------
    def add_metadata(self, key: str, value: str) -> None:
        """Write a text into the trace."""
        self._trace_metadata[key] = json.dumps(value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """Write a value, given as JSON, into the trace."""
        self._trace_metadata[key] = value

    def preset_metadata_json(self, key: str, value: str) -> None:
        """Write a value, given as JSON, into every trace that is started from now on."""
        self.preset_metadata[key] = value

    def _get_distributed_info(self) -> dict[str, Any] | None:
        dist = sys.modules.get(f"{PACKAGE}.distributed")  # a program that has not imported it has no ranks
        if dist is None or not dist.is_available() or not dist.is_initialized():
            return None
        return {"backend": dist.get_backend(), "rank": dist.get_rank(), "world_size": dist.get_world_size()}


class ProfilerAction(Enum):
    """The action that a schedule asks for in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    DEVICE_STOPPED = 4


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Return a schedule of steps in cycles: `wait` of them are skipped, `warmup` prepare for recording, `active` are recorded; `repeat`
    times (0: without end), after the first `skip_first` steps. `skip_first_wait`: the first cycle does not wait."""
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), active={active}"
            f" (need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0)."
        )
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results", stacklevel=2)
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        cycle, place = divmod(step - skip_first + (wait if skip_first_wait else 0), length)
        if place < wait or (repeat > 0 and cycle >= repeat):
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if place == length - 1 else ProfilerAction.RECORD

    return action


def _default_schedule_fn(_: int) -> ProfilerAction:
    """Record every step: the schedule if none is given."""
    return ProfilerAction.RECORD


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False, use_python_export: bool = False
) -> Callable[[Any], None]:
    """Return a function for `on_trace_ready` that writes each trace into a folder that TensorBoard's profiler plugin reads."""

    def write(profiler: Any) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        profiler.export_chrome_trace(os.path.join(dir_name, name), use_python_export=use_python_export)

    return write


_NONE, _WARMUP, _RECORD, _SAVE = list(ProfilerAction)[:4]


class profile(_KinetoProfile):  # noqa: N801
    """Context manager: record what runs in this thread, according to a schedule of steps.

    schedule: a function of the step (see `schedule`), which `step()` counts; without one everything is recorded.
    on_trace_ready: called with the profile whenever a recording is complete.
    The other arguments are those of autograd.profiler.profile; `activities` selects what to collect."""

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        chosen = supported_activities() if activities is None else list(activities)
        if use_cuda is not None:
            warnings.warn("`use_cuda` is deprecated, use `activities` argument instead", FutureWarning, stacklevel=2)
            others = [a for a in chosen if a != ProfilerActivity.CUDA]
            chosen = [*others, ProfilerActivity.CUDA] if use_cuda else others
        if not chosen:
            raise AssertionError("No valid profiler activities found")
        super().__init__(
            activities=chosen,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            experimental_config=experimental_config,
            execution_trace_observer=execution_trace_observer or from_environment(),
            acc_events=acc_events,
            custom_trace_id_callback=custom_trace_id_callback,
            post_processing_timeout_s=post_processing_timeout_s,
        )
        self.schedule = schedule or _default_schedule_fn
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.step_rec_fn: prof.record_function | None = None
        self.current_action = self._action_at(0)
        prof.KinetoStepTracker.init_step_count(PROFILER_STEP_NAME)

    def _action_at(self, step: int) -> ProfilerAction:
        action = self.schedule(step)
        if action == ProfilerAction.DEVICE_STOPPED:
            raise ValueError(
                "ProfilerAction.DEVICE_STOPPED is set internally by the profiler and must not be returned by a user-provided"
                " schedule"
            )
        return action

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        self.stop()
        prof.KinetoStepTracker.erase_step_count(PROFILER_STEP_NAME)
        if self.execution_trace_observer:
            self.execution_trace_observer.cleanup()

    def start(self) -> None:
        self._transit_action(_NONE, self.current_action)
        self._name_step()

    def stop(self) -> None:
        self._end_step()
        self._transit_action(self.current_action, None)

    def step(self) -> None:
        """Mark the beginning of the next step of the schedule."""
        self._end_step()
        before, self.current_action = self.current_action, self._action_at(self.step_num + 1)
        self.step_num += 1
        self._transit_action(before, self.current_action)
        if os.environ.get("KINETO_USE_DAEMON", ""):
            prof.KinetoStepTracker.increment_step(PROFILER_STEP_NAME)
        self._name_step()

    def _name_step(self) -> None:
        if self.record_steps:
            self.step_rec_fn = prof.record_function(f"ProfilerStep#{self.step_num}")
            self.step_rec_fn.__enter__()

    def _end_step(self) -> None:
        if self.step_rec_fn is not None:
            self.step_rec_fn.__exit__(None, None, None)
            self.step_rec_fn = None

    def _transit_action(self, before: ProfilerAction, now: ProfilerAction | None) -> None:
        """Start, stop or save the trace when the schedule goes from one action to the next; None is the end."""
        if before == _SAVE or (before == _RECORD and now is None):
            self.stop_trace()
            self._trace_ready()
            before = _NONE
        elif before == _RECORD and now in (_NONE, _WARMUP):
            warnings.warn(f"Incorrect schedule: RECORD followed by {now.name}", stacklevel=3)
            self.stop_trace()
            return
        elif before == _WARMUP and now in (_NONE, None):
            if now is not None:
                warnings.warn("Incorrect schedule: WARMUP followed by NONE", stacklevel=3)
            self.start_trace()
            self.stop_trace()
        if before == _NONE and now not in (_NONE, None):
            self.prepare_trace()
        if before in (_NONE, _WARMUP) and now in (_RECORD, _SAVE):
            self.start_trace()

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Set the function that names each recording, from the next one on."""
        self.custom_trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        """Return the name of the recording."""
        return None if self.profiler is None else self.profiler.trace_id

    def _trace_ready(self) -> None:
        if self.on_trace_ready:
            self.on_trace_ready(self)

    def _stats(self) -> Any:
        return None if self.profiler is None else self.profiler._stats
