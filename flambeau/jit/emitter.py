"""From Python's syntax tree to a graph: statements. (Expressions: `expressions.py`; calls: `calls.py`.)

Variables are written with prim::Store and read with prim::Load; `ssa.py` turns these into plain values afterwards. The same emitter
compiles users' functions and the code inside archives: what names mean is the resolver's business.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from . import cleanup, ssa
from . import signatures as notes
from .calls import Calls
from .conditions import Condition, Refinements
from .expressions import Expressions
from .ir import Block, Graph, Value, constant_of
from .matching import Named, carry_out, convert, match_call
from .schema import REQUIRED, Argument, Schema, schemas_of
from .source import FrontendError, Range, Source, UnsupportedNodeError, error
from .types import (
    ANY,
    BOOL,
    INT,
    NONE,
    STRING,
    TENSOR,
    ClassType,
    DictType,
    ListType,
    OptionalType,
    TensorType,
    Type,
    is_subtype,
    result_type,
    unify,
    unnamed,
    unshaped,
)
from .values import (
    ExceptionClass,
    FunctionValue,
    LocalFunction,
    MethodValue,
    RangeValue,
    SimpleValue,
    Sugared,
    SugaredTuple,
    valid_name,
)

INT_MAX = 9223372036854775807
_LONE_STAR = "A Starred expression may only appear on the lhs within the presence of another non-starred expression"

_UNSUPPORTED = {
    ast.Try: "try blocks", ast.Global: "global variables", ast.Nonlocal: "nonlocal variables", ast.ClassDef: "class definitions",
    ast.Import: "import statements", ast.ImportFrom: "import statements", ast.AsyncFunctionDef: "async function definitions",
    ast.AsyncFor: "async for loops", ast.AsyncWith: "async with statements",
}  # fmt: skip
_AUGMENTED = {
    ast.Add: "+=", ast.Sub: "-=", ast.Mult: "*=", ast.Div: "/=", ast.Mod: "%=", ast.BitOr: "|=", ast.BitAnd: "&=",
    ast.BitXor: "^=", ast.LShift: "<<=", ast.RShift: ">>=", ast.Pow: "**=",
}  # fmt: skip
INPLACE = {
    "+=": ("aten::add_", "aten::add", "__iadd__"), "-=": ("aten::sub_", "aten::sub", "__isub__"),
    "*=": ("aten::mul_", "aten::mul", "__imul__"), "/=": ("aten::div_", "aten::div", "__itruediv__"),
    "%=": ("aten::fmod_", "aten::remainder", "__imod__"), "|=": ("aten::bitwise_or_", "aten::__or__", "__ior__"),
    "&=": ("aten::bitwise_and_", "aten::__and__", "__iand__"), "^=": ("aten::bitwise_xor_", "aten::__xor__", "__ixor__"),
    "<<=": ("aten::__ilshift__", "aten::__lshift__", "__ilshift__"), ">>=": ("aten::__irshift__", "aten::__rshift__", "__irshift__"),
    "**=": ("aten::pow_", "aten::pow", "__ipow__"),
}  # fmt: skip


class Frame:
    """The variables of one block."""

    def __init__(self, block: Block, parent: Frame | None):
        self.block, self.parent = block, parent
        self.types: dict[str, Type] = {}
        self.sugared: dict[str, Sugared] = {}
        self.broken: dict[str, str] = {}  # variables that cannot be read, and why

    def defined(self) -> set[str]:
        return set(self.types) | set(self.sugared)

    def holder(self, name: str) -> Frame | None:
        frame: Frame | None = self
        while frame is not None:
            if name in frame.types or name in frame.sugared:
                return frame
            frame = frame.parent
        return None


class Definition:
    """What is known about the function being compiled."""

    def __init__(self, declared: Type | None):
        self.declared, self.merged = declared, None  # type: Type | None, Type | None
        self.loops: list[str] = []  # "loop" or "unrolled"


class Emitter(Expressions, Calls):
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
        """Insert an operator, whichever overload fits."""
        schemas = schemas_of(symbol)
        compiled = self.resolver.compiled_builtin(symbol)
        if not schemas and not compiled:
            raise error(place, f"Unknown builtin op: {symbol}.\n\nHere are some suggestions: \n\nThe original call is")
        if compiled:
            try:
                return (
                    carry_out(self.graph, symbol, match_call(self.graph, place, schemas, args, kwargs, owner), place)
                    if schemas
                    else self._call_compiled(place, compiled, args, kwargs, owner)
                )
            except RuntimeError:
                if not schemas:
                    raise
                return self._call_compiled(place, compiled, args, kwargs, owner)
        return carry_out(self.graph, symbol, match_call(self.graph, place, schemas, args, kwargs, owner), place)

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
        """What a name stands for: a variable, or what the resolver says."""
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
        """Give a variable a value."""
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
        """Compile a definition; its schema."""
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
                self._bind_self(argument.name, value, self_type)
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

    def _bind_self(self, name: str, value: Value, kind: Type) -> None:
        assert self.frame is not None
        self.frame.sugared[name] = self.resolver.self_value(self, value, kind)

    def ensure_return(self, tree: ast.FunctionDef) -> None:
        """A function without return gives None."""
        definition = self.definitions[-1]
        if definition.merged is None:
            if definition.declared is not None and definition.declared is not NONE and self.graph not in self.exits:
                raise error(
                    self.at(tree), "Function was not annotated as having type None, but does not return along all paths"
                )
            with self.graph.at(self.graph):
                self._return_none(self.at(tree))
            definition.merged = definition.declared or NONE
        elif self.graph not in self.exits:
            if definition.merged is not NONE and not is_subtype(NONE, definition.merged):
                raise error(
                    self.at(tree), "Function was not annotated as having type None, but does not return along all paths"
                )
            with self.graph.at(self.graph):
                self._return_none(self.at(tree))

    def _return_none(self, place: Range) -> None:
        self.graph.insert(self.graph.create("prim::ReturnStmt", [self.none(place)], 0, place))

    # -- statements ------------------------------------------------------------------------------------------------------
    def statements(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)
            assert self.frame is not None
            if self.frame.block in self.exits:
                return  # what follows is never reached

    def statement(self, node: ast.stmt) -> None:
        method = getattr(self, f"do_{type(node).__name__}", None)
        if method is None:
            what = _UNSUPPORTED.get(type(node), type(node).__name__)
            raise error(self.at(node).first(), f"{what} aren't supported", UnsupportedNodeError)
        method(node)

    def do_Pass(self, node: ast.Pass) -> None:
        pass

    def do_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, (str, type(...))):
            return  # a docstring
        self.sugared(node.value)

    def do_Return(self, node: ast.Return) -> None:
        place, definition = self.at(node), self.definitions[-1]
        if "unrolled" in definition.loops:
            raise error(place, "returns are not supported inside unrolled loops")
        declared = definition.declared
        value = self.none(place) if node.value is None else self.expression(node.value, declared)
        if declared is not None:
            value = self.convert(place, declared, value)
            if not is_subtype(value.type, declared) and not (
                self.resolver.trusts_returns and is_subtype(unnamed(value.type), unnamed(declared))
            ):
                raise error(
                    place,
                    f"Return value was annotated as having type {declared.repr_str()} but is actually of type {value.type.repr_str()}",
                )
            merged: Type | None = declared
        else:
            before = definition.merged
            merged = value.type if before is None else unify(before, value.type)
            if merged is None:
                raise error(
                    place,
                    f"Previous return statement returned a value of type {before.repr_str() if before else ''} but this return statement returns a value of type {value.type.repr_str()}",
                )
        definition.merged = unshaped(merged) if merged is not None else None
        self.graph.insert(self.graph.create("prim::ReturnStmt", [value], 0, place))
        assert self.frame is not None
        self.exits.add(self.frame.block)

    def do_Raise(self, node: ast.Raise) -> None:
        place = self.at(node)
        if node.exc is None:
            raise error(place, "raise statements without an exception aren't supported", FrontendError)
        thing = self.sugared(node.exc)
        message, name = self._exception_message(place, thing)
        self.raise_exception(place, message, name)
        assert self.frame is not None
        self.exits.add(self.frame.block)

    def _exception_message(self, place: Range, thing: Sugared) -> tuple[Value, str]:
        if isinstance(thing, ExceptionClass):
            return thing.message if thing.message is not None else self.constant("", STRING, place), thing.name
        value = thing.as_value(place, self)
        return self.call_operator(place, "aten::str", [Named(value, place)], []), ""

    def raise_exception(self, place: Range | None, message: Value, name: str) -> None:
        inputs = [message, self.constant(name, STRING, place) if name else self.none(place)]
        self.graph.insert(self.graph.create("prim::RaiseException", inputs, 0, place))

    def do_Assert(self, node: ast.Assert) -> None:
        place = self.at(node)

        def fail() -> None:
            if node.msg is None:
                message = self.constant("AssertionError: ", STRING, place)
            else:
                value = self.expression(node.msg)
                text = (
                    self.call_operator(place, "aten::str", [Named(value, place)], [])
                    if value.type is not STRING
                    else value
                )
                message = self.builtin(place, "aten::add", [self.constant("AssertionError: ", STRING, place), text])
            self.raise_exception(place, message, "")
            assert self.frame is not None
            self.exits.add(self.frame.block)

        self.branches(place, self.condition(node.test), lambda: None, fail)

    def do_If(self, node: ast.If) -> None:
        condition = self.condition(node.test)
        self.branches(
            self.at(node), condition, lambda: self.statements(node.body), lambda: self.statements(node.orelse)
        )

    def branches(self, place: Range, condition: Condition, first: Callable, second: Callable) -> None:
        """An if statement; where the condition is known now, only the branch that is taken."""
        if condition.static is not None:
            self.refine(place, condition.refinements.when(condition.static))
            (first if condition.static else second)()
            return
        node = self.graph.insert(self.graph.create("prim::If", [condition.value], 0, place))
        blocks = [node.add_block(), node.add_block()]
        frames = []
        for block, run, truth in zip(blocks, (first, second), (True, False)):
            self.push(block)
            with self.graph.at(block):
                self.refine(place, condition.refinements.when(truth))
                run()
            frames.append(self.pop())
        self._merge(place, frames, blocks)

    def _merge(self, place: Range, frames: list[Frame], blocks: list[Block]) -> None:
        """After an if: which variables exist, and with what types."""
        gone = [block in self.exits for block in blocks]
        assert self.frame is not None
        if all(gone):
            self.exits.add(self.frame.block)
            return
        names = sorted(frames[0].defined() | frames[1].defined())
        for name in names:
            if any(gone):
                stays = frames[gone.index(False)]
                if name in stays.types:
                    self.frame.types[name] = stays.types[name]
                    self.frame.sugared.pop(name, None)
                elif name in stays.sugared:
                    self.frame.sugared[name] = stays.sugared[name]
                continue
            holders = [f.holder(name) for f in frames]
            if None in holders:
                which = "false" if holders[1] is None else "true"
                self.frame.broken[name] = f"{name} is not defined in the {which} branch"
                continue
            if any(name in h.sugared for h in holders if h is not None):
                if name in self.frame.defined():
                    continue
                same = {id(h.sugared.get(name)) for h in holders if h is not None}
                if len(same) == 1:
                    self.frame.sugared[name] = holders[0].sugared[name]  # type: ignore[union-attr]
                else:
                    self.frame.broken[name] = f"{name} is not a first-class value in both branches"
                continue
            a, b = (h.types[name] for h in holders if h is not None)
            joined = unify(a, b)
            if joined is None:
                self.frame.broken[name] = (
                    f"Type mismatch: {name} is set to type {a.repr_str()} in the true branch and type {b.repr_str()} in the false branch"
                )
                self.frame.types.pop(name, None)
                continue
            self.frame.types[name] = joined

    def refine(self, place: Range | None, types: dict[str, Type]) -> None:
        """Use what a condition says about variables: `x is not None`."""
        for name, kind in types.items():
            found = self.find(name)
            if isinstance(found, SimpleValue) and found.value.type != kind:
                cast = self.graph.op("prim::unchecked_cast", [found.value], kind, place)
                self._set_refined(name, cast, kind, place)

    def _set_refined(self, name: str, value: Value, kind: Type, place: Range | None) -> None:
        if meaningful(name):
            value.set_name(name)
        self.store(name, value, kind, place)

    # -- loops -----------------------------------------------------------------------------------------------------------
    def do_While(self, node: ast.While) -> None:
        if node.orelse:
            raise error(self.at(node), "else branches of while loops aren't supported", notes.NotSupportedError)
        self.loop(self.at(node), lambda: self.statements(node.body), None, None, node.test)

    def do_For(self, node: ast.For) -> None:
        if node.orelse:
            raise error(self.at(node), "else branches of for loops aren't supported", notes.NotSupportedError)
        place = self.at(node)
        if self.resolver.is_text and isinstance(node.iter, ast.Tuple) and not self.at(node.iter).text().startswith("("):
            raise error(place, "List of iterables is not supported currently")
        iterable = self.sugared(node.iter).iterate(self.at(node.iter), self)
        self.for_each(place, node.target, iterable, lambda: self.statements(node.body))

    def for_each(self, place: Range, target: ast.expr, iterable: Sugared, body: Callable) -> None:
        if isinstance(iterable, SimpleValue) and isinstance(iterable.value.type, ClassType):
            raise error(place, f"'{iterable.value.type.repr_str()}' object is not iterable")
        if not iterable.unrolled:
            self.loop(place, body, iterable, target, None)
            return
        static = iterable.static_length()
        if static is None:
            raise error(place, "Unrolled loops need a length that is known when compiling")
        self.definitions[-1].loops.append("unrolled")
        self.push_like()
        for number in range(static):
            index = self.constant(number, INT, place)
            self.assign_target(target, iterable.item(place, self, index))
            body()
        self.pop_like()
        self.definitions[-1].loops.pop()

    def push_like(self) -> None:
        """An unrolled loop has the variables of the block around it."""

    pop_like = push_like

    def loop(
        self, place: Range, body: Callable, iterable: Sugared | None, target: ast.expr | None, test: ast.expr | None
    ) -> None:
        length = iterable.length(place, self) if iterable is not None else self.constant(INT_MAX, INT, place)
        node = self.graph.insert(self.graph.create("prim::Loop", [], 0, place))
        inside, checking = node.add_block(), node.add_block()
        self.push(checking)
        with self.graph.at(checking):
            out = self.condition(test) if test is not None else None
            refined = out.refinements if out is not None else Refinements()
            value = out.value if out is not None else self.constant(True, BOOL, place)
            checking.add_output(value)
        self.pop()
        node.add_input(length)
        self.definitions[-1].loops.append("loop")
        self.push(inside)
        with self.graph.at(inside):
            counter = inside.add_input("", INT)
            if test is not None:
                self.refine(place, refined.when(True))
            if iterable is not None and target is not None:
                if (
                    not counter.has_name()
                    and isinstance(target, ast.Name)
                    and isinstance(iterable, RangeValue)
                    and iterable.simple
                    and meaningful(target.id)
                ):
                    counter.set_name(target.id)
                self.assign_target(target, iterable.item(place, self, counter))
            body()
        self.pop()
        self.definitions[-1].loops.pop()

    def do_Break(self, node: ast.Break) -> None:
        self._leave(node, "Break")

    def do_Continue(self, node: ast.Continue) -> None:
        self._leave(node, "Continue")

    def _leave(self, node: ast.stmt, word: str) -> None:
        loops = self.definitions[-1].loops
        place = self.at(node)
        if not loops:
            raise error(place, f"SyntaxError: '{word.lower()}' outside loop")
        if loops[-1] == "unrolled":
            raise error(
                place,
                "Because we emit iteration over Modulelists or Tuples as unrolled loops, we do not support break or continue inside the body of these loops",
            )
        self.graph.insert(self.graph.create(f"prim::{word}Stmt", [], 0, place))
        assert self.frame is not None
        self.exits.add(self.frame.block)

    # -- assignments -----------------------------------------------------------------------------------------------------
    def do_Assign(self, node: ast.Assign) -> None:
        comment = notes.comment_type(self, node)
        if len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                thing = self.sugared(node.value, comment)
                if comment is not None:
                    thing = SimpleValue(self.convert(self.at(node), comment, thing.as_value(self.at(node), self)))
                self.assign(self.at(node), target.id, thing, comment)
            else:
                size = len(target.elts) if isinstance(target, (ast.Tuple, ast.List)) and not _starred(target) else None
                self.assign_target(target, self.sugared(node.value, comment, size), self.at(node))
            return
        thing = self.sugared(node.value)
        if not isinstance(thing, SimpleValue):
            thing = SimpleValue(thing.as_value(self.at(node), self)) if isinstance(thing, SugaredTuple) else thing
        hidden = self.fresh("multi")
        self.assign(self.at(node), hidden, thing)
        for target in node.targets:
            found = self.find(hidden)
            assert found is not None
            self.assign_target(target, found)

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        place = self.at(node)
        if node.value is None:
            raise error(place, "Variable annotations without assigned value aren't supported", FrontendError)
        kind = notes.type_of(self, node.annotation)
        if isinstance(node.target, ast.Attribute):
            value = self.convert(place, kind, self.expression(node.value, kind))
            self._check_annotated(place, node.target.attr, kind, value)
            owner = self.sugared(node.target.value)
            if isinstance(owner, SimpleValue) and isinstance(owner.value.type, ClassType) and self.initializing is None:
                raise ValueError(
                    f"Type annotations on instance attributes must be declared in __init__, not '{self.name}': {self.at(node.target).highlight()}"
                )
            if isinstance(owner, SimpleValue) and self.is_initializing(owner.value):
                owned = owner.value.type
                assert isinstance(owned, ClassType)
                owned.attributes.setdefault(node.target.attr, kind)
            owner.set_attr(place, self, node.target.attr, value)
            return
        if not isinstance(node.target, ast.Name):
            raise error(place, "Type annotations are only allowed on names and attributes", FrontendError)
        thing = self.sugared(node.value, kind)
        value = self.convert(place, kind, thing.as_value(place, self))
        self.assign(place, node.target.id, SimpleValue(value), kind)

    def _check_annotated(self, place: Range, name: str, kind: Type, value: Value) -> None:
        if not is_subtype(value.type, kind):
            raise error(
                place,
                f"Variable '{name}' is annotated with type {kind.repr_str()} but is being assigned to a value of type {value.type.repr_str()}",
            )

    def assign_target(self, target: ast.expr, thing: Sugared, place: Range | None = None) -> None:
        place = place or self.at(target)
        if isinstance(target, ast.Name):
            self.assign(place, target.id, thing)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._assign_several(place, target, thing)
        elif isinstance(target, ast.Attribute):
            self.sugared(target.value).set_attr(place, self, target.attr, thing.as_value(place, self))
        elif isinstance(target, ast.Subscript):
            self.assign_item(place, target, thing.as_value(place, self))
        elif isinstance(target, ast.Starred):
            raise error(place, _LONE_STAR)
        else:
            raise error(place, "unexpected expression on left-hand side of assignment")

    def _assign_several(self, place: Range, target: ast.Tuple | ast.List, thing: Sugared) -> None:
        star = next((i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)), None)
        wanted = len(target.elts)
        if star is not None and sum(isinstance(t, ast.Starred) for t in target.elts) > 1:
            raise error(place, "Only one starred expression is allowed on the lhs")
        if star is not None and wanted == 1:
            raise error(place, _LONE_STAR)
        size = wanted if star is None else None
        items = thing.as_tuple(place, self, size)
        if star is None and len(items) != wanted:
            raise error(place, self._count_text(wanted, len(items)))
        if star is not None:
            after = wanted - star - 1
            if len(items) < wanted - 1:
                raise error(place, self._count_text(wanted - 1, len(items)))
            middle = [i.as_value(place, self) for i in items[star : len(items) - after]]
            packed: Sugared = SimpleValue(self.graph.tuple_of(middle, place))
            starred = target.elts[star]
            assert isinstance(starred, ast.Starred)
            items = [*items[:star], packed, *items[len(items) - after :]]
            targets = [*target.elts[:star], starred.value, *target.elts[star + 1 :]]
        else:
            targets = list(target.elts)
        for inner, item in zip(targets, items):
            self.assign_target(inner, item)

    @staticmethod
    def _count_text(wanted: int, found: int) -> str:
        if found > wanted:
            return f"too many values to unpack: need {wanted} but found {found}"
        return f"need {wanted} values to unpack but found only {found}"

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        place, target = self.at(node), node.target
        word = _AUGMENTED.get(type(node.op))
        if word is None:
            raise error(place, f"unsupported kind of augmented assignment: {type(node.op).__name__}", FrontendError)
        if isinstance(target, ast.Name):
            thing = self.sugared(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            self.assign(
                place, target.id, SimpleValue(self.augmented(place, word, thing.as_value(place, self), node.value))
            )
        elif isinstance(target, ast.Attribute):
            owner = self.sugared(target.value)
            before = owner.attr(place, self, target.attr).as_value(place, self)
            after = self.augmented(place, word, before, node.value)
            if not (isinstance(before.type, TensorType) and after is before):
                owner.set_attr(place, self, target.attr, after)
        elif isinstance(target, ast.Subscript):
            self.augment_item(place, word, target, node.value)
        else:
            raise error(place, "left-hand side of augmented assignment must be a variable, an attribute or an item")

    def augmented(self, place: Range, word: str, before: Value, right: ast.expr) -> Value:
        """`before += right`: in place for tensors and lists, a new value for the rest."""
        inplace, plain, magic = INPLACE[word]
        wanted = before.type if isinstance(before.type, ListType) else None
        value = self.expression(right, wanted)
        if isinstance(before.type, ClassType):
            return self._augmented_object(place, word, before, value, magic)
        if isinstance(before.type, TensorType) or (isinstance(before.type, ListType) and word in ("+=", "*=")):
            return self.builtin(place, inplace, [before, value])
        return self.binary_values(place, plain, before, value)

    def _augmented_object(self, place: Range, word: str, before: Value, value: Value, magic: str) -> Value:
        kind = before.type
        assert isinstance(kind, ClassType)
        for name in (magic, magic.replace("__i", "__", 1)):
            if kind.find_method(name) is not None:
                return MethodValue(before, [name]).call(place, self, [Named(value, place)], []).as_value(place, self)
        raise error(
            place,
            f"Cannot emit inplace op on {kind.repr_str()} since it does not define an {magic} or {magic.replace('__i', '__', 1)} method",
        )

    def do_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            place = self.at(target)
            if isinstance(target, ast.Subscript):
                if isinstance(target.slice, ast.Slice):
                    raise error(
                        place,
                        "del is only supported for deletion at a single index, slicing is not supported: see https://github.com/pytorch/pytorch/issues/31430",
                    )
                container = self.expression(target.value)
                if isinstance(container.type, (ListType, DictType)):
                    index = self.expression(target.slice)
                    self.builtin(place, "aten::Delete", [container, index])
                    continue
                if isinstance(container.type, ClassType):
                    if container.type.find_method("__delitem__") is None:
                        raise error(place, "Class does not define __delitem__")
                    index = self.expression(target.slice)
                    MethodValue(container, ["__delitem__"]).call(place, self, [Named(index, place)], [])
                    continue
                raise error(place, "Tried to call __delitem__ on a " + container.type.repr_str())
            if isinstance(target, ast.Name):
                assert self.frame is not None
                holder = self.frame.holder(target.id)
                if holder is None:
                    raise error(place, f"undefined value {target.id}")
                holder.types.pop(target.id, None)
                holder.sugared.pop(target.id, None)
                continue
            raise error(place, "del statements are only supported for deleting list and dict items and variables")

    def do_With(self, node: ast.With) -> None:
        entered: list[Value] = []
        for item in node.items:
            place = self.at(item.context_expr)
            manager = self.context_manager(item.context_expr)
            kind = manager.type
            if (
                not isinstance(kind, ClassType)
                or kind.find_method("__enter__") is None
                or kind.find_method("__exit__") is None
            ):
                raise error(
                    place,
                    "With item must be an object"
                    if not isinstance(kind, ClassType)
                    else "Object returned by with item expression does not define __enter__ and __exit__ methods",
                )
            entering = MethodValue(manager, ["__enter__"])
            kind.find_method("__enter__").ensure(place)
            enter = self.graph.create("prim::Enter", [manager], 1, place)
            enter.outputs_[0].type = result_type(kind.find_method("__enter__").schema)
            self.graph.insert(enter)
            del entering
            if item.optional_vars is not None:
                self.assign_target(item.optional_vars, SimpleValue(enter.outputs_[0]))
            entered.append(manager)
        self.statements(node.body)
        assert self.frame is not None
        for manager in reversed(entered):
            leave = self.graph.create("prim::Exit", [manager], 1, self.at(node))
            leave.outputs_[0].type = ANY
            self.graph.insert(leave)

    def do_FunctionDef(self, node: ast.FunctionDef) -> None:
        """A function for `fork`, as archives write it: without arguments, ending in its return."""
        if node.args.args or not node.body or not isinstance(node.body[-1], ast.Return) or node.body[-1].value is None:
            raise error(self.at(node).first(), "function definitions aren't supported", UnsupportedNodeError)
        assert self.frame is not None
        self.frame.sugared[node.name] = LocalFunction(node)


def _starred(target: ast.Tuple | ast.List) -> bool:
    return any(isinstance(t, ast.Starred) for t in target.elts)


def meaningful(name: str) -> bool:
    """Whether a name says something: `_` and `_1` do not, nor do the emitter's own."""
    if not name or name.startswith("$"):
        return False
    return not (name[0] == "_" and (len(name) == 1 or name[1:].isdigit())) and not name.isdigit()


__all__ = ["REQUIRED", "TENSOR", "Argument", "DictType", "Emitter", "OptionalType", "valid_name"]
