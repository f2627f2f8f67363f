"""`torch.utils._device`: the default device as a context manager."""

from __future__ import annotations

from typing import Any

from ..core import device as _device
from ..core.device import device


class DeviceContext:
    """Context manager: make new tensors on `device`, and restore the former default on exit.

    >>> with DeviceContext("meta"):
    ...     flambeau.ones(2).device
    device(type='meta')
    """

    def __init__(self, device: Any) -> None:
        self.device = _device.device(device)

    def __enter__(self) -> DeviceContext:
        self.device.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.device.__exit__(*exc)


def set_device(device: Any) -> Any:
    """Return a decorator that runs a function with `device` as the default."""
    return lambda function: _run_on(device, function)


def _run_on(where: Any, function: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        with DeviceContext(where):
            return function(*args, **kwargs)

    return run


def __getattr__(name: str) -> Any:
    """Return `CURRENT_DEVICE`, the default device; None if it is the CPU."""
    if name != "CURRENT_DEVICE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    current = _device.default_device()
    return None if current == device("cpu") else current
