"""`torch.backends.mps`: Apple's GPUs, which are not supported."""

from __future__ import annotations

from ...core.absent import raising


def is_built() -> bool:
    """Return False: MPS is not part of Flambeau."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Return False: MPS is not supported."""
    return False


def is_available() -> bool:
    """Return False: MPS is not supported."""
    return False


globals().update(
    raising("get_core_count get_name is_macos13_or_newer", RuntimeError, "Cannot execute mps.{}() without MPS backend.")
)
