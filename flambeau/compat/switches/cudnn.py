"""`torch.backends.cudnn`: switches for the library that computes convolutions, attention and recurrent layers on a GPU."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType as _ModuleType
from typing import Any

from ...backends import nvidia
from ...backends.nvidia import cudnn_graph
from ...core.settings import cudnn_switches as _switches


def version() -> int | None:
    """Return the library's version, 91900 for 9.19.0; None if it is missing."""
    try:
        nvidia.start()
        return cudnn_graph.version()
    except nvidia.NoDevice:  # or no library: a MissingLibrary is one
        return None


def is_available() -> bool:
    """Return whether there is a GPU and the library for it."""
    return version() is not None


def is_acceptable(tensor: Any) -> bool:
    """Return whether cuDNN can work on this tensor."""
    return tensor.is_cuda and tensor.dtype.is_floating_point and tensor.dtype.itemsize > 1 and is_available()


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int | None = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> Iterator[None]:
    """Context manager: set the switches, restore them on exit."""
    before = {name: getattr(_switches, name) for name in _NAMES}
    inside = (enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
    _switches.__dict__.update(zip(_NAMES, inside))
    try:
        yield
    finally:
        _switches.__dict__.update(before)


class _Switches(_ModuleType):
    """The module's class: its switches are those that callers of the library read."""

    enabled: bool
    benchmark: bool
    benchmark_limit: int | None
    deterministic: bool
    allow_tf32: bool

    def __getattr__(self, name: str) -> Any:
        if name in _NAMES:
            return getattr(_switches, name)
        raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _NAMES:
            setattr(_switches, name, value)
        else:
            super().__setattr__(name, value)


_NAMES = tuple(_Switches.__annotations__)
sys.modules[__name__].__class__ = _Switches
