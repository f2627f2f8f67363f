"""From Python's syntax tree to a graph: statements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import signatures as notes
from .frames import Condition, Frame, Refinements, meaningful
from .ir import Block, Value
from .matching import Named
from .named_values import ExceptionClass, LocalFunction, RangeValue
from .source import FrontendError, Range, UnsupportedNodeError, error
from .type_joins import unify, unnamed, unshaped
from .types import ANY, BOOL, INT, STRING, ClassType, Type, is_subtype, result_type
from .values import MethodValue, SimpleValue, Sugared

INT_MAX = 9223372036854775807


_UNSUPPORTED = {
    ast.Try: "try blocks", ast.Global: "global variables", ast.Nonlocal: "nonlocal variables", ast.ClassDef: "class definitions",
    ast.Import: "import statements", ast.ImportFrom: "import statements", ast.AsyncFunctionDef: "async function definitions",
    ast.AsyncFor: "async for loops", ast.AsyncWith: "async with statements",
}  # fmt: skip


class Statements:
    """The part of the emitter that compiles statements."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    # -- statements ------------------------------------------------------------------------------------------------------
    def statements(self: Any, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)
            assert self.frame is not None
            if self.frame.block in self.exits:
                return  # what follows is never reached

    def statement(self: Any, node: ast.stmt) -> None:
        method = getattr(self, f"do_{type(node).__name__}", None)
        if method is None:
            what = _UNSUPPORTED.get(type(node), type(node).__name__)
            raise error(self.at(node).first(), f"{what} aren't supported", UnsupportedNodeError)
        method(node)

    def do_Pass(self: Any, node: ast.Pass) -> None:
        pass

    def do_Expr(self: Any, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, (str, type(...))):
            return  # a docstring
        self.sugared(node.value)

    def do_Return(self: Any, node: ast.Return) -> None:
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

    def do_Raise(self: Any, node: ast.Raise) -> None:
        place = self.at(node)
        if node.exc is None:
            raise error(place, "raise statements without an exception aren't supported", FrontendError)
        thing = self.sugared(node.exc)
        message, name = self._exception_message(place, thing)
        self.raise_exception(place, message, name)
        assert self.frame is not None
        self.exits.add(self.frame.block)

    def _exception_message(self: Any, place: Range, thing: Sugared) -> tuple[Value, str]:
        if isinstance(thing, ExceptionClass):
            return (self.constant("", STRING, place), "") if thing.message is None else (thing.message, thing.name)
        raise error(place, "exceptions must derive from BaseException")

    def raise_exception(self: Any, place: Range | None, message: Value, name: str) -> None:
        inputs = [message, self.constant(name, STRING, place) if name else self.none(place)]
        self.graph.insert(self.graph.create("prim::RaiseException", inputs, 0, place))

    def do_Assert(self: Any, node: ast.Assert) -> None:
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

    def do_If(self: Any, node: ast.If) -> None:
        condition = self.condition(node.test)
        self.branches(
            self.at(node), condition, lambda: self.statements(node.body), lambda: self.statements(node.orelse)
        )

    def branches(self: Any, place: Range, condition: Condition, first: Callable, second: Callable) -> None:
        """Compile an if statement; if the condition is known at compile time, only the branch taken."""
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

    def _merge(self: Any, place: Range, frames: list[Frame], blocks: list[Block]) -> None:
        """Find the variables that exist after an if, and their types."""
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

    def refine(self: Any, place: Range | None, types: dict[str, Type]) -> None:
        """Refine the types of variables by a condition: `x is not None`."""
        for name, kind in types.items():
            found = self.find(name)
            if isinstance(found, SimpleValue) and found.value.type != kind:
                cast = self.graph.op("prim::unchecked_cast", [found.value], kind, place)
                if meaningful(name):
                    cast.set_name(name)
                self.store(name, cast, kind, place)

    # -- loops -----------------------------------------------------------------------------------------------------------
    def do_While(self: Any, node: ast.While) -> None:
        if node.orelse:
            raise error(self.at(node), "else branches of while loops aren't supported", notes.NotSupportedError)
        self.loop(self.at(node), lambda: self.statements(node.body), None, None, node.test)

    def do_For(self: Any, node: ast.For) -> None:
        if node.orelse:
            raise error(self.at(node), "else branches of for loops aren't supported", notes.NotSupportedError)
        place = self.at(node)
        if self.resolver.is_text and isinstance(node.iter, ast.Tuple) and not self.at(node.iter).text().startswith("("):
            raise error(place, "List of iterables is not supported currently")
        iterable = self.sugared(node.iter).iterate(self.at(node.iter), self)
        self.for_each(place, node.target, iterable, lambda: self.statements(node.body))

    def for_each(self: Any, place: Range, target: ast.expr, iterable: Sugared, body: Callable) -> None:
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

    def push_like(self: Any) -> None:
        """Do nothing: an unrolled loop shares the variables of the block around it."""

    pop_like = push_like

    def loop(
        self: Any,
        place: Range,
        body: Callable,
        iterable: Sugared | None,
        target: ast.expr | None,
        test: ast.expr | None,
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

    def do_Break(self: Any, node: ast.Break) -> None:
        self._emit_exit(node, "Break")

    def do_Continue(self: Any, node: ast.Continue) -> None:
        self._emit_exit(node, "Continue")

    def _emit_exit(self: Any, node: ast.stmt, word: str) -> None:
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

    def do_With(self: Any, node: ast.With) -> None:
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

    def do_FunctionDef(self: Any, node: ast.FunctionDef) -> None:
        """Compile a local function for `fork`, as archives write it: without arguments, ending in its return."""
        if node.args.args or not node.body or not isinstance(node.body[-1], ast.Return) or node.body[-1].value is None:
            raise error(self.at(node).first(), "function definitions aren't supported", UnsupportedNodeError)
        assert self.frame is not None
        self.frame.sugared[node.name] = LocalFunction(node)
