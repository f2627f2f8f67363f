"""`torch.jit` as it is in PyTorch under the environment variable PYTORCH_JIT=0: scripts and traces are the Python code itself.

`script(f)` and `trace(f, inputs)` return `f`, which runs eagerly with the same results; settings of the compiler are therefore not
looked at. What needs a compiled program (`save`, `load`, `freeze`) raises.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

from ..core.absent import raising
from ..futures import Future

__all__ = [
    "Attribute", "Final", "annotate", "export", "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance",
    "load", "optimize_for_inference", "save", "script", "script_if_tracing", "set_fusion_strategy", "trace", "trace_module", "unused",
    "wait",
]  # fmt: skip

_MISSING = "torch.jit.{} needs TorchScript's compiler, which is not in Flambeau yet"
_UNTRACED = (
    "jit.trace has not recorded anything: it returns the Python code, which takes each branch anew at every call, where a trace"
    " would keep the one taken with the example inputs"
)
_python_isinstance = isinstance


class TracerWarning(Warning):
    """What a trace does not keep."""


def script(obj: Any, optimize: Any = None, *, example_inputs: Any = None) -> Any:
    """The function, class or module itself."""
    if not callable(obj):
        raise TypeError(f"script expects a function, a class or a module, got {type(obj).__name__}")
    return obj


def trace(func: Callable, example_inputs: Any = None, **settings: Any) -> Callable:
    """The function or module itself; it is not run."""
    warnings.warn(_UNTRACED, TracerWarning, stacklevel=2)
    return func


def trace_module(mod: Any, inputs: dict[str, Any], **settings: Any) -> Any:
    """The module itself; it is not run."""
    warnings.warn(_UNTRACED, TracerWarning, stacklevel=2)
    return mod


def script_if_tracing(fn: Callable) -> Callable:
    return fn


def is_scripting() -> bool:
    """Whether code is being compiled: never."""
    return False


def is_tracing() -> bool:
    return False


def export(fn: Callable) -> Callable:
    """Mark a method to be compiled: it is left as it is."""
    return fn


def unused(fn: Callable) -> Callable:
    """Mark a method that compiled code does not call: it is left as it is."""
    return fn


def interface(obj: Any) -> Any:
    return obj


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Mark a method to be left to Python, as `@ignore` or `@ignore(drop=...)`: it is left as it is."""
    return drop if callable(drop) else lambda fn: fn


def isinstance(obj: Any, target_type: Any) -> bool:  # noqa: A001  the name is PyTorch's
    """Whether the object is of the type, which may say what a container holds.

    >>> isinstance({"a": [1.0]}, dict[str, list[float]])
    True
    """
    container, inside = get_origin(target_type), get_args(target_type)
    if _python_isinstance(target_type, tuple) or container in (Union, UnionType):
        return any(isinstance(obj, kind) for kind in inside or target_type)
    if container is None:
        return _python_isinstance(obj, NoneType if target_type is None else target_type)
    if not _python_isinstance(obj, container):
        return False
    if container is tuple:
        return len(obj) == len(inside) and all(map(isinstance, obj, inside))
    columns = (obj.keys(), obj.values()) if container is dict else (obj,)
    return all(isinstance(item, kind) for column, kind in zip(columns, inside) for item in column)


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value; the type is for the compiler."""
    return the_value


class Attribute(NamedTuple):
    """A value with the type that the compiler should give it; without the compiler it stays this pair."""

    value: Any
    type: Any


def fork(func: Callable, *args: Any, **kwargs: Any) -> Future:
    """A future of what the function returns; it is called at once."""
    future: Future = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future) -> Any:
    """The value of a future."""
    return future.wait()


globals().update(
    raising(
        "save load freeze optimize_for_inference set_fusion_strategy",
        NotImplementedError,
        _MISSING,
    )
)


class _Compiled:
    def __init__(self, *args: Any, **kwargs: Any):
        raise NotImplementedError(_MISSING.format(type(self).__name__))


class ScriptModule(_Compiled):
    """A compiled module; nothing is one here."""


class ScriptFunction(_Compiled):
    """A compiled function; nothing is one here."""
