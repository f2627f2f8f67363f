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


def empty_cache() -> None:
    """Nothing to free."""


globals().update(
    _raising(
        "current_device set_device synchronize get_device_name get_device_properties",
        AssertionError,
        "Torch not compiled with XPU enabled: xpu.{}() needs an XPU device",
    )
)
