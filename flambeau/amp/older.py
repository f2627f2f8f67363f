"""The older names of mixed precision, one set per type of device: `torch.cpu.amp` and `torch.cuda.amp`."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from ..core.casts import DEFAULT_DTYPES
from ..core.dtype import dtype
from .autocast_mode import autocast
from .grad_scaler import GradScaler


def deprecated(kind: str, name: str, arguments: str = "{!r}, args...") -> None:
    """Warn that a former name of amp is deprecated, and name its replacement."""
    warnings.warn(
        f"`torch.{kind}.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}({arguments.format(kind)})` instead.",
        FutureWarning,
        stacklevel=3,
    )


class OlderAutocast(autocast):
    """`flambeau.amp.autocast` of one type of device."""

    kind: ClassVar[str]

    def __init__(self, enabled: bool = True, dtype: dtype | None = None, cache_enabled: bool = True):
        deprecated(self.kind, "autocast")
        super().__init__(self.kind, dtype or DEFAULT_DTYPES[self.kind], enabled, cache_enabled)


class OlderGradScaler(GradScaler):
    """`flambeau.amp.GradScaler` of one type of device."""

    kind: ClassVar[str]

    def __init__(self, *args: Any, **kwargs: Any):
        deprecated(self.kind, "GradScaler")
        super().__init__(self.kind, *args, **kwargs)
