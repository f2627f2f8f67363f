"""Compiled functions: compiled on first use, run by the interpreter."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from ..ops.machinery.matching import bind_objects, required
from . import tracing_state
from .emitter import Emitter
from .failures import Failure
from .interpreter import Program
from .ir import Graph
from .naming import unmangled
from .objects import to_python, to_script
from .schema import Argument, Schema
from .source import FrontendError, Range, Source, compiling, error
from .types import ClassType, result_type


class Definition:
    """The syntax tree of a function, with the context needed to compile it."""

    def __init__(self, tree: ast.FunctionDef, source: Source, resolver: Any, defaults: dict[str, Any]):
        self.tree, self.source, self.resolver, self.defaults = tree, source, resolver, defaults


class Function:
    """A compiled function or method. `schema` and `graph` exist once `ensure` has run."""

    def __init__(self, name: str, definition: Definition | None = None, owner: ClassType | None = None):
        self.qualified_name, self.definition, self.owner = name, definition, owner
        self._graph: Graph | None = None
        self._schema: Schema | None = None
        self._program: Program | None = None
        self._busy = False
        self.unused = False

    @property
    def base_name(self) -> str:
        return self.qualified_name.rpartition(".")[2]

    name = base_name

    def ensure(self, place: Range | None = None) -> Function:
        """Compile the function unless that has been done; `place` is where it is called."""
        if self._graph is not None:
            return self
        if self._busy:
            raise error(place, f"function '{self.base_name}' is called recursively. Recursive calls are not supported")
        definition = self.definition
        assert definition is not None
        self._busy = True
        try:
            with compiling(_printed_name(self), place):
                emitter = Emitter(definition.resolver, definition.source, self.owner, self.base_name)
                if self.owner is not None and not self.owner.is_module and self.base_name == "__init__":
                    emitter.initializing = self.owner
                self_type = self.owner if not getattr(self, "static", False) else None
                self._schema = emitter.emit_function(definition.tree, self_type, definition.defaults)
                self._graph = emitter.graph
                self._graph.label = self.base_name
        finally:
            self._busy = False
        return self

    def define(self, graph: Graph, schema: Schema) -> Function:
        """Set the function's graph and schema directly."""
        self._graph, self._schema, self._program = graph, schema, None
        graph.label = self.base_name
        return self

    @property
    def graph(self) -> Graph:
        self.ensure()
        assert self._graph is not None
        return self._graph

    @property
    def schema(self) -> Schema:
        self.ensure()
        assert self._schema is not None
        return self._schema

    def run(self, values: Sequence[Any]) -> Any:
        """Run the function on argument values that have been checked."""
        if self._program is None:
            self._program = Program(self.graph)
        return self._program.run(values)

    def bind(self, args: tuple, kwargs: dict) -> list:
        """Return the values of all arguments in order, converted; raises RuntimeError with PyTorch's messages."""
        return required(self.schema, bind_objects, args, kwargs, _script_value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recording = tracing_state.active()
        if recording is not None:
            return recording.call_script(self, args, kwargs)
        values = self.bind(args, kwargs)
        try:
            result = self.run(values)
        except Failure as failure:
            raise failure.report() from failure.cause
        return to_python(result, result_type(self.schema))


def _printed_name(function: Function) -> str:
    """Return the name of a function as error messages show it: a method's with that of its class."""
    parts = unmangled(function.qualified_name).split(".")
    return ".".join(parts[-2:] if function.owner is not None else parts[-1:])


def _script_value(argument: Argument, given: Any) -> Any:
    if argument.N is not None and isinstance(given, (int, float)):
        given = [given] * argument.N
    return to_script(given, argument.type)


# -- from Python functions --------------------------------------------------------------------------------------------------


def parsed(function: Callable) -> tuple[ast.FunctionDef, Source]:
    """Return the syntax tree of a Python function."""
    if getattr(function, "__name__", "") == "<lambda>":
        raise FrontendError("lambda functions cannot be compiled: write a def")
    try:
        lines, first = inspect.getsourcelines(function)
        filename = inspect.getsourcefile(function)
    except (OSError, TypeError) as problem:
        raise OSError(
            f"Can't get source for {function}. TorchScript requires source access in order to carry out compilation, make sure original .py files are available."
        ) from problem
    indent = len(lines[0]) - len(lines[0].lstrip())
    flat = dedented("".join(lines), indent)
    tree = ast.parse(flat).body
    if len(tree) != 1 or not isinstance(tree[0], ast.FunctionDef):
        raise RuntimeError(f"Expected a single top-level function: {filename}:{first}")
    return tree[0], Source(flat, filename, first, indent)


def dedented(text: str, indent: int) -> str:
    """Return a text without its indentation; lines of strings that start further left are unchanged."""
    if not indent:
        return text
    lines = [line[indent:] if line[:indent].strip() == "" else line for line in text.splitlines(keepends=True)]
    flat = "".join(lines)
    try:
        ast.parse(flat)
    except SyntaxError:
        return textwrap.dedent(text)
    return flat


def defaults_of(function: Callable) -> dict[str, Any]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def text_definition(text: str, resolver: Any) -> Definition:
    """Make the definition of a function from its source text."""
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return Definition(tree, Source(text), resolver, literal_defaults(tree))


def literal_defaults(tree: ast.FunctionDef) -> dict[str, Any]:
    """Return the default values of a definition, which must be literals."""
    positional = [*tree.args.posonlyargs, *tree.args.args]
    pairs = list(zip(positional[len(positional) - len(tree.args.defaults) :], tree.args.defaults))
    pairs += [(a, d) for a, d in zip(tree.args.kwonlyargs, tree.args.kw_defaults) if d is not None]
    return {a.arg: ast.literal_eval(d) for a, d in pairs}
