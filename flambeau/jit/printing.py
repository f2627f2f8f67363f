"""Graphs as source: the Python subset that `.code` shows and archives hold.

A value that is used once, right where it would be computed, is written inside the expression that uses it; the others get variables with
the names they have in the program.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..core.native_class import CustomClass
from ..ops.machinery.schema import number_text, quoted
from . import types as T
from .functions import Function
from .interpreter import _schema_of
from .ir import Block, Node, Value
from .ir_values import constant_of
from .printed_nodes import EXPRESSIONS, is_identifier
from .schema import REQUIRED, Argument, Schema

_LONG = 40
_RESERVED = frozenset(
    {
        *keyword.kwlist, "_", "self", "print", "uninitialized", "CONSTANTS", "ops", "__torch__", "torch", "fork", "annotate", "attribute",
        "inf", "infj", "nan", "nanj", "range", "float", "int", "bool", "complex", "getattr", "str", "list", "dict", "tuple", "isinstance",
        "unchecked_cast", "List", "Tuple", "Dict", "Optional", "Union", "Tensor", "Any", "Future", "Final", "Module", "NamedTuple", "Enum",
    }
)  # fmt: skip


class ConstMap(NamedTuple):
    """The tensors that printed source refers to as CONSTANTS.c0, CONSTANTS.c1, ..."""

    const_mapping: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.const_mapping[name]


class Printer:
    """Prints functions as source; collects the tensors and the types that they mention."""

    def __init__(self, importable: bool = False):
        self.importable = importable  # whether the text is to be read again
        self.constants: list[Any] = []
        self.types: list[Any] = []  # classes and functions mentioned, in order

    # -- functions -------------------------------------------------------------------------------------------------------
    def function(self, function: Function, level: int = 0) -> str:
        return Body(self, level).function(function)

    def mention(self, thing: Any) -> None:
        if thing not in self.types:
            self.types.append(thing)

    def type_name(self, kind: T.Type) -> str:
        for inner in _named_types(kind):
            self.mention(inner)
        return kind.code

    def constant(self, tensor: Any) -> str:
        for index, known in enumerate(self.constants):
            if known is tensor:
                return f"CONSTANTS.c{index}"
        self.constants.append(tensor)
        return f"CONSTANTS.c{len(self.constants) - 1}"


def _named_types(kind: T.Type) -> list[T.Type]:
    if isinstance(kind, (T.ClassType, T.InterfaceType, T.EnumType)):
        return [kind]
    found = [n for part in kind.contained() for n in _named_types(part)]
    return [*found, kind] if isinstance(kind, T.TupleType) and kind.tuple_name else found


class Body:
    def __init__(self, printer: Printer, level: int):
        self.printer, self.level = printer, level
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.used: set[str] = set()
        self.next: dict[str, int] = {}
        self.inline: set[Node] = set()

    # -- names -----------------------------------------------------------------------------------------------------------
    def fresh(self, candidate: str) -> str:
        name = candidate
        while name in self.used or name in _RESERVED:
            number = self.next.get(name, 0) if name == candidate else self.next.get(candidate, 0)
            self.next[candidate] = number + 1
            name = f"{candidate}{number}"
        self.used.add(name)
        return name

    def define(self, values: Sequence[Value]) -> None:
        for value in values:
            if value not in self.names:
                self.names[value] = self.fresh(_base_name(value))

    def use(self, value: Value) -> str:
        return self.names[value]

    def put(self, text: str) -> None:
        self.lines.append("  " * self.level + text)

    # -- the whole -------------------------------------------------------------------------------------------------------
    def function(self, function: Function) -> str:
        graph, schema = function.graph, function.schema
        self.scan(graph)
        if function.owner is not None:  # most often called `self`, a name that nothing else gets
            self.names[graph.inputs_[0]] = schema.arguments[0].name
            self.used.add(schema.arguments[0].name)
        self.define(graph.inputs_)
        head = self._head(function, schema, graph.inputs_)
        self.level += 1
        self.block(graph, bool(graph.outputs_))
        self.leave(graph)
        return head + "\n".join(self.lines) + "\n"

    def _head(self, function: Function, schema: Schema, values: Sequence[Value]) -> str:
        words = []
        for number, (argument, value) in enumerate(zip(schema.arguments, values)):
            if number == 0 and function.owner is not None and not self.printer.importable:
                words.append(self.use(value))
                continue
            word = f"{self.use(value)}: {self.printer.type_name(argument.type)}"
            if argument.default is not REQUIRED:
                word += f"={self.literal(argument.default, argument.type)}"
            words.append(word)
        inside = ",\n    ".join(words)
        return f"{'  ' * self.level}def {function.base_name}({inside}) -> {self.printer.type_name(T.result_type(schema))}:\n"

    def leave(self, block: Block) -> None:
        self.split(block.outputs_)
        if block.outputs_:
            self.put("return " + ", ".join(map(self.use, block.outputs_)))

    def block(self, block: Block, more: bool) -> None:
        """Print the statements of a block, or `pass` if there are none and none follow (`more`)."""
        if not block.nodes_ and not more:
            self.put("pass")
            return
        before = len(self.lines)
        for node in block.nodes_:
            self.node(node)
        if len(self.lines) == before and not more:
            self.put("pass")

    # -- what is written inside expressions ---------------------------------------------------------------------------------
    def scan(self, block: Block) -> None:
        self._scan_node(block, block.ret)
        for node in reversed(block.nodes_):
            self._scan_node(block, node)

    def _preceding_node(self, block: Block, node: Node) -> Node | None:
        before = block.nodes_.last if node is block.ret else node.preceding
        while before is not None and before.kind_ == "prim::Constant":
            before = before.preceding
        return before

    def _scan_node(self, block: Block, node: Node) -> Node | None:
        if node in self.inline:
            return node
        for inner in node.blocks_:
            self.scan(inner)
        point = self._preceding_node(block, node)
        for value in reversed(node.inputs_):
            maker = value.node
            if maker is point and point is not None and _can_inline(value):
                point = self._scan_node(block, point)
                self.inline.add(maker)
            elif maker.kind_ == "prim::Constant":
                self.inline.add(maker)
        return point

    def split(self, values: Sequence[Value]) -> None:
        """Assign expressions that have become too long, and those before them, to variables."""
        count = 0
        for index, value in enumerate(values):
            if value.node in self.inline and len(self.use(value)) + self.level * 2 >= _LONG:
                count = index + 1
        for value in values[:count]:
            if value.node.kind_ != "prim::Constant" and value.node in self.inline:
                text = self.names.pop(value)
                self.inline.discard(value.node)
                self.assign([value], text)

    def assign(self, values: Sequence[Value], text: str) -> None:
        self.define(values)
        if not values:
            self.put(text)
        elif len(values) == 1:
            self.put(f"{self.use(values[0])} = {text}")
        else:
            self.put(", ".join(map(self.use, values)) + f" = {text}")

    # -- statements ------------------------------------------------------------------------------------------------------
    def node(self, node: Node) -> None:
        kind = node.kind_
        if kind == "prim::Constant":
            self.names[node.outputs_[0]] = self.constant(node)
            return
        if kind in ("prim::If", "prim::Loop", "prim::fork"):
            self.split(node.inputs_ if kind != "prim::Loop" else node.inputs_[:2])
        else:
            self.split(node.inputs_)
        special = getattr(self, f"write_{kind.partition('::')[2]}", None) if kind.startswith("prim::") else None
        if special is not None:
            special(node)
            return
        text = self.expression(node)
        if node in self.inline:
            self.names[node.outputs_[0]] = text
        else:
            self.assign(node.outputs_, text)

    def write_If(self, node: Node) -> None:
        self.define(node.outputs_)
        self.put(f"if {self.use(node.inputs_[0])}:")
        for number, block in enumerate(node.blocks_):
            if number == 1:
                self.put("else:")
            self.level += 1
            self.block(block, bool(node.outputs_))
            self.split(block.outputs_)
            self.copy(node.outputs_, block.outputs_)
            self.level -= 1

    def copy(self, left: Sequence[Value], right: Sequence[Value]) -> None:
        if left:
            self.put(f"{', '.join(map(self.use, left))} = {', '.join(map(self.use, right))}")

    def write_Loop(self, node: Node) -> None:
        body = node.blocks_[0]
        self.define(node.outputs_)
        counted = is_for(node)
        for inside, out in zip(body.inputs_[1:], node.outputs_):
            self.names[inside] = self.use(out)
        for out, value in zip(node.outputs_, node.inputs_[2:]):
            self.put(f"{self.use(out)} = {self.use(value)}")
        self.define(body.inputs_[:1])
        counter = self.use(body.inputs_[0])
        if counted:
            self.put(f"for {counter} in range({self.use(node.inputs_[0])}):")
        else:
            self.put(f"{counter} = {self.use(node.inputs_[1])}")
            self.put(f"while {counter}:")
        start = 1 if counted else 0
        self.level += 1
        self.block(body, bool(body.inputs_[start:]))
        self.split(body.outputs_[start:])
        self.copy(body.inputs_[start:], body.outputs_[start:])
        self.level -= 1

    def write_TupleUnpack(self, node: Node) -> None:
        self.define(node.outputs_)
        if node.outputs_:
            self.put("".join(f"{self.use(v)}, " for v in node.outputs_) + f"= {self.use(node.inputs_[0])}")

    write_ListUnpack = write_TupleUnpack

    def write_SetAttr(self, node: Node) -> None:
        target, value = node.inputs_
        name = node.attributes["name"]
        if not is_identifier(name):
            raise RuntimeError(f"the attribute name {name!r} cannot be written")
        self.put(f"{self.use(target)}.{name} = {self.use(value)}")

    def write_Enter(self, node: Node) -> None:
        self.define(node.outputs_)
        self.put(
            f"with {self.use(node.inputs_[0])} as {self.use(node.outputs_[0])}:"
            if node.outputs_[0].uses
            else f"with {self.use(node.inputs_[0])}:"
        )
        self.level += 1
        self.put("pass") if _is_empty_with(node) else None

    def write_Exit(self, node: Node) -> None:
        self.level -= 1

    def write_ModuleContainerIndex(self, node: Node) -> None:
        self.define(node.outputs_)
        container, index = map(self.use, node.inputs_)
        kind = self.printer.type_name(node.outputs_[0].type)
        self.put(f"{self.use(node.outputs_[0])} : {kind} = {container}[{index}]")

    def write_fork(self, node: Node) -> None:
        """Print the forked block as a local function."""
        block = node.blocks_[0]
        name = self.fresh("__forked_function")
        self.put(f"def {name}():")
        self.level += 1
        self.block(block, True)
        self.leave(block)
        self.level -= 1
        self.assign(node.outputs_, f"fork({name})")

    # -- expressions ------------------------------------------------------------------------------------------------------
    def expression(self, node: Node) -> str:
        kind = node.kind_
        inputs = [self.use(v) for v in node.inputs_]
        writer = EXPRESSIONS.get(kind)
        if writer is not None:
            return writer(self, node, inputs)
        if kind == "prim::PythonOp":
            if self.printer.importable:
                raise RuntimeError(f"Could not export Python function call '{node.attributes.get('name')}'. Remove calls to Python functions before export. Did you forget to add @script or @script_method annotation? If this is a nn.ModuleList, add it to __constants__")  # fmt: skip
            return f"^{node.attributes.get('name')}({', '.join(inputs)})"
        return self.operator(node, inputs)

    def operator(self, node: Node, inputs: list[str]) -> str:
        schema = node.schema_
        if schema is None:
            schema = node.schema_ = _schema_of(node)
        if schema is None:
            return f"{op_name(node.kind_)}({', '.join(inputs)})"
        count = _needed_count(schema, node.inputs_)
        words = []
        for index, text in enumerate(inputs):
            argument = schema.arguments[index] if index < len(schema.arguments) else None
            if argument is not None and argument.kwarg_only:
                if index >= count and _is_default(argument, node.inputs_[index]):
                    continue
                words.append(f"{argument.name}={text}")
            elif index < count or argument is None:
                words.append(text)
        return f"{op_name(node.kind_)}({', '.join(words)})"

    def constant(self, node: Node) -> str:
        kind = node.outputs_[0].type
        if isinstance(kind, T.FunctionType):
            self.printer.mention(kind.function)
            return kind.function.qualified_name
        value = node.attributes.get("value")
        if isinstance(kind, (T.OptionalType, T.UnionType)) or (value is None and kind is not T.NONE):
            return f"annotate({self.printer.type_name(kind)}, {self.literal(value, kind)})"
        return self.literal(value, kind)

    def literal(self, value: Any, kind: T.Type) -> str:
        if value is None or isinstance(value, bool):
            return str(value)
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, float):
            return number_text(value)
        if isinstance(value, complex):
            return f"complex({number_text(value.real)}, {number_text(value.imag)})"
        if isinstance(value, int) and not hasattr(value, "name"):
            return str(value)
        if isinstance(kind, T.EnumType):
            self.printer.mention(kind)
            return f"{kind.enum_name}.{value.name}"
        inner = kind.element if isinstance(kind, T.OptionalType) else kind
        if isinstance(value, list):
            element = inner.element if isinstance(inner, T.ListType) else T.NONE
            text = f"[{', '.join(self.literal(v, element) for v in value)}]"
            return text if value else f"annotate({self.printer.type_name(inner)}, [])"
        if isinstance(value, tuple):
            kinds = inner.elements if isinstance(inner, T.TupleType) else [T.NONE] * len(value)
            texts = [self.literal(v, k) for v, k in zip(value, kinds)]
            return f"({', '.join(texts)},)" if len(texts) == 1 else f"({', '.join(texts)})"
        if isinstance(value, dict):
            return (
                "{"
                + ", ".join(f"{self.literal(k, T.STRING)}: {self.literal(v, T.NONE)}" for k, v in value.items())
                + "}"
            )
        if hasattr(value, "dim") or isinstance(value, CustomClass):
            return self.printer.constant(value)
        return f"torch.device({quoted(str(value))})"


def _can_inline(value: Value) -> bool:
    node = value.node
    if len(node.outputs_) != 1 or len(value.uses) != 1 or node.blocks_:
        return False
    user, index = next(iter(value.uses))
    if value.has_name() and user.kind_ != "prim::Return":
        return False
    if user.kind_ == "prim::Loop" and index >= 2:
        return False
    return user.kind_ not in ("prim::fork", "prim::Enter", "prim::Exit") and node.kind_ not in (
        "prim::isinstance",
        "prim::ModuleContainerIndex",
        "prim::Enter",
        "prim::Exit",
    )


def _base_name(value: Value) -> str:
    if not value.has_name():
        return "_"
    base, dot, digits = value.name.rpartition(".")
    name = base if dot and digits.isdigit() else value.name
    name = re.sub(r"\W", "_", name)
    return name if name and not name[0].isdigit() else f"_{name}"


def _is_empty_with(node: Node) -> bool:
    other = node
    while other.following is not None:
        other = other.following
        if other.kind_ == "prim::Exit" and other.inputs_[0] is node.inputs_[0]:
            return True
        if other.kind_ != "prim::Constant":
            return False
    return True


def is_for(node: Node) -> bool:
    """Return whether a loop is a `for` over a range: its condition is always true."""
    known, start = constant_of(node.inputs_[1])
    known_on, go_on = constant_of(node.blocks_[0].outputs_[0])
    return known and start is True and known_on and go_on is True


def _is_default(argument: Argument, value: Value) -> bool:
    if argument.default is REQUIRED:
        return False
    known, constant = constant_of(value)
    if not known:
        return False
    default = argument.default
    if isinstance(default, (int, float)) and not isinstance(default, bool) and isinstance(constant, list):
        default = [default] * len(constant)
    return (
        type(constant) is type(default) and constant == default or (isinstance(default, list) and constant == default)
    )


def _needed_count(schema: Schema, values: Sequence[Value]) -> int:
    """Return how many arguments must be printed: trailing ones that equal their default can be left out."""
    count = len(values)
    while count > 0 and count <= len(schema.arguments) and _is_default(schema.arguments[count - 1], values[count - 1]):
        count -= 1
    return count


def op_name(symbol: str) -> str:
    space, _, name = symbol.partition("::")
    return f"torch.{name}" if space == "aten" else f"ops.{space}.{name}"


def method_code(function: Function) -> tuple[str, list[Any]]:
    """Return the source of one function, and the tensors that it refers to as CONSTANTS."""
    printer = Printer()
    return printer.function(function), printer.constants


def code_with_constants(function: Function) -> tuple[str, ConstMap]:
    text, tensors = method_code(function)
    return text, ConstMap({f"c{i}": t for i, t in enumerate(tensors)})
