"""`torch.accelerator`: the device beside the CPU, of which there is none yet."""

from __future__ import annotations

from typing import Any, NoReturn

from .core.device import device

_NONE = "Cannot access accelerator device when none is available."


def is_available() -> bool:
    """Whether there is a GPU that Flambeau can use."""
    return False


def device_count() -> int:
    """How many there are."""
    return 0


def current_accelerator(check_available: bool = False) -> device | None:
    """The type of accelerator this build knows: none."""
    return None


def _needs_device(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(_NONE)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Needs an accelerator."
    return function


current_device_index = _needs_device("current_device_index")
set_device_index = _needs_device("set_device_index")
current_stream = _needs_device("current_stream")
set_stream = _needs_device("set_stream")
synchronize = _needs_device("synchronize")
empty_cache = _needs_device("empty_cache")
memory_allocated = _needs_device("memory_allocated")
max_memory_allocated = _needs_device("max_memory_allocated")
memory_reserved = _needs_device("memory_reserved")
max_memory_reserved = _needs_device("max_memory_reserved")
memory_stats = _needs_device("memory_stats")
reset_peak_memory_stats = _needs_device("reset_peak_memory_stats")
