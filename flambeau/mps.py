"""`torch.mps`: Apple's GPUs, which Flambeau does not drive."""

from __future__ import annotations

from typing import Any, NoReturn


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """None are used."""
    return 0


def manual_seed(seed: int) -> None:
    """Nothing to seed."""
    int(seed)


def _needs_device(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"Cannot execute mps.{name}() without MPS backend.")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Needs an MPS device."
    return function


seed = _needs_device("seed")
synchronize = _needs_device("synchronize")
empty_cache = _needs_device("empty_cache")
get_rng_state = _needs_device("get_rng_state")
set_rng_state = _needs_device("set_rng_state")
current_allocated_memory = _needs_device("current_allocated_memory")
driver_allocated_memory = _needs_device("driver_allocated_memory")
