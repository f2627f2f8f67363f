"""`torch.xpu`: Intel's GPUs, which Flambeau does not drive."""

from __future__ import annotations

from .core.absent import raising as _raising


def is_available() -> bool:
    """False."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def device_count() -> int:
    """None are used."""
    return 0


def manual_seed(seed: int) -> None:
    """Nothing to seed."""
    int(seed)


def manual_seed_all(seed: int) -> None:
    """Nothing to seed."""
    int(seed)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False: there is no device."""
    return False


def is_current_stream_capturing() -> bool:
    """False: there are no streams."""
    return False


def empty_cache() -> None:
    """Nothing to free."""


globals().update(
    _raising(
        "current_device set_device synchronize get_device_name get_device_properties get_device_capability device get_rng_state"
        " get_rng_state_all set_rng_state set_rng_state_all max_memory_allocated mem_get_info memory_allocated memory_reserved"
        " reset_peak_memory_stats",
        AssertionError,
        "Torch not compiled with XPU enabled: xpu.{}() needs an XPU device",
    )
)
