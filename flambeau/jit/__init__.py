"""`torch.jit`: programs in TorchScript, compiled from Python (`script`), recorded (`trace`), saved and loaded.

A program is a graph of typed values; see docs/torchscript.md. It runs with the same operators as everything else here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

from ..futures import Future
from ..nn import Module
from .marks import Mark, export, ignore, overload, unused

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "RecursiveScriptModule", "ScriptFunction", "ScriptModule", "annotate", "export",
    "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load", "optimize_for_inference", "save",
    "script", "script_if_tracing", "script_method", "set_fusion_strategy", "trace", "trace_module", "unused", "wait",
]  # fmt: skip

_python_isinstance = isinstance
_HOMES = {
    "CompilationUnit": "compilation", "Error": "interpreter", "RecursiveScriptModule": "module", "ScriptFunction": "module",
    "ScriptModule": "module", "TopLevelTracedModule": "module", "TracedModule": "module", "freeze": "freezing", "run_frozen_optimizations": "freezing",
    "optimize_for_inference": "freezing", "load": "archive", "save": "archive", "TracerWarning": "tracer",
    "trace": "tracer", "trace_module": "tracer", "TracingCheckError": "tracer", "is_tracing": "tracing_state",
    "_get_trace_graph": "trace_graph",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name in ("frontend", "annotations"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def script(
    obj: Any,
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> Any:
    """Compile a function, a module or a class.

    >>> @script
    ... def double(x):
    ...     return x + x
    """
    from . import classes, module, recursive, resolver, signatures  # noqa: PLC0415  modules, classes and functions need one another

    if not enabled():
        return obj
    if _python_isinstance(obj, (module.ScriptModule, module.ScriptFunction)):
        return obj
    if _python_isinstance(obj, Module):
        obj = obj.__prepare_scriptable__() if hasattr(obj, "__prepare_scriptable__") else obj
        return recursive.script_module(obj, recursive.exported)
    if _python_isinstance(obj, type):
        if issubclass(obj, Module):
            raise RuntimeError(
                f"Type '{obj}' cannot be compiled since it inherits from nn.Module, consider passing an instance instead"
            )
        kind = signatures.class_type(obj)
        if _python_isinstance(kind, signatures.ClassType):
            classes.compile_all(kind)  # type: ignore[arg-type]
        return obj
    if inspect.isfunction(obj) or inspect.ismethod(obj):
        function = obj.__func__ if inspect.ismethod(obj) else obj
        if hasattr(function, "__script_if_tracing_wrapper"):
            function = function.__original_fn  # type: ignore[attr-defined]
        function = (
            inspect.unwrap(function) if hasattr(function, "__wrapped__") and not hasattr(function, "op") else function
        )
        return module.ScriptFunction(resolver.function_for(function).ensure(), function)
    if callable(obj) and hasattr(obj, "op"):
        raise RuntimeError(f"{obj} is an operator; compile a function that calls it")
    raise TypeError(f"script expects a function, a class or a module, got {type(obj).__name__}")


def script_method(fn: Callable) -> Callable:
    """Mark a method of a ScriptModule to be compiled."""

    @functools.wraps(fn)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.script_type.methods[fn.__name__](self, *args, **kwargs)

    run.__wrapped_script__ = fn  # type: ignore[attr-defined]
    return run


def script_if_tracing(fn: Callable) -> Callable:
    """The function; while something is being traced, its compiled form."""

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        from .tracing_state import is_tracing  # noqa: PLC0415  modules, classes and functions need one another

        return script(fn)(*args, **kwargs) if is_tracing() else fn(*args, **kwargs)

    run.__original_fn = fn  # type: ignore[attr-defined]
    run.__script_if_tracing_wrapper = True  # type: ignore[attr-defined]
    return run


def is_scripting() -> bool:
    """Whether this is compiled code: in Python never."""
    return False


_enabled = [True]


def enabled() -> bool:
    return _enabled[0]


def interface(obj: Any) -> Any:
    """Declare an interface: a class whose methods are empty."""
    from . import classes  # noqa: PLC0415  modules, classes and functions need one another

    classes.make_interface(obj)
    return obj


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
    """The value; in compiled code it has the type."""
    return the_value


class Attribute(NamedTuple):
    """A value with the type that the compiled module's attribute shall have."""

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


_fork, _wait = fork, wait


def _unwrap_optional(x: Any) -> Any:
    """The value, which must not be None."""
    assert x is not None, "Unwrapping null optional"
    return x


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Checked and remembered, and the strategy before is returned, as in PyTorch. Graphs are interpreted operator by operator
    here, so that nothing follows from it."""
    for behaviour, _ in strategy:
        if behaviour not in ("STATIC", "DYNAMIC"):
            raise ValueError(f"FusionBehavior only supported 'STATIC' or 'DYNAMIC', got: {behaviour}")
    before = list(_strategy)
    _strategy[:] = strategy
    return before


_strategy: list[tuple[str, int]] = [("STATIC", 2), ("DYNAMIC", 10)]


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Accepted: graphs are interpreted operator by operator, with `should_optimize` and without."""
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """Accepted if PyTorch knows the fuser ("fuser0", "fuser1", "fuser2", "fuser3"): graphs are interpreted operator by operator, and
    none is fused."""
    if name not in ("", "none", "fuser0", "fuser1", "fuser2", "fuser3"):
        raise Exception(f"unrecognized fuser option (name: {name})")
    yield


def onednn_fusion_enabled() -> bool:
    """Whether graphs are fused for oneDNN: never (single operators use it by themselves)."""
    return False


def enable_onednn_fusion(enabled: bool) -> None:
    """Graphs are not fused here: True is refused."""
    if enabled:
        raise NotImplementedError("graphs are not fused here; single operators use oneDNN by themselves")


_overload = _overload_method = overload
_Mark = Mark

del annotations  # the mark of `from __future__`; the module of that name is found by __getattr__
