"""Changing what operators do: for one class of tensors (`__torch_function__`), or temporarily (`TorchFunctionMode`).

>>> class Count(TorchFunctionMode):
...     calls = 0
...     def __torch_function__(self, func, types, args=(), kwargs=None):
...         self.calls += 1
...         return func(*args, **(kwargs or {}))
>>> with Count() as count:
...     y = flambeau.ones(2) + 1
>>> count.calls
2
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import flambeau

from .core import modes
from .core.overrides import (
    DisableTorchFunctionSubclass,
    asks_arguments,
    call_override,
    disabled_torch_function,
    not_implemented,
    overriding_arguments,
    register_arguments,
    register_subclass,
    skip,
)
from .core.shadowing import PROTOCOL
from .core.tensor import Tensor
from .library import operator as _operator
from .ops import namespace

__all__ = [
    "BaseTorchFunctionMode", "DisableTorchFunctionSubclass", "TorchFunctionMode", "disabled_torch_function",
    "enable_reentrant_dispatch", "get_default_nowrap_functions", "get_ignored_functions",
    "get_overridable_functions", "get_testing_overrides", "handle_torch_function", "has_torch_function",
    "has_torch_function_unary", "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property",
    "redispatch_function", "register_subclass", "resolve_name", "wrap_torch_function",
]  # fmt: skip


class TorchFunctionMode(modes.Mode):
    """Mode that passes every operator called inside its `with` block through its `__torch_function__`."""

    asks = True
    parts = False

    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        if skip.next:
            skip.next = False
            return function(*args, **kwargs)
        if getattr(self.__torch_function__, "__self__", self) is not self:
            raise RuntimeError("classmethod is not supported, please make it a plain method")
        register_arguments((*args, *kwargs.values()))
        overriding = overriding_arguments(args, kwargs)
        types = tuple(type(x) for x in overriding)
        result = self.__torch_function__(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
        if not overriding:
            raise not_implemented(function, types, self)
        with self:  # what the arguments' overrides call is the mode's business again
            return call_override(function, args, kwargs, overriding, self)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __torch_function__")


class BaseTorchFunctionMode(TorchFunctionMode):
    """A torch-function mode that calls every function unchanged."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode_stack() -> list[TorchFunctionMode]:
    return [m for m in modes.own.stack if isinstance(m, TorchFunctionMode)]


def _get_current_function_mode() -> TorchFunctionMode | None:
    found = _get_current_function_mode_stack()
    return found[-1] if found else None


@contextlib.contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """Context manager without effect: operators called inside may be overridden again, which here they always may."""
    yield


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Return whether any of the arguments, or a mode, overrides operators."""
    if skip.next:
        skip.next = False
        return False
    try:
        values = tuple(relevant_args)
    except TypeError:
        raise TypeError("expected a sequence") from None
    return _get_current_function_mode() is not None or bool(_overriding(values))


def has_torch_function_unary(arg: Any) -> bool:
    """Return `has_torch_function` of one argument."""
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    """Return `has_torch_function` of the given arguments."""
    return has_torch_function(args)


def _overriding(values: tuple) -> list[Any]:
    register_arguments(values)
    return overriding_arguments(values, {}) if asks_arguments() else []


def handle_torch_function(public_api: Callable, relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Dispatch `public_api(*args, **kwargs)` to the innermost mode and to the arguments that override operators; return its result."""
    mode = _get_current_function_mode()
    overriding = _overriding(tuple(relevant_args))
    types = tuple(type(x) for x in overriding)
    if mode is not None:
        stack = modes.own.stack
        position = stack.index(mode)
        stack.take(mode)
        try:
            result = mode.__torch_function__(public_api, types, args, kwargs)
        finally:
            stack.push(mode, position)
        if result is not NotImplemented:
            return result
    if not overriding:
        raise not_implemented(public_api, types, mode)
    return call_override(public_api, args, kwargs, overriding, mode)


def redispatch_function(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Call the function without dispatching it to its arguments or modes; the operators it calls are dispatched."""
    skip.next = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        skip.next = False


def is_tensor_like(inp: Any) -> bool:
    """Return whether an object is a tensor or overrides operators like one."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Callable) -> bool:
    """Return whether the function is a method of Tensor, or reads or sets one of its properties."""
    return func in _tensor_functions()


@functools.cache
def _tensor_functions() -> dict[Any, str]:
    """Return methods of Tensor and the getters and setters of its properties, with their names."""
    found: dict[Any, str] = {}
    for name in sorted(dir(Tensor), key=lambda n: (n.startswith("_"), n)):
        value = inspect.getattr_static(Tensor, name)
        if name[0] == "_" and not (hasattr(value, "op") or name in PROTOCOL):
            continue
        if isinstance(value, property) or inspect.ismemberdescriptor(value):
            found[value.__get__] = f"torch.Tensor.{name}.__get__"
            found[value.__set__] = f"torch.Tensor.{name}.__set__"
        elif callable(value) and (value not in found or name == getattr(value, "__name__", "").lstrip("_")):
            found[value] = f"torch.Tensor.{name}"
    return found


_NAMESPACES = (
    ("torch", "torch"),
    ("torch.nn.functional", "nn.functional"),
    ("torch.linalg", "linalg"),
    ("torch.fft", "fft"),
    ("torch.special", "special"),
)

# Functions without a tensor among their arguments: there is nothing to dispatch to.
_IGNORED = [
    "arange", "autocast_decrement_nesting", "autocast_increment_nesting", "bartlett_window", "blackman_window",
    "can_cast", "complex", "empty", "empty_permuted", "empty_strided", "eye", "from_file", "from_numpy",
    "frombuffer", "full", "get_default_dtype", "get_num_threads", "hamming_window", "hann_window", "initial_seed",
    "is_grad_enabled", "is_storage", "is_tensor", "kaiser_window", "linspace", "logspace", "manual_seed", "ones",
    "promote_types", "rand", "randint", "randn", "randperm", "range", "seed", "set_default_dtype",
    "set_default_tensor_type", "set_grad_enabled", "set_num_threads", "set_printoptions", "sparse_coo_tensor",
    "sparse_csr_tensor", "tensor", "tril_indices", "triu_indices", "typename", "zeros",
]  # fmt: skip


@functools.cache
def get_ignored_functions() -> set[Callable]:
    """Return the functions that `__torch_function__` is never called for."""
    found = {getattr(flambeau, name) for name in _IGNORED if hasattr(flambeau, name)}
    methods = ("__new__", "__init__", "__hash__", "__init_subclass__", "__torch_function__", "as_subclass", "__dir__")
    return found | {getattr(Tensor, name) for name in methods}


@functools.cache
def get_default_nowrap_functions() -> set[Callable]:
    """Return the functions whose results `Tensor.__torch_function__` does not convert to the subclass."""
    return {inspect.getattr_static(Tensor, name).__get__ for name in ("_base", "grad")}


@functools.cache
def _function_names() -> dict[int, str]:
    names: dict[int, str] = {}
    for prefix, which in _NAMESPACES:
        for name, function in namespace(which).items():
            own = getattr(getattr(function, "op", None), "name", name)
            if id(function) not in names or (name == own and not names[id(function)].endswith("." + own)):
                names[id(function)] = f"{prefix}.{name}"
    return names


def _module(prefix: str) -> Any:
    found: Any = flambeau
    for part in prefix.split(".")[1:]:
        found = getattr(found, part)
    return found


def get_overridable_functions() -> dict[Any, list[Callable]]:
    """Return the functions that `__torch_function__` can override, by the module or class they are in."""
    ignored = get_ignored_functions()
    found: dict[Any, list[Callable]] = {
        _module(prefix): [f for f in namespace(which).values() if f not in ignored] for prefix, which in _NAMESPACES
    }
    found[Tensor] = [f for f in _tensor_functions() if f not in ignored]
    return found


def get_testing_overrides() -> dict[Callable, Callable]:
    """Return for each overridable function one with the same parameters that returns -1."""
    return {f: _same_parameters(f) for functions in get_overridable_functions().values() for f in functions}


def _same_parameters(function: Callable) -> Callable:
    def override(*args: Any, **kwargs: Any) -> int:
        return -1

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # the getter of a slot
        signature = inspect.signature(lambda self: -1)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    override.__signature__ = inspect.Signature(plain)  # type: ignore[attr-defined]
    return override


def resolve_name(f: Any) -> str | None:
    """Return the public name of an operator, such as "torch.add"; None for other objects."""
    if isinstance(f, _operator.OperatorFace):
        return str(f)
    try:
        known = _tensor_functions().get(f)
    except TypeError:  # not hashable: no operator
        return None
    return _function_names().get(id(f)) or known


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Callable], Callable]:
    """Decorator: dispatch a user's function to its arguments' `__torch_function__` first, as operators do. The dispatcher gets the same
    arguments and returns the relevant ones."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate
