"""Marks on Python functions: export, ignore, unused, overload."""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
import warnings
import weakref
from collections.abc import Callable
from typing import Any


class Mark(enum.Enum):
    EXPORT = "@torch.jit.export"
    IGNORE = "@torch.jit.ignore (leave as a call to Python, cannot be torch.jit.save'd)"
    UNUSED = "@torch.jit.unused (ignore and replace with raising of an exception)"
    COPY = "if this method is not scripted, copy the python method onto the scripted model"


_ATTRIBUTE = "_torchscript_modifier"
_overloads: dict[str, list[Any]] = {}
boolean_dispatched: dict[Any, dict[str, Any]] = {}  # functions made by `_jit_internal.boolean_dispatch`


def mark_of(thing: Any) -> Mark | None:
    return getattr(thing, _ATTRIBUTE, None)


def marked(fn: Any, mark: Mark) -> Any:
    """Mark a function and return it."""
    fn._torchscript_modifier = mark
    return fn


def export(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a method of a module to be compiled, though `forward` does not call it."""
    return marked(fn, Mark.EXPORT)


def unused(fn: Any) -> Any:
    """Mark a method that compiled code never runs: a call raises an exception there."""
    if isinstance(fn, property):
        marked(fn.fget, Mark.UNUSED)
        if fn.fset:
            marked(fn.fset, Mark.UNUSED)
        return fn
    return marked(fn, Mark.UNUSED)


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Mark a function to be left to Python, as `@ignore` or `@ignore(drop=...)`: compiled code calls back, and cannot be saved."""
    if callable(drop):
        return marked(drop, Mark.IGNORE)
    if not isinstance(drop, bool):
        raise RuntimeError(f"Argument to @torch.jit.ignore must be a bool or a function but got {drop}")
    for_export = kwargs.pop("drop_on_export", None)
    if for_export is not None:
        warnings.warn("ignore(drop_on_export=True) has been deprecated. TorchScript will now drop the function call on compilation. Use torch.jit.unused now. {}", category=FutureWarning, stacklevel=2)  # fmt: skip
        drop = for_export
    elif drop:
        warnings.warn("ignore(True) has been deprecated. TorchScript will now drop the function call on compilation. Use torch.jit.unused now. {}", category=FutureWarning, stacklevel=2)  # fmt: skip

    def mark(fn: Callable) -> Callable:
        return marked(fn, Mark.UNUSED if drop else Mark.IGNORE)

    return mark


def drop(fn: Callable) -> Callable:
    """Mark a function that compiled code cannot call, and whose types need not be TorchScript's."""
    return marked(fn, Mark.UNUSED)


def overload(fn: Callable) -> Callable:
    """Declare the types of one overload; the function without this mark, of the same name, is the implementation."""
    body = ast.parse(textwrap.dedent(inspect.getsource(fn))).body[0].body  # type: ignore[attr-defined]
    if not all(
        isinstance(s, ast.Pass) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)) for s in body
    ):
        raise RuntimeError(f"Only `pass` statement or `...` can be the body of overload declaration:\n{inspect.getsource(fn)}")  # fmt: skip
    _overloads.setdefault(f"{fn.__module__}.{fn.__qualname__}", []).append(fn)
    return fn


def overloads(fn: Any) -> list[Any]:
    return _overloads.get(f"{fn.__module__}.{fn.__qualname__}", [])


compiled: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # the types of Python classes that were compiled
