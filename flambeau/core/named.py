"""Tensors whose dimensions have names: headers over a plain tensor, their *value*.

A named tensor has no memory of its own for operators: the mode of `ops.names` intercepts every call and makes it on the values. Code for
strided memory that reads one nevertheless raises `NamedOperand` before it can touch anything. A tensor becomes named, and plain again, in
place: its class changes, so that every reference to it sees its names."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NoReturn, TypeGuard

from .overrides import disabled_torch_function
from .tensor import Tensor

Names = tuple[str | None, ...]

_new_object = object.__new__
_living: set[weakref.ref[Any]] = set()  # the named tensors there are


class NamedOperand(RuntimeError):
    """Raised when code for plain tensors reads a named one."""


NamedOperand.__name__ = NamedOperand.__qualname__ = "RuntimeError"  # what a traceback shows


def unsupported(what: str) -> NamedOperand:
    return NamedOperand(
        f"{what} is not yet supported with named tensors. Please drop names via `tensor = tensor.rename(None)`, call the op with an"
        " unnamed tensor, and set names on the result of the operation."
    )


def _make_refusing(what: str) -> property:
    def refuse(self: Any) -> NoReturn:
        raise unsupported(f"reading the {what} of a tensor here")

    return property(refuse)


def _value_property(name: str) -> property:
    """Return a property that reads and writes an attribute of the value."""

    def read(self: Any) -> Any:
        return getattr(self._value, name)

    def write(self: Any, value: Any) -> None:
        setattr(self._value, name, value)

    return property(read, write)


def _value_method(name: str) -> Callable[..., Any]:
    """Return a method that calls the method of the value."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._value, name)(*args, **kwargs)

    call.__name__ = name
    return call


class NamedTensor(Tensor):
    """A tensor with names; `_value` is the same tensor without. It has no slots of its own, so that a tensor can change its class."""

    __slots__ = ()
    __torch_function__ = disabled_torch_function
    _prints_as_tensor = True

    _strides = _make_refusing("strides")
    _offset = _make_refusing("storage offset")
    _contig = _make_refusing("memory format")
    _storage = _make_refusing("memory")
    _autograd = _value_property("_autograd")
    _base = _value_property("_base")
    requires_grad = _value_property("requires_grad")
    grad_fn = _value_property("grad_fn")
    grad = _value_property("grad")
    is_leaf = _value_property("is_leaf")
    output_nr = _value_property("output_nr")
    retains_grad = _value_property("retains_grad")
    _version = _value_property("_version")
    data_ptr = const_data_ptr = _value_method("data_ptr")
    storage_offset = _value_method("storage_offset")
    untyped_storage = _value_method("untyped_storage")
    storage = _value_method("storage")
    storage_type = _value_method("storage_type")
    is_contiguous = _value_method("is_contiguous")
    is_shared = _value_method("is_shared")
    is_pinned = _value_method("is_pinned")
    register_hook = _value_method("register_hook")
    retain_grad = _value_method("retain_grad")
    _bump = _value_method("_bump")
    _set_history = _value_method("_set_history")
    _bare_alias = _value_method("_bare_alias")
    _ensure_autograd = _value_method("_ensure_autograd")

    _value: Tensor
    _dims: Names

    def stride(self, dim: Any = None) -> Any:
        return self._value.stride(self._dims.index(dim) if dim in self._dims and dim is not None else dim)

    def _array(self) -> Any:
        raise unsupported("converting a tensor to an array here")

    def _view(self, shape: Any, strides: tuple[int, ...], offset: int) -> Tensor:
        raise unsupported("a view of a tensor here")

    def _adopt(self, other: Tensor) -> None:
        self._value._adopt(other)
        refresh(self)

    @property
    def data(self) -> Tensor:
        return set_names(self._value.data, self._dims)

    @data.setter
    def data(self, value: Tensor) -> None:
        self._value.data = value
        refresh(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError(
            "NYI: Named tensors don't support serialization. Please drop names via `tensor = tensor.rename(None)` before"
            " serialization."
        )

    def __deepcopy__(self, memo: dict[Any, Any]) -> Tensor:
        raise RuntimeError(
            "NYI: Named tensors don't support deepcopy. Please drop names via `tensor = tensor.rename(None)` before."
        )


NamedTensor.__name__ = NamedTensor.__qualname__ = "Tensor"


def is_named(value: Any) -> TypeGuard[NamedTensor]:
    return type(value) is NamedTensor


def plain(value: Any) -> Any:
    """Return the tensor without names."""
    return value._value if type(value) is NamedTensor else value


def any_named() -> bool:
    """Return whether a named tensor exists."""
    return bool(_living)


def names_of(t: Tensor) -> Names:
    """Return the names of all dimensions, None for those without."""
    return t._dims if type(t) is NamedTensor else (None,) * len(t.shape)


def set_names(t: Any, names: Names) -> Any:
    """Set a tensor's names in place, one for each dimension; it becomes a plain tensor if all are None."""
    if type(t) is NamedTensor:
        if any(name is not None for name in names):
            t._dims = names
        else:
            _forget(t)
    elif any(name is not None for name in names):
        value = _new_object(Tensor)
        value._adopt(t)
        value._autograd, value._base = t._ensure_autograd(), t._base
        t.__class__ = NamedTensor
        t._value, t._dims = value, names
        _living.add(weakref.ref(t, _living.discard))
    return t


def _forget(t: Any) -> None:
    value = t._value
    state = value._ensure_autograd()  # which both will share
    t.__class__ = Tensor
    del t.__dict__["_value"], t.__dict__["_dims"]
    t._adopt(value)
    t._autograd, t._base = state, value._base


def refresh(t: Any) -> None:
    """Update the header after a change of the tensor's value."""
    t.shape, t.dtype, t.device = t._value.shape, t._value.dtype, t._value.device
