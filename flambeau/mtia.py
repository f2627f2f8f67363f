"""`torch.mtia`: accelerators of Meta's, which Flambeau does not drive."""

from __future__ import annotations

from .core.absent import raising as _raising


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """Return 0: no such devices are used."""
    return 0


globals().update(
    _raising(
        "current_device set_device synchronize current_stream",
        AssertionError,
        "Torch not compiled with MTIA enabled: mtia.{}() needs an MTIA device",
    )
)
