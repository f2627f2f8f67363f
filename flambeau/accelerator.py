"""`torch.accelerator`: the device beside the CPU, of which there is none yet."""

from __future__ import annotations

from .core.absent import raising as _raising
from .core.device import device


def is_available() -> bool:
    """Whether there is a GPU that Flambeau can use."""
    return False


def device_count() -> int:
    """How many there are."""
    return 0


def current_accelerator(check_available: bool = False) -> device | None:
    """The type of accelerator this build knows: none."""
    return None


globals().update(
    _raising(
        """current_device_index set_device_index current_stream set_stream synchronize empty_cache memory_allocated
        max_memory_allocated memory_reserved max_memory_reserved memory_stats reset_peak_memory_stats""",
        RuntimeError,
        "Cannot access accelerator device when none is available.",
    )
)
