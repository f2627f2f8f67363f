"""Tensors made of other tensors: classes that answer PyTorch's operators themselves (`__torch_dispatch__`).

Such a tensor has a shape, dtype and device, and no memory: it holds attributes. Code for strided memory that reads one raises
`WrapperOperand` before it can touch anything; the operator's public face catches it, as for spread tensors, and passes the call to the class,
as a call of one of PyTorch's operators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import naming
from .absent import unreadable
from .device import default_device, device
from .dtype import dtype
from .layout import contiguous_format, is_channels_last, strided
from .overrides import overridable, register_instance, register_subclass
from .promotion import get_default_dtype
from .sharded import ShardedOperand
from .size import make_size
from .sparse import SparseOperand
from .tensor import Tensor, contiguous_strides, empty, is_contiguous_layout

_new_object = object.__new__


class WrapperOperand(ShardedOperand):
    """Raised when code for memory reads a tensor that has none."""

    def __init__(self, tensor: Any):
        kind = type(tensor).__name__
        SparseOperand.__init__(
            self,
            f"a {kind} has no memory of its own, and its __torch_dispatch__ was not asked: this cannot be done with one",
        )
        self.tensor = tensor

    def instead(self, face: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
        dispatch = naming.above("utils._python_dispatch").ask_classes
        return functools.partial(dispatch, face, args, kwargs)


WrapperOperand.__name__ = WrapperOperand.__qualname__ = "NotImplementedError"  # what a traceback shows
WrapperOperand.__module__ = "builtins"


_SLOTS = {name: vars(Tensor)[name] for name in ("_strides", "_offset", "_contig")}


def declared(t: Any, name: str) -> Any:
    """Return the strides, offset or order that a tensor was declared with; its own if it has memory."""
    return _SLOTS[name].__get__(t, type(t))


def _bare_alias(self: Any) -> Any:
    """Return a wrapper of the same parts without any history."""
    t = _new_object(type(self))
    vars(t).update(vars(self))
    for cls in type(self).__mro__:
        for name in _own_slots(cls):
            if hasattr(self, name):
                setattr(t, name, getattr(self, name))
    for name in ("_storage", "shape", "dtype", "device"):
        setattr(t, name, getattr(self, name))
    for slot in _SLOTS.values():
        slot.__set__(t, slot.__get__(self, type(self)))
    t._autograd = t._base = None
    return t


def _own_slots(cls: type) -> tuple[Any, ...]:
    slots = vars(cls).get("__slots__", ()) if issubclass(cls, Tensor) and cls is not Tensor else ()
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _stride(self: Any, dim: int | None = None) -> Any:
    found = declared(self, "_strides")
    return found if dim is None else found[dim]


def _is_contiguous(self: Any, memory_format: Any = contiguous_format) -> bool:
    if memory_format is contiguous_format:
        return declared(self, "_contig")
    return is_channels_last(self.shape, declared(self, "_strides"))


# Attributes of a class whose tensors have no memory, in place of Tensor's.
_INSTEAD: dict[str, Any] = dict(zip(_SLOTS, unreadable(lambda t, what: WrapperOperand(t)))) | {
    "_bare_alias": _bare_alias,
    "stride": _stride,
    "storage_offset": lambda self: declared(self, "_offset"),
    "is_contiguous": _is_contiguous,
    "data_ptr": lambda self: 0,
}
_TRAP = _INSTEAD["_strides"]


def is_wrapper(t: Any) -> bool:
    """Return whether a tensor is a wrapper without memory."""
    return getattr(type(t), "_strides", None) is _TRAP


def make_wrapper(
    cls: type,
    size: Any,
    strides: Any = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: dtype | None = None,
    layout: Any = strided,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **ignored: Any,
) -> Any:
    """Return a tensor of class `cls` without memory, whose `__torch_dispatch__` implements operators on it."""
    if getattr(cls.__torch_dispatch__, "__func__", None) is vars(Tensor)["__torch_dispatch__"].__func__:  # type: ignore[attr-defined]
        raise RuntimeError(
            f"{cls.__name__} must define __torch_dispatch__: there is no memory that operators could read"
        )
    if getattr(cls, "_strides", None) is not _TRAP:
        for name, instead in _INSTEAD.items():
            if getattr(cls, name, None) is getattr(Tensor, name, None):  # a class may have its own
                setattr(cls, name, instead)
    register_instance(cls)
    t: Any = _new_object(cls)
    where = default_device() if device is None else _as_device(device)
    shape, kind = make_size(tuple(size)), dtype or get_default_dtype()
    for name, own in (("shape", shape), ("dtype", kind), ("device", where)):
        vars(Tensor)[name].__set__(t, own)  # the class may have a property of that name
    t._storage = empty(make_size((0,)), kind, _as_device("cpu"))._storage
    steps = contiguous_strides(shape) if strides is None else tuple(strides)
    said = (steps, storage_offset or 0, is_contiguous_layout(shape, steps))
    for slot, value in zip(_SLOTS.values(), said):
        slot.__set__(t, value)
    t._autograd = t._base = None
    register_subclass(cls)  # its base may have kept Tensor.__init_subclass__ from seeing it
    if requires_grad:
        t.requires_grad = True
    return t


def _as_device(given: Any) -> device:
    return given if isinstance(given, device) else device(given)


@overridable
def _has_compatible_shallow_copy_type(input: Any, other: Any) -> bool:
    """Return whether a tensor's contents can replace another's without making a new one: if they are of one kind."""
    return type(input)._strides is type(other)._strides
