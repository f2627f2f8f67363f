"""The older names of autocast on CUDA; new programs use `flambeau.amp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import amp
from ...amp.older import OlderAutocast, deprecated
from ...core.dtype import dtype

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


class autocast(OlderAutocast):
    """`flambeau.amp.autocast("cuda", ...)`."""

    kind = "cuda"


def custom_fwd(fwd: Callable | None = None, *, cast_inputs: dtype | None = None) -> Callable[..., Any]:
    """`flambeau.amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)`"""
    deprecated("cuda", "custom_fwd", "args..., device_type={!r}")
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable) -> Callable[..., Any]:
    """`flambeau.amp.custom_bwd(bwd, device_type="cuda")`"""
    deprecated("cuda", "custom_bwd", "args..., device_type={!r}")
    return amp.custom_bwd(bwd, device_type="cuda")
