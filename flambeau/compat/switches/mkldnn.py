"""`torch.backends.mkldnn`: oneDNN, which computes matrix products and convolutions.

`mkldnn.enabled = False` switches it off; NumPy then computes the same.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ...backends.cpu import heavy, onednn
from ...backends.cpu.onednn.library import library

VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2


def is_available() -> bool:
    return onednn.available()


def is_acl_available() -> bool:
    """Return False: the library for Arm processors is not used."""
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
    """Set the given switches; return their old values."""
    module: Any = sys.modules[__name__]
    before = (module.enabled, module.deterministic, module.allow_tf32)
    for name, value in zip(("enabled", "deterministic", "allow_tf32"), (_enabled, _deterministic, _allow_tf32)):
        if value is not None:
            setattr(module, name, value)
    return before


@contextlib.contextmanager
def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool | None = True) -> Iterator[None]:
    """Context manager: set the switches of oneDNN, restore them on exit."""
    before = set_flags(enabled, deterministic, allow_tf32)
    try:
        yield
    finally:
        set_flags(*before)


def _check_settings(value: Any, setter: str) -> bool:
    if not isinstance(value, bool):
        raise RuntimeError(f"{setter} expects a bool, but got {type(value).__name__}")
    return value


class _Switches(ModuleType):
    """The module's class: assigning to `enabled` must have an effect. `deterministic` and `allow_tf32` are for Intel's GPUs: elsewhere
    products of float32 are computed in float32, in the same order every time, and `allow_tf32` remains None, as in PyTorch."""

    _deterministic = False

    @property
    def deterministic(self) -> bool:
        return self._deterministic

    @deterministic.setter
    def deterministic(self, value: bool) -> None:
        self._deterministic = _check_settings(value, "set_deterministic_mkldnn")

    @property
    def allow_tf32(self) -> None:
        return None

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        _check_settings(value, "_set_onednn_allow_tf32")
        warnings.warn(
            "TF32 acceleration on top of oneDNN is available for Intel GPUs, of which none is here.", stacklevel=2
        )

    @property
    def enabled(self) -> bool:
        return heavy.onednn_enabled()

    @enabled.setter
    def enabled(self, value: bool) -> None:
        heavy.set_onednn_enabled(value)


sys.modules[__name__].__class__ = _Switches
