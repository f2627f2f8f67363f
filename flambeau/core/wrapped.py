"""Tensors made of other tensors: classes that answer PyTorch's operators themselves (`__torch_dispatch__`).

Such a tensor has a shape, dtype and device, and no memory: what it holds are attributes. Code for strided memory that reads one meets
`WrapperOperand` before it can touch anything; the operator's public face catches it, as it does for spread tensors, and hands the call
to the class, as a call of one of PyTorch's operators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from . import naming
from .device import default_device, device
from .dtype import dtype
from .layout import strided
from .overrides import overridable, register_instance, register_subclass
from .promotion import get_default_dtype
from .sharded import ShardedOperand
from .size import make_size
from .sparse import SparseOperand
from .tensor import empty

_new_object = object.__new__


class WrapperOperand(ShardedOperand):
    """Raised where code for memory meets a tensor that has none."""

    def __init__(self, tensor: Any):
        kind = type(tensor).__name__
        SparseOperand.__init__(
            self,
            f"a {kind} has no memory of its own, and its __torch_dispatch__ was not asked: this cannot be done with one",
        )
        self.tensor = tensor

    def instead(self, face: Any, args: tuple, kwargs: dict[str, Any]) -> Callable[[], Any]:
        dispatch = naming.load(f"{naming.PACKAGE}.utils._python_dispatch").ask_classes
        return functools.partial(dispatch, face, args, kwargs)


WrapperOperand.__name__ = WrapperOperand.__qualname__ = "NotImplementedError"  # what a traceback shows
WrapperOperand.__module__ = "builtins"


def _trap(name: str) -> property:
    def refuse(self: Any) -> NoReturn:
        raise WrapperOperand(self)

    return property(refuse, doc=f"What plain tensors have as `{name}`: reading it makes operators turn to this class.")


_TRAPS = {name: _trap(name) for name in ("_strides", "_offset", "_contig")}


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
    """A tensor of class `cls` without memory: its `__torch_dispatch__` says what operators do with it."""
    if not hasattr(cls, "__torch_dispatch__"):
        raise RuntimeError(
            f"{cls.__name__} must define __torch_dispatch__: there is no memory that operators could read"
        )
    for name, trap in _TRAPS.items():
        if getattr(cls, name, None) is not trap:
            setattr(cls, name, trap)
    register_instance(cls)
    t = _new_object(cls)
    where = default_device() if device is None else _as_device(device)
    t.shape, t.dtype, t.device = make_size(tuple(size)), dtype or get_default_dtype(), where
    t._storage = empty(make_size((0,)), t.dtype, _as_device("cpu"))._storage
    t._autograd = t._base = None
    register_subclass(cls)  # its base may have kept Tensor.__init_subclass__ from seeing it
    if requires_grad:
        t.requires_grad = True
    return t


def _as_device(given: Any) -> device:
    return given if isinstance(given, device) else device(given)


@overridable
def _has_compatible_shallow_copy_type(input: Any, other: Any) -> bool:
    """Whether a tensor's contents can become those of another without making a new one: if they are of one kind."""
    return type(input)._strides is type(other)._strides
