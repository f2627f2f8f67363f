"""`torch.cpu`: the CPU seen as a device. Kernels have finished when a call returns, so there is nothing to wait for."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def device_count() -> int:
    return 1


def current_device() -> str:
    return "cpu"


def set_device(device: Any) -> None:
    """There is only one."""


def synchronize(device: Any = None) -> None:
    """Nothing is pending."""
