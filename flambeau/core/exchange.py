"""`swap_tensors`: exchange of the contents of two tensor objects."""

from __future__ import annotations

import weakref
from typing import Any

from .graph import AccumulateGrad
from .tensor import Tensor


def _slots(cls: type) -> list[str]:
    names = [name for base in cls.__mro__ for name in getattr(base, "__slots__", ())]
    return [name for name in names if name not in ("__weakref__", "__dict__")]


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange class, attributes, data and gradient of two tensors, so that every reference to one now sees the other."""
    for name, t in (("t1", t1), ("t2", t2)):
        if not isinstance(t, Tensor):
            raise TypeError(f"swap_tensors(): argument '{name}' must be Tensor, not {type(t).__name__}")
        if weakref.getweakrefcount(t):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
        if (
            t._autograd is not None
            and t._autograd.accumulator is not None
            and isinstance(t._autograd.accumulator(), AccumulateGrad)
        ):
            raise RuntimeError(f"Cannot swap {name}: it is a leaf of a graph that is still in use")
    states = [_state(t) for t in (t1, t2)]
    classes = type(t1), type(t2)
    for t, cls, (slots, attributes) in zip((t1, t2), reversed(classes), reversed(states)):
        object.__setattr__(t, "__class__", cls)
        for name, value in slots.items():
            setattr(t, name, value)
        t.__dict__.clear()
        t.__dict__.update(attributes)


def _state(t: Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
    return {name: getattr(t, name) for name in _slots(Tensor) if hasattr(t, name)}, dict(t.__dict__)
