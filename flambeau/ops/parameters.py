"""What a function's parameters are called: read often while operators are declared, so without `inspect` where possible."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType

_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def parameter_names(function: Callable) -> tuple[str, ...]:
    """Names in order of declaration."""
    if not _is_plain(function):
        return tuple(inspect.signature(function).parameters)
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def positional_count(function: Callable) -> int:
    """How many parameters can be given by position (`*args` not counted)."""
    if not _is_plain(function):
        kinds = [p.kind for p in inspect.signature(function).parameters.values()]
        return sum(k in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for k in kinds)
    return function.__code__.co_argcount


def _is_plain(function: Callable) -> bool:
    """Whether the code object tells the whole truth: no decorator claims another signature, no `*args`."""
    return (
        type(function) is FunctionType
        and not function.__code__.co_flags & _VARIADIC
        and not {"__signature__", "__wrapped__"} & function.__dict__.keys()
    )
