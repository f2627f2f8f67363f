"""The settings of profilers, by PyTorch's names: devices, kinds of activity, kinds of range, switches."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

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


class _Switches:
    """Switches for what is shown of a recording."""

    concrete_inputs = True  # numbers among the arguments
    links = True  # arrows from forward calls to backward ones


switches = _Switches()


def device_type(name: str) -> DeviceType:
    """The type of a device called `cuda`."""
    return next((kind for kind in DeviceType if kind.name.lower() == name), DeviceType.PrivateUse1)


def kineto_available() -> bool:
    """Return whether traces can be recorded; they always can, by Flambeau's own recorder."""
    return True


def supported_activities() -> set[ProfilerActivity]:
    """The activities that can be recorded on this machine."""
    found = {ProfilerActivity.CPU}
    if has_backend(device("cuda")):
        found.add(ProfilerActivity.CUDA)
    return found


def config_of(config: Any) -> ExperimentalConfig:
    return ExperimentalConfig() if config is None else config
