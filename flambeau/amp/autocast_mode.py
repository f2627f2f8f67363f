"""`autocast`, as far as it goes: switched off by its argument or for want of its device, it changes nothing, as in PyTorch.

Lower precision on the CPU is not there yet, and asking for it raises: silently computing in float32 would be another program.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ..core.device import device
from ..core.dtype import bfloat16, dtype, float16

_DEFAULTS = {"cpu": bfloat16, "cuda": float16, "mps": float16, "xpu": bfloat16}


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast is implemented for this type of device."""
    device(device_type)
    return False


class autocast:
    """Inside, operators would choose the precision they compute in.

    >>> with flambeau.autocast("cuda", dtype=flambeau.float16, enabled=False):
    ...     y = flambeau.ones(2)
    """

    def __init__(
        self, device_type: str, dtype: dtype | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = device(device_type).type
        self.fast_dtype = dtype or _DEFAULTS.get(self.device, float16)
        if enabled and self.device != "cpu":
            warnings.warn(
                f"autocast was asked for on {self.device!r}, but no such device is available. Disabling autocast.",
                stacklevel=2,
            )
            enabled = False
        self._enabled = enabled
        self._cache_enabled = True if cache_enabled is None else cache_enabled

    def __enter__(self) -> autocast:
        if self._enabled:
            raise NotImplementedError(
                f"autocast('cpu', dtype={self.fast_dtype}) is not in Flambeau yet: leave it out or pass enabled=False to compute"
                " in the tensors' own dtypes"
            )
        return self

    def __exit__(self, *exc: Any) -> None:
        return None

    def __call__(self, func: Callable) -> Callable:
        @functools.wraps(func)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return decorated
