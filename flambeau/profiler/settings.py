"""Settings of profilers, under PyTorch's names: devices, kinds of activity and range, switches; and attributes of events in traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from ..core.backend import has_backend
from ..core.device import device


class DeviceType(Enum):
    """The kind of device on which an event happened."""

    CPU = 0
    CUDA = 1
    MKLDNN = 2
    OPENGL = 3
    OPENCL = 4
    IDEEP = 5
    HIP = 6
    FPGA = 7
    MAIA = 8
    XLA = 9
    Vulkan = 10
    Metal = 11
    XPU = 12
    MPS = 13
    Meta = 14
    HPU = 15
    VE = 16
    Lazy = 17
    IPU = 18
    MTIA = 19
    PrivateUse1 = 20


class ProfilerActivity(Enum):
    """A kind of activity that a profiler collects."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerState(Enum):
    """The mechanism that a profiler uses."""

    Disabled = 0
    CPU = 1
    CUDA = 2
    NVTX = 3
    ITT = 4
    PRIVATEUSE1 = 5
    KINETO = 6
    KINETO_GPU_FALLBACK = 7
    KINETO_PRIVATEUSE1_FALLBACK = 8
    KINETO_ONDEMAND = 9


class RecordScope(Enum):
    """The kind of an event."""

    FUNCTION = 0
    BACKWARD_FUNCTION = 1
    TORCHSCRIPT_FUNCTION = 2
    KERNEL_FUNCTION_DTYPE = 3
    CUSTOM_CLASS = 4
    BUILD_FEATURE = 5
    LITE_INTERPRETER = 6
    USER_SCOPE = 7
    STATIC_RUNTIME_OP = 8
    STATIC_RUNTIME_MODEL = 9


@dataclass
class ExperimentalConfig:
    """Switches of PyTorch's profiler. `capture_overload_names` fills in `overload_name`, `expose_kineto_event_metadata` the
    `metadata_json` of events, `verbose` adds to traces; the others are about hardware counters and other threads, which are not
    recorded here."""

    profiler_metrics: list[str] = field(default_factory=list)
    profiler_measure_per_kernel: bool = False
    verbose: bool = False
    performance_events: list[str] = field(default_factory=list)
    enable_cuda_sync_events: bool = False
    adjust_profiler_step: bool = False
    disable_external_correlation: bool = False
    profile_all_threads: bool = False
    capture_overload_names: bool = False
    record_python_gc_info: bool = False
    expose_kineto_event_metadata: bool = False
    custom_profiler_config: str = ""
    adjust_timestamps: bool = False
    trace_only: bool = False


class _DisplaySwitches:
    """Switches for how a recording is shown."""

    concrete_inputs = True  # numbers among the arguments
    links = True  # arrows from forward calls to backward ones


switches = _DisplaySwitches()


def device_type(name: str) -> DeviceType:
    """Return the type of a device by its name, such as `cuda`."""
    return next((kind for kind in DeviceType if kind.name.lower() == name), DeviceType.PrivateUse1)


def kineto_available() -> bool:
    """Return True: traces can always be recorded, by Flambeau's own recorder."""
    return True


def supported_activities() -> set[ProfilerActivity]:
    """Return the activities that can be recorded on this machine."""
    found = {ProfilerActivity.CPU}
    if has_backend(device("cuda")):
        found.add(ProfilerActivity.CUDA)
    return found


def config_of(config: Any) -> ExperimentalConfig:
    return ExperimentalConfig() if config is None else config


def _strip_quotes(text: str) -> str:
    return text.strip('"')


# Under which key a trace has each field of EventMetadata, and how it is read.
_METADATA: dict[str, tuple[str, Callable[[str], Any]]] = {
    "registers_per_thread": ("registers per thread", int),
    "shared_memory": ("shared memory", int),
    "grid": ("grid", json.loads),
    "block": ("block", json.loads),
    "priority": ("priority", int),
    "blocks_per_sm": ("blocks per SM", float),
    "warps_per_sm": ("warps per SM", float),
    "occupancy": ("occupancy", json.loads),
    "est_occupancy_pct": ("est. achieved occupancy %", float),
    "queued": ("queued", int),
    "graph_id": ("graph id", int),
    "graph_node_id": ("graph node id", int),
    "stream": ("stream", int),
    "context": ("context", int),
    "channel": ("channel", int),
    "channel_type": ("channel_type", int),
    "bytes": ("bytes", int),
    "bandwidth_gb_s": ("memory bandwidth (GB/s)", float),
    "collective_name": ("Collective name", _strip_quotes),
    "dtype": ("dtype", _strip_quotes),
    "in_msg_nelems": ("In msg nelems", int),
    "out_msg_nelems": ("Out msg nelems", int),
    "in_split_size": ("In split size", _strip_quotes),
    "out_split_size": ("Out split size", _strip_quotes),
    "global_rank_start": ("Global rank start", int),
    "global_rank_stride": ("Global rank stride", int),
    "group_size": ("Group size", int),
    "process_group_name": ("Process Group Name", _strip_quotes),
    "process_group_desc": ("Process Group Description", _strip_quotes),
    "group_ranks": ("Process Group Ranks", _strip_quotes),
    "rank": ("Rank", int),
    "src_rank": ("Src Rank", int),
    "dst_rank": ("Dst Rank", int),
    "seq": ("Seq", int),
    "is_async": ("Is asynchronized op", lambda text: text in ("1", "true")),
}
EventMetadata: Any = NamedTuple("EventMetadata", [(name, Any) for name in _METADATA])  # type: ignore[misc]


def build_metadata(extra_meta: dict[str, str]) -> Any:
    """Return a trace's attributes of a kernel or a collective; None if none are known."""
    read = {n: convert(extra_meta[k]) for n, (k, convert) in _METADATA.items() if extra_meta.get(k) is not None}
    return EventMetadata(**{name: read.get(name) for name in _METADATA}) if read else None
