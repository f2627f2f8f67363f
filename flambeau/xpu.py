"""`torch.xpu`: Intel's GPUs, which Flambeau does not drive."""

from __future__ import annotations

from typing import Any, NoReturn


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


def _needs_device(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise AssertionError(f"Torch not compiled with XPU enabled: xpu.{name}() needs an XPU device")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Needs an XPU device."
    return function


current_device = _needs_device("current_device")
set_device = _needs_device("set_device")
synchronize = _needs_device("synchronize")
get_device_name = _needs_device("get_device_name")
get_device_properties = _needs_device("get_device_properties")
