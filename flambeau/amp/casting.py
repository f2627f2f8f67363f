"""The mode behind autocast: it casts an operator's arguments as its record says, and runs it.

The mode is on the stack only while autocast is on in some thread, so without autocast operators pay nothing for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ..autograd.grad_mode import enable_grad
from ..core import modes
from ..core.casts import KeptCopy, casts
from ..core.device import cpu
from ..core.dtype import dtype, float32, float64
from ..core.graph import grad_mode as grad_mode
from ..core.layout import preserve_format
from ..core.modes import unwatched
from ..core.tensor import Tensor
from ..ops.creation.convert import convert

_convert = unwatched(convert)
_NUMBERS = frozenset((int, float, bool, type(None)))  # settings of operators, which are never cast


def _visible_convert(tensor: Tensor, target: dtype, *same: Any) -> Tensor:
    """Convert a tensor to another dtype by a call that modes see as `Tensor.to`."""
    return tensor.to(target)


class Casting(modes.Mode):
    """Mode of autocast, for the threads and types of device for which it is on."""

    stays = True
    parts = False

    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        if not casts.active:  # a part of an operator whose arguments have been cast
            return unwatched(function)(*args, **kwargs)
        run, args, kwargs, alone = self.prepared(op, function, args, kwargs, _convert)
        if not alone:
            return run(*args, **kwargs)
        casts.active = False
        try:
            return run(*args, **kwargs)
        finally:
            casts.active = True

    def prepared(
        self, op: Any, function: Callable, args: tuple, kwargs: dict, cast: Callable = _visible_convert
    ) -> tuple[Callable, tuple, dict, bool]:
        run = unwatched(function)
        if not casts.active:
            return run, args, kwargs, False
        first = args[0] if args else None  # asked here: this runs for every operator under autocast
        kind = first.device.type if type(first) is Tensor and first.shape else _kind_of((*args, *kwargs.values()))
        if kind not in casts.enabled:
            return run, args, kwargs, False
        casts.kind, casts.dtype = kind, casts.enabled[kind]
        policy: Any = op.autocast or ""
        if kind == "cuda" and op.autocast_cuda is not None:
            policy = op.autocast_cuda
        if type(policy) is not str:
            policy, run = policy(run, args, kwargs)
        if policy == "parts":
            return run, args, kwargs, False
        if policy and kwargs.get("out") is None:  # like PyTorch, what is written into a given tensor is left alone
            casts.active = False
            try:
                target = _target(policy, args, kwargs)
                args = tuple([x if type(x) in _NUMBERS else _cast(x, target, cast) for x in args])
                kwargs = {name: _cast(x, target, cast) for name, x in kwargs.items()} if kwargs else kwargs
            finally:
                casts.active = True
        return run, args, kwargs, True

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        before, casts.active = casts.active, False
        try:
            yield
        finally:
            casts.active = before


def _kind_of(values: tuple) -> str:
    """Return the type of device that a call computes on: that of its first tensor, or the only one that autocast is on for."""
    for value in values:
        if isinstance(value, Tensor):
            if value.shape or value.device is not cpu:
                return value.device.type
        elif type(value) in (list, tuple):
            for item in value:
                if isinstance(item, Tensor):
                    return item.device.type
    return casts.kind if casts.kind in casts.enabled else next(iter(casts.enabled))


def _target(policy: str, args: tuple, kwargs: dict) -> dtype:
    if policy == "lower":
        return casts.dtype
    if policy == "float32":
        return float32
    widest = casts.dtype
    for value in (*args, *kwargs.values()):
        widest = _widest_dtype(widest, value)
    return widest


def _widest_dtype(widest: dtype, value: Any) -> dtype:
    if isinstance(value, (list, tuple)):
        for item in value:
            widest = _widest_dtype(widest, item)
    elif isinstance(value, Tensor) and value.dtype.is_floating_point and value.device.type == casts.kind:
        if value.dtype not in (casts.dtype, float32, float64):
            raise RuntimeError(
                f"Unexpected floating point dtype {value.dtype} in an operator that promotes: autocast to {casts.dtype} expects"
                f" {casts.dtype}, torch.float32 or torch.float64"
            )
        widest = value.dtype if value.dtype.itemsize > widest.itemsize else widest
    return widest


def _cast(value: Any, target: dtype, cast: Callable) -> Any:
    """Cast tensors of floats to the target dtype by `cast`; doubles and everything else stay unchanged."""
    if isinstance(value, Tensor):
        d = value.dtype
        if d is target or not d.is_floating_point or d is float64 or value.device.type != casts.kind:
            return value
        keeps = d is float32 and target is casts.dtype and casts.cache_enabled
        if keeps and value.requires_grad and value._base is None and value.is_leaf and not grad_mode.inference:
            return kept_copy(value, target, cast)
        return cast(value, target, value.device, preserve_format)
    if type(value) in (list, tuple) and not _NUMBERS.issuperset(map(type, value)):
        return type(value)([_cast(x, target, cast) for x in value])
    return value


def kept_copy(leaf: Tensor, target: dtype, cast: Callable = _convert) -> Tensor:
    """Return the cached copy of a parameter, made once. It is differentiable even if it is first needed without gradients."""
    key = (id(leaf), target)
    found = casts.cache.get(key)
    if found is None:
        storage, state = leaf._storage, leaf._storage.change_state()
        with enable_grad():
            found = KeptCopy(leaf, cast(leaf, target, leaf.device, preserve_format), storage, state)
        casts.cache[key] = found
    return found.copy
