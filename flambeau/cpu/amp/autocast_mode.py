"""The older names of autocast on the CPU; new programs use `flambeau.amp`."""

from __future__ import annotations

import warnings

from ... import amp
from ...core.dtype import bfloat16, dtype

__all__ = ["autocast"]


def deprecated(name: str) -> None:
    warnings.warn(
        f"`torch.cpu.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}('cpu', args...)` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """`flambeau.amp.autocast("cpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: dtype = bfloat16, cache_enabled: bool = True):
        deprecated("autocast")
        super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
