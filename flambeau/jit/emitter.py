"""From Python's syntax tree to a graph: statements. (Expressions: `expressions.py`; calls: `calls.py`.)

Variables are written with prim::Store and read with prim::Load; `ssa.py` turns these into plain values afterwards. The same emitter
compiles users' functions and the code inside archives: a resolver says what names mean.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from . import cleanup, ssa
from . import signatures as notes
from .assignments import Assignments
from .calls import Calls
from .comprehensions import Comprehensions
from .expressions import Expressions
from .frames import Definition, Frame, meaningful
from .ir import Block, Graph, Value
from .ir_values import constant_of
from .matching import Named, carry_out, convert, match_call
from .schema import Schema, schemas_of
from .source import Range, Source, error
from .statements import Statements
from .subscripts import Subscripts
from .type_joins import unshaped
from .types import NONE, ClassType, ListType, TensorType, Type, is_subtype
from .values import FunctionValue, SimpleValue, Sugared


class Emitter(Statements, Assignments, Expressions, Subscripts, Comprehensions, Calls):
    """Compiles one function into a graph."""

    def __init__(self, resolver: Any, source: Source, owner: Any = None, name: str = ""):
        self.resolver, self.source, self.owner, self.name = resolver, source, owner, name
        self.graph = Graph()
        self.frame: Frame | None = None
        self.definitions: list[Definition] = []
        self.exits: set[Block] = set()
        self.initializing: ClassType | None = None
        self.self_name: str | None = None
        self._hidden = 0

    # -- small helpers ---------------------------------------------------------------------------------------------------
    def at(self, node: Any) -> Range:
        return self.source.range_of(node)

    def constant(self, value: Any, type: Type, place: Range | None) -> Value:
        return self.graph.constant(value, type, place)

    def none(self, place: Range | None) -> Value:
        return self.graph.constant(None, NONE, place)

    def known(self, value: Value) -> tuple[bool, Any]:
        return constant_of(value)

    def builtin(self, place: Range | None, symbol: str, values: Sequence[Value]) -> Value:
        return self.call_operator(place, symbol, [Named(v, place) for v in values], [])

    def call_operator(
        self,
        place: Range | None,
        symbol: str,
        args: Sequence[Named],
        kwargs: Sequence[Named],
        owner: Named | None = None,
    ) -> Value:
        """Insert a call of an operator, with the first overload that fits the arguments."""
        schemas = schemas_of(symbol)
        compiled = self.resolver.compiled_builtin(symbol)
        if not schemas and not compiled:
            raise error(place, f"Unknown builtin op: {symbol}.\n\nHere are some suggestions: \n\nThe original call is")
        try:
            if schemas:
                return carry_out(self.graph, symbol, match_call(self.graph, place, schemas, args, kwargs, owner), place)
        except RuntimeError:
            if not compiled:
                raise
        return self._call_compiled(place, compiled, args, kwargs, owner)

    def _call_compiled(
        self, place: Any, compiled: Any, args: Sequence[Named], kwargs: Sequence[Named], owner: Any
    ) -> Value:
        given = [owner, *args] if owner is not None else args
        return FunctionValue([compiled]).call(place, self, given, kwargs).as_value(place, self)

    def convert(self, place: Range | None, wanted: Type, value: Value, allow: bool = True) -> Value:
        return convert(self.graph, place, wanted, value, allow)

    def is_initializing(self, value: Value) -> bool:
        return self.initializing is not None and value.type is self.initializing

    def in_control_flow(self) -> bool:
        return self.frame is not None and self.frame.parent is not None

    def wrap_attribute(self, value: Value, owner: ClassType, name: str) -> Sugared:
        return self.resolver.attribute_value(self, value, owner, name)

    def fresh(self, word: str) -> str:
        self._hidden += 1
        return f"${word}{self._hidden}"

    # -- variables -------------------------------------------------------------------------------------------------------
    def push(self, block: Block) -> None:
        self.frame = Frame(block, self.frame)

    def pop(self) -> Frame:
        frame = self.frame
        assert frame is not None
        self.frame = frame.parent
        return frame

    def find(self, name: str) -> Sugared | None:
        assert self.frame is not None
        holder = self.frame.holder(name)
        if holder is None:
            return None
        if name in holder.sugared:
            return holder.sugared[name]
        return self.load(name, holder.types[name])

    def load(self, name: str, type: Type) -> SimpleValue:
        node = self.graph.create("prim::Load")
        node.attributes["name"] = name
        out = self.graph.insert(node).outputs_[0]
        out.type = type
        if meaningful(name):
            out.set_name(name)
        return SimpleValue(out)

    def store(self, name: str, value: Value, type: Type, place: Range | None) -> None:
        assert self.frame is not None
        self.frame.types[name] = type
        self.frame.sugared.pop(name, None)
        self.frame.broken.pop(name, None)
        node = self.graph.create("prim::Store", [value], 0, place)
        node.attributes.update(name=name, type=type)
        self.graph.insert(node)

    def get(self, name: str, place: Range | None, required: bool = True) -> Sugared | None:
        """Return the meaning of a name: a variable, or the object found by the resolver."""
        found = self.find(name)
        if found is not None:
            return found
        frame = self.frame
        while frame is not None:
            if name in frame.broken:
                raise error(place, frame.broken[name])
            frame = frame.parent
        found = self.resolver.name(self, place, name)
        if found is None and required:
            raise error(place, f"undefined value {name}")
        return found

    def assign(self, place: Range | None, name: str, thing: Sugared, annotated: Type | None = None) -> None:
        """Assign a value to a variable."""
        frame = self.frame
        assert frame is not None
        value = thing.value if isinstance(thing, SimpleValue) else None
        nested_constant = value is not None and value.node.kind_ == "prim::Constant" and frame.parent is not None
        if (
            value is not None
            and not value.has_name()
            and meaningful(name)
            and value.node.owner is frame.block
            and not nested_constant
        ):
            value.set_name(name)
        outer = frame.parent.holder(name) if frame.parent is not None else None
        if outer is not None and name not in frame.types and name not in frame.sugared or (outer is not None):
            if annotated is not None and name not in frame.types:
                raise error(
                    place,
                    f"Attempting to declare and annotate the type of variable '{name}' that is already defined in an outer block",
                )
            if value is None:
                raise error(
                    place,
                    f"Cannot re-assign '{name}' to a value of type {thing.kind} because {name} is not a first-class value.  Only reassignments to first-class values are allowed",
                )
            assert outer is not None
            if name in outer.sugared:
                raise error(
                    place,
                    f"Cannot re-assign '{name}' because it has type {outer.sugared[name].kind} and {name} is not a first-class value.  Only reassignments to first-class values are allowed",
                )
            before = unshaped(outer.types[name])
            value = self.convert(place, before, value)
            if not is_subtype(value.type, before):
                text = f"Variable '{name}' previously had type {before.repr_str()} but is now being assigned to a value of type {value.type.repr_str()}"
                if (
                    isinstance(before, ListType)
                    and isinstance(before.element, TensorType)
                    and isinstance(value.type, ListType)
                ):
                    text += "\nEmpty lists default to List[Tensor]. Add a variable annotation to the assignment to create an empty list of another type (torch.jit.annotate(List[T, []]) where T is the type of elements in the list for Python 2)"
                raise error(place, text)
            self.store(name, value, annotated or value.type, place)
            return
        if value is None:
            frame.sugared[name] = thing
            frame.types.pop(name, None)
            return
        if annotated is not None and not is_subtype(value.type, annotated):
            raise error(
                place,
                f"Variable '{name}' is annotated with type {annotated.repr_str()} but is being assigned to a value of type {value.type.repr_str()}",
            )
        self.store(name, value, annotated or value.type, place)

    # -- the function ----------------------------------------------------------------------------------------------------
    def emit_function(self, tree: ast.FunctionDef, self_type: Type | None, defaults: dict[str, Any]) -> Schema:
        """Compile a definition; return its schema."""
        schema = notes.schema_of(self, tree, self_type, defaults)
        self.push(self.graph)
        declared = schema.result_types[0] if schema.returns else None
        self.definitions.append(Definition(declared))
        for position, argument in enumerate(schema.arguments):
            value = self.graph.add_input("", argument.type)
            if meaningful(argument.name):
                value.set_name(argument.name)
            if position == 0 and self_type is not None:
                self.self_name = argument.name
                assert self.frame is not None
                self.frame.sugared[argument.name] = self.resolver.self_value(self, value, self_type)
            else:
                self.store(argument.name, value, argument.type, self.at(tree))
        self.statements(tree.body)
        self.ensure_return(tree)
        result = self.definitions[-1].merged
        assert result is not None
        with self.graph.at(self.graph):
            self.graph.add_output(self.graph.op("prim::Uninitialized", [], result))
        self.pop()
        ssa.convert(self.graph)
        cleanup.run(self.graph)
        return Schema(schema.name, "", schema.arguments, [result])

    def ensure_return(self, tree: ast.FunctionDef) -> None:
        """Add `return None` to a function without return."""
        definition = self.definitions[-1]
        falls, merged, declared = self.graph not in self.exits, definition.merged, definition.declared
        if merged is not None and not falls:
            return
        wanted = declared if merged is None else merged
        if falls and wanted is not None and wanted is not NONE and not (merged is wanted and is_subtype(NONE, merged)):
            raise error(
                self.at(tree), "Function was not annotated as having type None, but does not return along all paths"
            )
        with self.graph.at(self.graph):
            self._return_none(self.at(tree))
        definition.merged = merged or declared or NONE

    def _return_none(self, place: Range) -> None:
        self.graph.insert(self.graph.create("prim::ReturnStmt", [self.none(place)], 0, place))
