"""`torch._jit_internal`: TorchScript's markers and helpers that libraries import."""

from __future__ import annotations

import contextlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final

from ... import jit as _jit
from ...futures import Future
from ...jit import annotate, export, ignore, is_scripting, unused, warn_of_empty_container
from ...jit.annotations import (
    BroadcastingList1,
    BroadcastingList2,
    BroadcastingList3,
    BroadcastingList4,
    BroadcastingList5,
    BroadcastingList6,
)
from ...jit.marks import Mark as FunctionModifiers
from ...jit.marks import boolean_dispatched
from ...jit.marks import drop as _drop  # noqa: F401
from ...jit.marks import overload as _overload

__all__ = [
    "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "BroadcastingList4", "BroadcastingList5", "BroadcastingList6",
    "Final", "FunctionModifiers", "Future", "annotate", "boolean_dispatch", "check_empty_containers", "export",
    "get_callable_argument_names", "ignore", "is_optional", "is_scripting", "is_tuple", "unused",
]  # fmt: skip

_overload_method = _overload


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Callable,
    if_false: Callable,
    module_name: str,
    func_name: str,
) -> Callable:
    """Return a function that calls one of two by a flag, which compiled code needs as a constant."""

    def fn(*args: Any, **kwargs: Any) -> Any:
        flag = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if flag else if_false)(*args, **kwargs)

    fn.__module__, fn.__name__ = module_name or fn.__module__, func_name or fn.__name__
    fn.__doc__ = if_false.__doc__ or if_true.__doc__
    boolean_dispatched[fn] = {"if_true": if_true, "if_false": if_false, "index": arg_index, "default": default, "arg_name": arg_name}  # fmt: skip
    return fn


def is_optional(ann: Any) -> bool:
    """Return whether an annotation allows None."""
    return typing.get_origin(ann) in (typing.Union, types.UnionType) and type(None) in typing.get_args(ann)


def is_tuple(ann: Any) -> bool:
    """Return whether an annotation is a tuple type."""
    return ann is typing.Tuple or typing.get_origin(ann) is tuple  # noqa: UP006  as programs write it


def get_callable_argument_names(fn: Callable) -> list[str]:
    """Return the names of the arguments that may be given by position or by name; [] if the signature is not known."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def check_empty_containers(obj: Any) -> None:
    """Warn that the element type of an empty container is unknown."""
    warn_of_empty_container(obj)


def _copy_to_script_wrapper(fn: Callable) -> Callable:
    """Mark a method that a compiled module keeps as a Python method."""
    fn._torchscript_modifier = FunctionModifiers.COPY  # type: ignore[attr-defined]
    return fn


@contextlib.contextmanager
def _disable_emit_hooks() -> Iterator[None]:
    """Context manager without effect: PyTorch's tests save and load what they compile unless it is used."""
    yield


def __getattr__(name: str) -> Any:
    return getattr(_jit, name)
