"""`torch.jit` as it is in PyTorch under the environment variable PYTORCH_JIT=0: scripts and traces are the Python code itself.

`script(f)` and `trace(f, inputs)` return `f`, which runs eagerly with the same results. What needs a compiled program (`save`, `load`, `freeze`)
raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

__all__ = [
    "Attribute", "Final", "annotate", "export", "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance",
    "load", "optimize_for_inference", "save", "script", "script_if_tracing", "set_fusion_strategy", "trace", "trace_module", "unused",
    "wait",
]  # fmt: skip

_python_isinstance = isinstance


def script(obj: Any, optimize: Any = None, *args: Any, **kwargs: Any) -> Any:
    """The function, class or module itself."""
    if not callable(obj):
        raise TypeError(f"script expects a function, a class or a module, got {type(obj).__name__}")
    return obj


def trace(func: Callable, example_inputs: Any = None, *args: Any, **kwargs: Any) -> Callable:
    """The function or module itself."""
    return func


def trace_module(mod: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    """The module itself."""
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
    return _python_isinstance(obj, target_type)


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value; the type is for the compiler."""
    return the_value


def Attribute(value: Any, type: Any) -> Any:  # noqa: N802
    """The value; the type is for the compiler."""
    return value


def fork(func: Callable, *args: Any, **kwargs: Any) -> Any:
    """What the function returns; it is called at once."""
    return func(*args, **kwargs)


def wait(future: Any) -> Any:
    return future


def set_fusion_strategy(strategy: list) -> list:
    """Remembered by nobody: operators are not fused here."""
    return []


def _needs_compiler(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"torch.jit.{name} needs TorchScript's compiler, which is not in Flambeau yet")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Needs TorchScript's compiler."
    return function


save = _needs_compiler("save")
load = _needs_compiler("load")
freeze = _needs_compiler("freeze")
optimize_for_inference = _needs_compiler("optimize_for_inference")


class ScriptModule:
    """A compiled module; nothing is one here."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise NotImplementedError("torch.jit.ScriptModule needs TorchScript's compiler, which is not in Flambeau yet")


class ScriptFunction:
    """A compiled function; nothing is one here."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise NotImplementedError("torch.jit.ScriptFunction needs TorchScript's compiler, which is not in Flambeau yet")
