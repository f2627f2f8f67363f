"""`torch.mps`: Apple's GPUs, which are not supported."""

from __future__ import annotations

from typing import Any

from .core import naming as _naming
from .core.absent import absent_classes as _absent_classes
from .core.absent import raising as _raising

__path__ = ()  # modules of gathered names are found below this one


def is_available() -> bool:
    """Return False: MPS is not supported."""
    return False


def device_count() -> int:
    """Return 0: MPS is not supported."""
    return 0


def manual_seed(seed: int) -> None:
    """Do nothing: there is no MPS generator."""
    int(seed)


globals().update(
    _raising(
        """seed synchronize empty_cache get_rng_state set_rng_state current_allocated_memory driver_allocated_memory
        recommended_max_memory compile_shader load_metallib set_per_process_memory_fraction""",
        RuntimeError,
        "Cannot execute mps.{}() without MPS backend.",
    )
)
globals().update(
    _raising(
        "_is_capturing_metal _is_metal_capture_enabled _metal_capture _profile _start _stop",
        RuntimeError,
        "Cannot execute mps.profiler.{}() without MPS backend.",
    )
)
globals().update(_absent_classes("Event", "Cannot make an mps.{} without MPS backend."))


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
