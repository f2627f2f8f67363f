"""`torch.jit`: programs in TorchScript, compiled from Python (`script`), recorded (`trace`), saved and loaded.

A program is a graph of typed values; see docs/internals/torchscript.md. It runs with the same operators as everything else here.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Optional, Union, get_args, get_origin

from ..core import naming as _naming
from ..core.settings import is_scripting
from ..futures import Future
from .marks import drop, export, ignore, overload, unused
from .tracing_state import is_tracing

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "RecursiveScriptModule", "ScriptFunction", "ScriptModule", "annotate", "export",
    "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load", "optimize_for_inference", "save",
    "script", "script_if_tracing", "strict_fusion", "script_method", "set_fusion_strategy", "trace", "trace_module", "unused", "wait",
]  # fmt: skip

_python_isinstance = isinstance
_HOMES = {
    "CompilationUnit": "script_function", "Error": "failures", "RecursiveScriptModule": "module", "ScriptFunction": "script_function",
    "ScriptModule": "module", "TopLevelTracedModule": "module", "TracedModule": "module", "freeze": "freezing", "run_frozen_optimizations": "freezing",
    "optimize_for_inference": "freezing", "load": "loading", "save": "script_function", "TracerWarning": "tracer",
    "trace": "tracer", "trace_module": "tracer", "TracingCheckError": "tracer",
    "_get_trace_graph": "trace_graph", "script": "scripting", "interface": "scripting", "export_opnames": "scripting",
    "_hide_source_ranges": "scripting",
}  # fmt: skip


if TYPE_CHECKING:
    from .failures import Error
    from .freezing import freeze, optimize_for_inference
    from .freezing import run_frozen_optimizations as run_frozen_optimizations
    from .loading import load
    from .module import RecursiveScriptModule, ScriptModule
    from .module import TopLevelTracedModule as TopLevelTracedModule
    from .module import TracedModule as TracedModule
    from .script_function import CompilationUnit, ScriptFunction, save
    from .scripting import export_opnames as export_opnames
    from .scripting import interface, script
    from .tracer import TracerWarning as TracerWarning
    from .tracer import TracingCheckError as TracingCheckError
    from .tracer import trace, trace_module
else:

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return _naming.attribute(__name__, _HOMES[name], name)
        if name in ("frontend", "annotations", "_state", "_monkeytype_config"):
            return _naming.submodule(__name__, name)
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def script_method(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a method of a ScriptModule to be compiled."""

    @functools.wraps(fn)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.script_type.methods[fn.__name__](self, *args, **kwargs)

    run.__wrapped_script__ = fn  # type: ignore[attr-defined]
    return run


def script_if_tracing(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: call a function normally, but its compiled form while a program is being traced."""

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        return sys.modules[__name__].script(fn)(*args, **kwargs) if is_tracing() else fn(*args, **kwargs)

    run.__original_fn = fn  # type: ignore[attr-defined]
    run.__script_if_tracing_wrapper = True  # type: ignore[attr-defined]
    return run


_enabled = [True]


def enabled() -> bool:
    return _enabled[0]


def isinstance(obj: Any, target_type: Any) -> bool:  # noqa: A001  the name is PyTorch's
    """Return whether the object has the type, including element types of containers.

    >>> isinstance({"a": [1.0]}, dict[str, list[float]])
    True
    """
    if _python_isinstance(target_type, (list, set, dict)):
        raise RuntimeError("The second argument to `torch.jit.isinstance` must be a type or a tuple of types")
    warn_of_empty_container(obj)
    return _is_of(obj, target_type)


def warn_of_empty_container(obj: Any) -> None:
    """Warn that the element type of an empty container is unknown."""
    if _python_isinstance(obj, (list, dict, tuple)) and not obj:
        warnings.warn(
            "The inner type of a container is lost when calling torch.jit.isinstance in eager mode. For example, List[int] would become list and therefore falsely return True for List[float] or List[str].",
            stacklevel=3,
        )


def _is_of(obj: Any, target_type: Any) -> bool:
    container, inside = get_origin(target_type), get_args(target_type)
    if container in (list, dict, tuple) and not inside or target_type is Optional:
        word, what = (target_type.__name__ if target_type is not Optional else "Optional"), "a contained type"
        example = f"{word}[int]"
        if container is dict:
            what, example = "contained types", "Dict[int, int]"
        raise RuntimeError(
            f"Attempted to use {word} without {what}. Please add {what.removeprefix('a ')}, e.g. {example}"
            if container is dict
            else f"Attempted to use {word} without a contained type. Please add a contained type, e.g. {example}"
        )
    if _python_isinstance(target_type, tuple) or container in (Union, UnionType):
        return any(_is_of(obj, kind) for kind in inside or target_type)
    if container is None:
        return _python_isinstance(obj, NoneType if target_type is None else target_type)
    if not _python_isinstance(obj, container):
        return False
    if container is tuple:
        return len(obj) == len(inside) and all(map(_is_of, obj, inside))
    columns = (obj.keys(), obj.values()) if container is dict else (obj,)
    return all(_is_of(item, kind) for column, kind in zip(columns, inside) for item in column)


def annotate(the_type: Any, the_value: Any) -> Any:
    """Return `the_value` unchanged; in compiled code it gets the type `the_type`."""
    return the_value


class Attribute(NamedTuple):
    """A value with the type that the compiled module's attribute shall have."""

    value: Any
    type: Any


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """Return a future of the function's result. The function is called at once."""
    future: Future = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future[Any]) -> Any:
    """Wait for a future and return its value."""
    return future.wait()


_fork, _wait = fork, wait


def _unwrap_optional(x: Any) -> Any:
    """Return the value; raises if it is None."""
    assert x is not None, "Unwrapping null optional"
    return x


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Check and store a fusion strategy; return the former one. It has no effect: graphs are interpreted operator by operator."""
    for behaviour, _ in strategy:
        if behaviour not in ("STATIC", "DYNAMIC"):
            raise ValueError(f"FusionBehavior only supported 'STATIC' or 'DYNAMIC', got: {behaviour}")
    before = list(_strategy)
    _strategy[:] = strategy
    return before


_strategy: list[tuple[str, int]] = [("STATIC", 2), ("DYNAMIC", 10)]


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Context manager without effect: graphs are interpreted operator by operator, whatever `should_optimize` is."""
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """Context manager without effect: check that `name` is a fuser of PyTorch ("fuser0" to "fuser3"). Graphs are not fused here."""
    if name not in ("", "none", "fuser0", "fuser1", "fuser2", "fuser3"):
        raise Exception(f"unrecognized fuser option (name: {name})")
    yield


class _StrictFusion:
    """Context manager for a part of a graph that must become one kernel. Scripted functions that use it are refused: no graph is fused."""

    def __enter__(self) -> None:
        """Do nothing: as in PyTorch, the context has no effect outside of compiled code."""

    def __exit__(self, *exc: Any) -> None:
        """Do nothing."""


strict_fusion = _StrictFusion


def onednn_fusion_enabled() -> bool:
    """Return whether graphs are fused for oneDNN: never (single operators use it by themselves)."""
    return False


def enable_onednn_fusion(enabled: bool) -> None:
    """Raise NotImplementedError if `enabled`: graphs are not fused here."""
    if enabled:
        raise NotImplementedError("graphs are not fused here; single operators use oneDNN by themselves")


def _unique_state_dict(module: Any, keep_vars: bool = False) -> dict[str, Any]:
    """Return the state dict of a module; a tensor with several names appears once, under its first name."""
    seen: dict[int, Any] = {}
    out = {}
    for name, value in module.state_dict(keep_vars=True).items():
        if id(value) not in seen:
            seen[id(value)] = value
            out[name] = value if keep_vars else value.detach()
    return out


_overload = _overload_method = overload
_drop = drop
_script_if_tracing = script_if_tracing

del annotations  # the mark of `from __future__`; the module of that name is found by __getattr__
