"""The older names of mixed precision on CUDA; new programs use `flambeau.amp`."""

from __future__ import annotations

import warnings
from typing import Any

from .. import amp
from ..core.dtype import dtype, float16

__all__ = ["GradScaler", "autocast"]


def _deprecated(name: str) -> None:
    warnings.warn(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}('cuda', args...)` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """`flambeau.amp.autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: dtype = float16, cache_enabled: bool = True):
        _deprecated("autocast")
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """`flambeau.amp.GradScaler("cuda", ...)`."""

    def __init__(self, *args: Any, **kwargs: Any):
        _deprecated("GradScaler")
        super().__init__("cuda", *args, **kwargs)
