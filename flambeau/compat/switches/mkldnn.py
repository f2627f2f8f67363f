"""`torch.backends.mkldnn`: oneDNN, which computes matrix products and convolutions.

`mkldnn.enabled = False` switches it off; NumPy then computes the same.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ...backends.cpu import heavy, onednn
from ...backends.cpu.onednn.library import library

VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2


def is_available() -> bool:
    return onednn.available()


def is_acl_available() -> bool:
    """False: the library for Arm processors is not used."""
    return False


class verbose:
    """Context manager: let oneDNN print a line for each primitive that it runs, and with VERBOSE_ON_CREATION for each that it makes."""

    def __init__(self, level: int):
        self.level = level

    def __enter__(self) -> verbose:
        library().call("set_verbose", self.level)
        return self

    def __exit__(self, *exc: Any) -> None:
        library().call("set_verbose", VERBOSE_OFF)


def set_flags(
    _enabled: bool | None = None, _deterministic: bool | None = None, _allow_tf32: bool | None = None
) -> tuple:
    """Set the switches that are given; return what they were."""
    module: Any = sys.modules[__name__]
    before = (module.enabled, module.deterministic, module.allow_tf32)
    for name, value in zip(("enabled", "deterministic", "allow_tf32"), (_enabled, _deterministic, _allow_tf32)):
        if value is not None:
            setattr(module, name, value)
    return before


@contextlib.contextmanager
def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool | None = True) -> Iterator[None]:
    """oneDNN switched on or off for the length of a `with` block."""
    module: Any = sys.modules[__name__]
    before = set_flags(enabled, deterministic, allow_tf32)
    try:
        yield
    finally:
        module.enabled, module.deterministic, module.allow_tf32 = before


class _Switches(ModuleType):
    """The module itself: assigning to `enabled` must have an effect. The others choose nothing here: products of float32 are always
    computed in float32, in the same order every time."""

    deterministic = False
    allow_tf32: bool | None = None

    @property
    def enabled(self) -> bool:
        return heavy.onednn_enabled()

    @enabled.setter
    def enabled(self, value: bool) -> None:
        heavy.set_onednn_enabled(value)


sys.modules[__name__].__class__ = _Switches
