"""The older name of the scaler on the CPU; new programs use `flambeau.amp.GradScaler`."""

from __future__ import annotations

from ... import amp
from .autocast_mode import deprecated

__all__ = ["GradScaler"]


class GradScaler(amp.GradScaler):
    """`flambeau.amp.GradScaler("cpu", ...)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        deprecated("GradScaler")
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
