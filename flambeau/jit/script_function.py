"""Compiled functions as Python objects: single ones, units of several compiled from text, and saving of functions and modules."""

from __future__ import annotations

import io
import pickle
from typing import Any

from ..core import overrides
from . import archive, inlining, printing
from .compilation import compile_text, seen_by_caller
from .functions import Function
from .ir import Graph
from .module import RecursiveScriptModule, ScriptModule
from .naming import unique_name
from .schema import Argument, Schema
from .types import BOOL, ClassType


class ScriptFunction:
    """A compiled function."""

    def __init__(self, function: Function, original: Any = None):
        self.script_function = function
        self._torchdynamo_inline = original
        self.__doc__ = getattr(original, "__doc__", None)
        self.__name__ = getattr(original, "__name__", function.base_name)
        self.__qualname__ = getattr(original, "__qualname__", self.__name__)
        self.__module__ = getattr(original, "__module__", __name__)
        self.__original_fn = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        overriding = overrides.overriding_arguments(args, kwargs)
        if overriding:
            return overrides.call_override(self, args, kwargs, overriding)
        return self.script_function(*args, **kwargs)

    @property
    def graph(self) -> Graph:
        return self.script_function.graph

    @property
    def inlined_graph(self) -> Graph:
        return inlining.inlined(self.graph)

    @property
    def code(self) -> str:
        return printing.method_code(self.script_function)[0]

    @property
    def code_with_constants(self) -> Any:
        return printing.code_with_constants(self.script_function)

    @property
    def schema(self) -> Any:
        return self.script_function.schema

    @property
    def name(self) -> str:
        return self.script_function.base_name

    @property
    def qualified_name(self) -> str:
        return self.script_function.qualified_name

    def graph_for(self, *args: Any, **kwargs: Any) -> Graph:
        return self.inlined_graph

    def get_debug_state(self) -> Any:
        raise NotImplementedError("there is no executor with a debug state in Flambeau")

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        save_function(self.script_function, f, _extra_files)

    def save_to_buffer(self, _extra_files: dict[str, Any] | None = None) -> bytes:
        buffer = io.BytesIO()
        self.save(buffer, _extra_files)
        return buffer.getvalue()

    def __reduce__(self) -> Any:
        raise pickle.PickleError("ScriptFunction cannot be pickled")

    def __repr__(self) -> str:
        return f"<torch.jit.ScriptFunction object at {id(self):#x}>"


class CompilationUnit:
    """Functions compiled from text; each is an attribute."""

    def __init__(self, lang: str | None = None, _frames_up: int = 0):
        self._functions: dict[str, Function] = {}
        if lang is not None:
            self.define(lang, _frames_up=_frames_up + 1)

    def define(self, lang: str, rcb: Any = None, _frames_up: int = 0) -> CompilationUnit:
        names = seen_by_caller(_frames_up + 1) if rcb is None else rcb
        self._functions.update(compile_text(lang, names))
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.__dict__.get("_functions", {}):
            raise AttributeError(f"'CompilationUnit' has no attribute '{name}'")
        return ScriptFunction(self._functions[name])

    def find_function(self, name: str) -> Any:
        return self.__getattr__(name)

    def create_function(self, qualified_name: Any, graph: Any, shouldMangle: bool = False) -> Any:  # noqa: N803  PyTorch's name
        """Add a function that runs a graph."""
        arguments = [Argument(v.name, v.type) for v in graph.inputs_]
        schema = Schema(str(qualified_name), "", arguments, [v.type for v in graph.outputs_])
        made = self._functions[str(qualified_name)] = Function(str(qualified_name)).define(graph, schema)
        return ScriptFunction(made)

    def get_functions(self) -> list:
        return [ScriptFunction(f) for f in self._functions.values()]


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a compiled module (or function) to a file or a file-like object.

    >>> save(script(module), "module.pt")
    """
    if isinstance(m, ScriptFunction):
        save_function(m.script_function, f, _extra_files)
        return
    if not isinstance(m, ScriptModule):
        raise AttributeError(
            f"'{type(m).__name__}' object has no attribute 'save': only compiled modules can be saved by torch.jit.save"
        )
    archive.write_module(m, f, _extra_files)


def save_function(function: Function, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a function to a file, as the forward of a module without attributes."""
    kind = ClassType(unique_name("__torch__.PlaceholderModule"), is_module=True)
    kind.attributes["training"] = BOOL
    graph = function.graph.copy()
    graph.add_input("self", kind)
    graph.param.outputs_.insert(0, graph.param.outputs_.pop())
    schema = Schema("forward", "", [Argument("self", kind), *function.schema.arguments], function.schema.returns)
    kind.methods["forward"] = Function(f"{kind.name}.forward", None, kind).define(graph, schema)
    made = RecursiveScriptModule._make(kind)
    archive.write_module(made, f, _extra_files)
