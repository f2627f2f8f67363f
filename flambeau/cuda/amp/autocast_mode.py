"""The older names of autocast on CUDA; new programs use `flambeau.amp`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ... import amp
from ...core.dtype import dtype, float16

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


def deprecated(name: str, arguments: str = "'cuda', args...") -> None:
    warnings.warn(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}({arguments})` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """`flambeau.amp.autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: dtype = float16, cache_enabled: bool = True):
        deprecated("autocast")
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def custom_fwd(fwd: Callable | None = None, *, cast_inputs: dtype | None = None) -> Callable[..., Any]:
    """`flambeau.amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)`"""
    deprecated("custom_fwd", "args..., device_type='cuda'")
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable) -> Callable[..., Any]:
    """`flambeau.amp.custom_bwd(bwd, device_type="cuda")`"""
    deprecated("custom_bwd", "args..., device_type='cuda'")
    return amp.custom_bwd(bwd, device_type="cuda")
