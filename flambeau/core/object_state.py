"""The Python state of a tensor besides its elements: attributes set on it, slots of its class, or what its class's `__getstate__` returns."""

from __future__ import annotations

import copyreg
import functools
from typing import Any, TypeVar

from .naming import PACKAGE
from .tensor import Tensor

OneTensor = TypeVar("OneTensor", bound=Tensor)
_DEFAULT = getattr(object, "__getstate__", None)  # Python 3.11 and later have one


def object_state(t: Any) -> Any:
    """Return a dictionary of attributes, or with slots a pair of them, or the result of the class's own `__getstate__`."""
    kind: Any = type(t)
    if getattr(kind, "__getstate__", None) is not _DEFAULT:
        return t.__getstate__()
    attributes = {name: value for name, value in t.__dict__.items() if name != "_is_param"}
    slots = {name: getattr(t, name) for name in slots_of_users(kind) if hasattr(t, name)}
    return (attributes, slots) if slots else attributes


@functools.lru_cache(maxsize=256)
def slots_of_users(kind: type) -> tuple[str, ...]:
    """Return the slots that a class adds to this package's, whose contents are rebuilt and not copied."""
    own = next(c for c in kind.__mro__ if c.__module__.partition(".")[0] in (PACKAGE, "torch"))
    if own is kind:
        return ()
    slot_names = vars(copyreg)["_slotnames"]
    rebuilt = set(slot_names(own))
    return tuple(name for name in slot_names(kind) if name not in rebuilt)


def set_object_state(t: OneTensor, state: Any) -> OneTensor:
    """Restore a tensor's attributes from the result of `object_state`."""
    kind: Any = type(t)
    if getattr(kind, "__setstate__", None) is not getattr(Tensor, "__setstate__", None):
        t.__setstate__(state)
        return t
    attributes, slots = split_state(state)
    if attributes:
        t.__dict__.update(attributes)
    own = slots_of_users(kind)
    for name, value in (slots or {}).items():
        if name not in own:  # the others say where the memory is: to set one is to point anywhere
            raise RuntimeError(f"cannot set {name!r} of a {kind.__name__}: it is no attribute of the user's")
        setattr(t, name, value)
    return t


def split_state(state: Any) -> tuple[Any, Any]:
    """Return (attributes, slots) of a state: either may be None."""
    if not isinstance(state, tuple):
        return state, None
    if len(state) != 2:
        raise RuntimeError(f"Invalid serialized state: a tuple of {len(state)}, expected attributes and slots")
    return state
