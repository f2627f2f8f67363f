"""State of autocast: whether it is on and with which dtype, per thread and type of device, as PyTorch keeps it."""

from __future__ import annotations

import threading
import warnings
from typing import Any, NamedTuple

from ..core import modes
from ..core.casts import DEFAULT_DTYPES, casts
from ..core.device import device
from ..core.dtype import bfloat16, dtype
from ..core.typenames import type_name
from ..core.uninterrupted import uninterrupted
from .casting import Casting

CASTING = ("cpu", "cuda")  # types of device whose operators choose


class _Contexts(threading.local):
    """Counter of the contexts of autocast that this thread is in."""

    nesting = 0


_contexts = _Contexts()
_casting = Casting()


def _type_of(device_type: Any, function: str) -> str:
    if not isinstance(device_type, str):
        raise TypeError(f"{function}(): argument 'device_type' (position 1) must be str, not {type_name(device_type)}")
    kind = device(device_type).type
    if kind not in DEFAULT_DTYPES:
        raise RuntimeError(f"unknown device type for autocast: '{kind}'; expected one of {', '.join(DEFAULT_DTYPES)}")
    return kind


def is_autocast_available(device_type: str) -> bool:
    """Return whether autocast is supported for this type of device.

    >>> flambeau.amp.is_autocast_available("cpu")
    True
    """
    return device(device_type).type in DEFAULT_DTYPES


class Setting(NamedTuple):
    """State that a context of autocast sets, for one type of device."""

    kind: str
    enabled: bool
    dtype: dtype
    cache_enabled: bool


def current_setting(device_type: str) -> Setting:
    kind = _type_of(device_type, "autocast")
    return Setting(kind, kind in casts.switched, casts.dtypes[kind], casts.cache_enabled)


@uninterrupted
def switch(setting: Setting, nesting: int) -> None:
    """Set the whole state of autocast, `nesting` contexts deeper, atomically with respect to a Ctrl-C."""
    kind, enabled, dtype, casts.cache_enabled = setting
    _contexts.nesting += nesting
    if nesting < 0 and not _contexts.nesting:
        casts.cache = {}
    casts.dtypes = {**casts.dtypes, kind: dtype}
    casts.switched = casts.switched | {kind} if enabled else casts.switched - {kind}
    if kind in CASTING:
        was_active = casts.enabled != {}  # neither calls nor loops: see core/uninterrupted.py
        on = {**casts.enabled, kind: dtype}
        if not enabled:
            del on[kind]
        casts.enabled = on
        casts.active = on != {}
        if enabled:
            casts.kind, casts.dtype = kind, dtype
        if casts.active is not was_active:
            stack = modes.own.stack
            if casts.active:
                stack.push(_casting, 0)
            else:
                stack.take(_casting)


# -- on and off -------------------------------------------------------------------------------------------------------


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Return whether autocast is on for this type of device."""
    return _type_of(device_type, "is_autocast_enabled") in casts.switched


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Switch autocast on or off: `set_autocast_enabled("cpu", True)`; with one argument, for CUDA."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    kind = _type_of(device_type, "set_autocast_enabled")
    if not isinstance(enabled, bool):
        raise TypeError(
            f"set_autocast_enabled(): argument 'enabled' (position 2) must be bool, not {type_name(enabled)}"
        )
    switch(Setting(kind, enabled, casts.dtypes[kind], casts.cache_enabled), 0)


# -- dtype --------------------------------------------------------------------------------------------------------------


def get_autocast_dtype(device_type: str) -> dtype:
    """Return the dtype that products and convolutions are computed in under autocast."""
    return casts.dtypes[_type_of(device_type, "get_autocast_dtype")]


def set_autocast_dtype(device_type: str, dtype: dtype) -> None:
    """Set the dtype of products and convolutions under autocast."""
    kind = _type_of(device_type, "set_autocast_dtype")
    if not isinstance(dtype, type(bfloat16)):
        raise TypeError(
            f"set_autocast_dtype(): argument 'dtype' (position 2) must be torch.dtype, not {type_name(dtype)}"
        )
    switch(current_setting(kind)._replace(dtype=dtype), 0)


# -- cache ------------------------------------------------------------------------------------------------------------------


def is_autocast_cache_enabled() -> bool:
    """Return whether the lower-precision copy of a parameter is kept until the outermost autocast ends."""
    return casts.cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Set whether lower-precision copies of parameters are cached between operators."""
    if not isinstance(enabled, bool):
        raise TypeError(
            f"set_autocast_cache_enabled(): argument 'enabled' (position 1) must be bool, not {type_name(enabled)}"
        )
    casts.cache_enabled = enabled


def clear_autocast_cache() -> None:
    """Drop the cached lower-precision copies of parameters."""
    casts.cache.clear()


def autocast_increment_nesting() -> int:
    """Enter one more autocast context; return the nesting depth."""
    _contexts.nesting += 1
    return _contexts.nesting


def autocast_decrement_nesting() -> int:
    """Leave an autocast context; return the remaining depth."""
    _contexts.nesting -= 1
    return _contexts.nesting


# -- the older names ----------------------------------------------------------------------------------------------------


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"torch.{old} is deprecated. Please use torch.{new} instead.", DeprecationWarning, stacklevel=3)


def is_autocast_cpu_enabled() -> bool:
    """Return `is_autocast_enabled("cpu")`."""
    _deprecated("is_autocast_cpu_enabled()", "is_autocast_enabled('cpu')")
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Call `set_autocast_enabled("cpu", enabled)`."""
    _deprecated("set_autocast_cpu_enabled(enabled)", "set_autocast_enabled('cpu', enabled)")
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> dtype:
    """Return `get_autocast_dtype("cpu")`."""
    _deprecated("get_autocast_cpu_dtype()", "get_autocast_dtype('cpu')")
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: dtype) -> None:
    """Call `set_autocast_dtype("cpu", dtype)`."""
    _deprecated("set_autocast_cpu_dtype(dtype)", "set_autocast_dtype('cpu', dtype)")
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> dtype:
    """Return `get_autocast_dtype("cuda")`."""
    _deprecated("get_autocast_gpu_dtype()", "get_autocast_dtype('cuda')")
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: dtype) -> None:
    """Call `set_autocast_dtype("cuda", dtype)`."""
    _deprecated("set_autocast_gpu_dtype(dtype)", "set_autocast_dtype('cuda', dtype)")
    set_autocast_dtype("cuda", dtype)
