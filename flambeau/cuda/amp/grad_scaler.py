"""The older name of the scaler on CUDA; new programs use `flambeau.amp.GradScaler`."""

from __future__ import annotations

from typing import Any

from ... import amp
from .autocast_mode import deprecated

__all__ = ["GradScaler"]


class GradScaler(amp.GradScaler):
    """`flambeau.amp.GradScaler("cuda", ...)`."""

    def __init__(self, *args: Any, **kwargs: Any):
        deprecated("GradScaler")
        super().__init__("cuda", *args, **kwargs)
