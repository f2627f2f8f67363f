"""Parameters of functions: read often while operators are declared, so without `inspect` where possible."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, NamedTuple

NO_DEFAULT = inspect.Parameter.empty
_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class Parameter(NamedTuple):
    """A parameter of a function: name, default, whether keyword-only."""

    name: str
    default: Any
    keyword_only: bool


def takes_options(declare: Callable[..., Any]) -> Any:
    """Make a decorator of `declare(fn, **options)` that is used with options, `@decorator(option=...)`, or without."""

    @functools.wraps(declare)
    def decorator(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
        return functools.partial(declare, **options) if fn is None else declare(fn, **options)

    return decorator


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of a function, in order of declaration."""
    own = _plain(function)
    if own is None:
        every = inspect.signature(function).parameters.values()
        return [Parameter(p.name, p.default, p.kind is p.KEYWORD_ONLY) for p in every]
    positional, given, named = own.__code__.co_argcount, own.__defaults__ or (), own.__kwdefaults__ or {}
    names = _names(own)
    defaults = [NO_DEFAULT] * (positional - len(given)) + [*given]
    found = [Parameter(n, d, False) for n, d in zip(names, defaults)]
    found += [Parameter(n, named.get(n, NO_DEFAULT), True) for n in names[positional:]]
    return found if own is function else found[1:]


def starred(function: Callable[..., Any]) -> str | None:
    """Return the name of `*args`, or None."""
    if _plain(function) is not None:
        return None
    every = inspect.signature(function).parameters.values()
    return next((p.name for p in every if p.kind is p.VAR_POSITIONAL), None)


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameter names in order of declaration."""
    own = _plain(function)
    if own is None:
        return tuple(inspect.signature(function).parameters)
    return _names(own) if own is function else _names(own)[1:]


def positional_count(function: Callable[..., Any]) -> int:
    """Return the number of parameters that can be given by position (`*args` not counted)."""
    own = _plain(function)
    if own is None:
        kinds = [p.kind for p in inspect.signature(function).parameters.values()]
        return sum(k in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for k in kinds)
    return own.__code__.co_argcount - (own is not function)


def _names(function: FunctionType) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _plain(function: Callable[..., Any]) -> FunctionType | None:
    """Return the function itself, or that of a bound method, if its code object describes its whole signature: no decorator sets another one,
    no `*args`; else None."""
    own = function.__func__ if type(function) is MethodType else function
    if type(own) is not FunctionType or own.__code__.co_flags & _VARIADIC:
        return None
    return None if own.__dict__ and {"__signature__", "__wrapped__"} & own.__dict__.keys() else own
