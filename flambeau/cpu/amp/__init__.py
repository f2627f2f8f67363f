"""The older names of mixed precision on the CPU; new programs use `flambeau.amp`."""

import sys as _sys

from ...amp import older as _older

__all__ = ["GradScaler", "autocast"]

autocast_mode = grad_scaler = _sys.modules[__name__]  # PyTorch's modules of these names are this one


class autocast(_older.OlderAutocast):
    """`flambeau.amp.autocast("cpu", ...)`."""

    kind = "cpu"


class GradScaler(_older.OlderGradScaler):
    """`flambeau.amp.GradScaler("cpu", ...)`."""

    kind = "cpu"
