"""`autocast`: operators choose the precision they compute in; and autocast support for `Function`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..core.backend import has_backend
from ..core.device import device
from ..core.dtype import bfloat16, dtype, float16, float64
from ..core.tensor import Tensor
from ..core.uninterrupted import uninterrupted
from . import state
from .state import is_autocast_available

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

_SUPPORTED = (bfloat16, float16)
_MISSING = {"cuda": "CUDA is not available or torch_xla is imported. Disabling autocast."}


def autocast_decorator(autocast_instance: Any, func: Callable) -> Callable:
    """Wrap a function to run inside the context every time."""

    @functools.wraps(func)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with autocast_instance:
            return func(*args, **kwargs)

    return decorated


class autocast:
    """A context manager and decorator for mixed precision.

    Inside, matrix products, convolutions and attention are computed in `dtype` (bfloat16 on the CPU unless told otherwise);
    losses and other delicate operators in float32; the rest in the dtypes they are given. docs/amp.md lists them. A parameter
    is cast once; its copy is kept until the outermost context ends.

    >>> w = flambeau.ones(2, 2, requires_grad=True)
    >>> with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
    ...     y = w @ w
    >>> y.dtype
    torch.bfloat16
    """

    def __init__(
        self, device_type: str, dtype: dtype | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.fast_dtype: Any = state.get_autocast_dtype(device_type) if dtype is None else dtype
        self.device = device_type
        self._cache_enabled = state.is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        self._enabled = bool(enabled) and self._works()
        self._outside: list[state.Setting] = []  # one entry per time it has been entered

    def _works(self) -> bool:
        """Return whether the device and its dtype are available; like PyTorch, warn if not, and continue without autocast."""
        kind = device(self.device).type
        problem = None if has_backend(device(kind)) else _MISSING.get(kind)
        if problem is None and self.fast_dtype not in _SUPPORTED:
            name = kind.upper()
            problem = (
                f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{name} Autocast only supports dtypes of torch.bfloat16, torch.float16 currently."
            )
        if problem is None:
            return True
        warnings.warn(problem, stacklevel=3)
        return False

    def __enter__(self) -> autocast:
        outside = state.current_setting(self.device)
        chosen = self.fast_dtype if isinstance(self.fast_dtype, dtype) else outside.dtype
        inside = state.Setting(outside.kind, self._enabled, chosen, self._cache_enabled)
        self._outside.append(outside)
        state.switch(inside, 1)
        return self

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        state.switch(self._outside[-1], -1)
        del self._outside[-1]

    def __call__(self, func: Callable) -> Callable:
        return autocast_decorator(self, func)


# -- autograd.Function --------------------------------------------------------------------------------------------------


def _cast(value: Any, device_type: str, to: dtype) -> Any:
    if isinstance(value, Tensor):
        eligible = value.dtype.is_floating_point and value.device.type == device_type and value.dtype is not float64
        return value.to(to) if eligible else value
    if isinstance(value, (str, bytes)) or type(value).__module__ == "numpy":
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, to): _cast(v, device_type, to) for k, v in value.items()}
    if isinstance(value, Iterable):
        items = (_cast(v, device_type, to) for v in value)
        return type(value)(items) if isinstance(value, (list, tuple)) else items
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: dtype | None = None
) -> Callable[..., Any]:
    """Decorate the forward of a `Function`. With `cast_inputs`, floating-point tensors are cast to that dtype and autocast is disabled
    inside; without it, `custom_bwd` repeats the state of autocast in backward."""
    _check_device_type(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._dtype = state.get_autocast_dtype(device_type)
        enabled = state.is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorate the backward of a `Function` to run under the autocast state of forward."""
    _check_device_type(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(ctx, *args, **kwargs)

    return decorated


def _check_device_type(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
