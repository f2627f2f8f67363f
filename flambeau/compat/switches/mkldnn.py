"""`torch.backends.mkldnn`: oneDNN, which computes matrix products and convolutions.

`mkldnn.enabled = False` switches it off; NumPy then computes the same.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType

from ...backends.cpu import heavy, onednn


def is_available() -> bool:
    return onednn.available()


@contextlib.contextmanager
def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True) -> Iterator[None]:
    """oneDNN switched on or off for the length of a `with` block."""
    before = heavy.set_onednn_enabled(enabled)
    try:
        yield
    finally:
        heavy.set_onednn_enabled(before)


class _Switches(ModuleType):
    """The module itself: assigning to `enabled` must have an effect."""

    @property
    def enabled(self) -> bool:
        return heavy.onednn_enabled()

    @enabled.setter
    def enabled(self, value: bool) -> None:
        heavy.set_onednn_enabled(value)


sys.modules[__name__].__class__ = _Switches
