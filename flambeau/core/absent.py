"""Functions and classes of PyTorch that need something Flambeau does not have: they exist by name, and raise.

So do attributes of a plain tensor that other kinds of tensors lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from .overrides import disabled_torch_function


def raising(names: str, error: type[Exception], message: str) -> dict[str, Callable[..., NoReturn]]:
    """Return functions for the names in a text; each raises `error` with its name in place of {}."""
    return {name: _make_raising(name, error, message.format(name)) for name in names.split()}


def returning(names: str, make: Callable[[], Any], why: str) -> dict[str, Callable[..., Any]]:
    """Return functions for the names in a text, which take any arguments and return `make()`: PyTorch's answer without the device."""
    return {name: _make_returning(name, make, why) for name in names.split()}


def _make_returning(name: str, make: Callable[[], Any], why: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        return make()

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {make()!r}: {why}"
    function.__annotations__["return"] = type(make())
    return function


def absent_classes(names: str, message: str, error: type[Exception] = RuntimeError) -> dict[str, type]:
    """Return classes for the names in a text, which have no instances; {} in the message is the name."""
    return {name: absent_class(name, message.format(name), error) for name in names.split()}


def absent_class(
    name: str, message: str, error: type[Exception] = NotImplementedError, bases: tuple[Any, ...] = ()
) -> type:
    """Return a class without instances: `isinstance(x, ...)` works, making one raises. A subclass of Tensor declares that it overrides no
    operators, so that no operator looks for its instances."""

    def __new__(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise error(message)

    known = {"__new__": __new__, "__doc__": f"Cannot be made: {message}", "__module__": __name__}
    return type(name, bases, {**known, "__torch_function__": disabled_torch_function} if bases else known)


def _make_raising(name: str, error: type[Exception], message: str) -> Callable[..., NoReturn]:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise error(message)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Raises {error.__name__}: {message}"
    return function


def unreadable(refusal: Callable[[Any, str], Exception], *more: str) -> tuple[Any, ...]:
    """Return properties in place of a plain tensor's strides, storage offset and memory format, and of `more`. Reading one raises
    refusal(tensor, what), upon which operators use the form for the tensor's own kind."""
    return tuple(_make_unreadable(what, refusal) for what in ("strides", "storage offset", "memory format", *more))


def _make_unreadable(what: str, refusal: Callable[[Any, str], Exception]) -> property:
    def refuse(self: Any) -> NoReturn:
        raise refusal(self, what)

    return property(refuse)
