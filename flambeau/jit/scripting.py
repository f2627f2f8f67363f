"""`torch.jit.script`: compiling functions, modules, classes and interfaces."""

from __future__ import annotations

import contextlib
import enum
import inspect
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from ..nn import Module
from . import classes, enabled, recursive, signatures
from .containers import ScriptDict, ScriptList
from .graph_text import shows_source
from .inlining import inlined
from .module import RecursiveScriptModule, ScriptModule
from .objects import ScriptObject, object_to_script
from .resolver import function_for
from .script_function import ScriptFunction
from .types import ClassType


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """Compile a function, a module or a class.

    >>> @script
    ... def double(x):
    ...     return x + x
    """
    if not enabled():
        return obj
    if example_inputs is not None:
        warnings.warn("example_inputs are not read: the types of arguments come from annotations", stacklevel=2)
    if isinstance(obj, (ScriptModule, ScriptFunction, ScriptObject)):
        return obj
    if isinstance(obj, Module):
        obj = recursive.prepared(obj)
        return recursive.script_module(RecursiveScriptModule, obj, recursive.exported)
    if hasattr(obj, "__prepare_scriptable__"):
        obj = obj.__prepare_scriptable__()
    if isinstance(obj, (list, dict)):
        return ScriptList(obj) if isinstance(obj, list) else ScriptDict(obj)
    if isinstance(obj, type):
        if issubclass(obj, Module):
            raise RuntimeError(
                f"Type '{obj}' cannot be compiled since it inherits from nn.Module, consider passing an instance instead"
            )
        return _script_class(obj, sys._getframe(1 + _frames_up))
    if inspect.isfunction(obj) or inspect.ismethod(obj):
        function = obj.__func__ if inspect.ismethod(obj) else obj
        if hasattr(function, "__script_if_tracing_wrapper"):
            function = function.__original_fn  # type: ignore[attr-defined]
        function = (
            inspect.unwrap(function) if hasattr(function, "__wrapped__") and not hasattr(function, "op") else function
        )
        return ScriptFunction(function_for(function).ensure(), function)
    if callable(obj) and hasattr(obj, "op"):
        raise RuntimeError(f"{obj} is an operator; compile a function that calls it")
    _script_class(type(obj), sys._getframe(1 + _frames_up))
    return object_to_script(obj, signatures.class_type(type(obj)))  # type: ignore[arg-type]


def _script_class(obj: Any, frame: Any) -> Any:
    """Compile all methods of a class; type comments in it may use the names visible to the calling function."""
    if not issubclass(obj, (tuple, enum.Enum)):
        try:
            classes.script_class(obj, {**frame.f_globals, **frame.f_locals})
        except signatures.UnknownType:
            raise TypeError(f"script expects a function, a class or a module, got {obj.__name__}") from None
    kind = signatures.class_type(obj)
    if isinstance(kind, ClassType):
        classes.compile_all(kind)
    return obj


def interface(obj: Any) -> Any:
    """Declare an interface: a class whose methods are empty."""
    classes.make_interface(obj)
    return obj


def export_opnames(m: Any) -> list[str]:
    """Return the operators that a compiled module calls, such as `aten::add.Tensor`, sorted by name."""
    found: set[str] = set()

    def visit(block: Any) -> None:
        for node in block.nodes_:
            if node.schema_ is not None:
                found.add(node.schema_.key)
            for inner in node.blocks_:
                visit(inner)

    for method in list(m.script_type.methods.values()):
        visit(inlined(method.graph))
    return sorted(found)


@contextlib.contextmanager
def _hide_source_ranges() -> Iterator[None]:
    """Context manager: print graphs without source locations."""
    before, shows_source.on = shows_source.on, False
    try:
        yield
    finally:
        shows_source.on = before
