"""The graph of a program: values, the nodes that produce them, nested blocks of nodes; printed as PyTorch prints it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..library.aten.resolver import draws
from .graph_text import print_graph, print_node
from .ir_copies import check, copy_graph, copy_node
from .ir_values import Value
from .node_list import NodeList
from .source import Range
from .types import OF_PYTHON, TENSOR, DictType, ListType, TupleType, Type


class Node:
    """An operator with its inputs, outputs, attributes and inner blocks."""

    __slots__ = (
        "attributes", "blocks_", "following", "graph", "inputs_", "kind_", "owner", "outputs_", "preceding", "range", "schema_", "scope",
    )  # fmt: skip

    def __init__(self, graph: Graph, kind: str, inputs: Iterable[Value] = (), outputs: int = 1):
        self.graph, self.kind_ = graph, kind
        self.inputs_: list[Value] = []
        self.outputs_: list[Value] = []
        self.blocks_: list[Block] = []
        self.attributes: dict[str, Any] = {}
        self.owner: Block | None = None
        self.preceding: Node | None = None
        self.following: Node | None = None
        self.range: Range | None = None
        self.scope = ""
        self.schema_: Any = None
        for value in inputs:
            self.add_input(value)
        for _ in range(outputs):
            self.add_output()

    # -- PyTorch's names ------------------------------------------------------------------------------------------------
    def __call__(self) -> Node:
        """Return the node itself: `value.node`, an attribute here, is a method in PyTorch, so `value.node()` must work as well."""
        return self

    def kind(self) -> str:
        return self.kind_

    def isNondeterministic(self) -> bool:  # noqa: N802
        """Return whether the operator draws random numbers; dropout does unless it is known to be inactive."""
        still = "dropout" in self.kind_ and self.inputs_[-1].node.attributes.get("value") is False
        return draws(self.kind_.removeprefix("aten::")) and not still

    def namedInput(self, name: str) -> Value:  # noqa: N802
        return self.inputs_[self.schema_.index_of(name)]

    def matches(self, schema: str) -> bool:
        """Return whether the node calls the operator of a schema, `aten::mul.Tensor(...) -> Tensor`, or of a prefix of one."""
        return self.schema_ is not None and str(self.schema_).replace(" ", "").startswith(schema.replace(" ", ""))

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:  # noqa: N802
        return [n for block in self.blocks_ for n in block.findAllNodes(kind, recurse)]

    def isAfter(self, other: Node) -> bool:  # noqa: N802
        return _place(self) > _place(other)

    def inputs(self) -> Iterator[Value]:
        return iter(self.inputs_)

    def outputs(self) -> Iterator[Value]:
        return iter(self.outputs_)

    def blocks(self) -> Iterator[Block]:
        return iter(self.blocks_)

    def output(self) -> Value:
        if len(self.outputs_) != 1:
            raise RuntimeError(f"{self.kind_} has {len(self.outputs_)} outputs")
        return self.outputs_[0]

    def input(self) -> Value:
        if len(self.inputs_) != 1:
            raise RuntimeError(f"{self.kind_} has {len(self.inputs_)} inputs")
        return self.inputs_[0]

    def inputsAt(self, index: int) -> Value:  # noqa: N802
        return self.inputs_[index]

    def outputsAt(self, index: int) -> Value:  # noqa: N802
        return self.outputs_[index]

    def inputsSize(self) -> int:  # noqa: N802
        return len(self.inputs_)

    def outputsSize(self) -> int:  # noqa: N802
        return len(self.outputs_)

    def attributeNames(self) -> list[str]:  # noqa: N802
        return list(self.attributes)

    def hasAttribute(self, name: str) -> bool:  # noqa: N802
        return name in self.attributes

    def get(self, name: str) -> Any:
        return self.attributes[name]

    s = i = f = t = ival = fs = __getitem__ = get

    def kindOf(self, name: str) -> str:  # noqa: N802
        """Return the kind of an attribute, which is the name of its accessor in PyTorch: "i", "f", "s"..."""
        value = self.attributes[name]
        if hasattr(value, "untyped_storage"):
            return "t"
        plain = {bool: "i", int: "i", float: "f", str: "s", list: "is"}.get(type(value), "ival")
        return "fs" if plain == "is" and any(isinstance(v, float) for v in value) else plain

    def scopeName(self) -> str:  # noqa: N802
        return self.scope

    def sourceRange(self) -> str:  # noqa: N802
        return self.range.highlight() if self.range else ""

    def owningBlock(self) -> Block | None:  # noqa: N802
        return self.owner

    def schema(self) -> str:
        return str(self.schema_) if self.schema_ is not None else "(no schema)"

    # -- changing -------------------------------------------------------------------------------------------------------
    def add_input(self, value: Value) -> Value:
        value.uses.append((self, len(self.inputs_)))
        self.inputs_.append(value)
        return value

    def add_output(self, type: Type = TENSOR) -> Value:
        value = Value(self, type, self.graph.next_unique())
        self.outputs_.append(value)
        return value

    def add_block(self) -> Block:
        block = Block(self.graph, self)
        self.blocks_.append(block)
        return block

    def replace_input(self, index: int, value: Value) -> None:
        self.inputs_[index].uses.remove((self, index))
        self.inputs_[index] = value
        value.uses.append((self, index))

    replaceInput = replace_input  # noqa: N815

    def drop_inputs(self, start: int = 0) -> None:
        for index in range(start, len(self.inputs_)):
            self.inputs_[index].uses.remove((self, index))
        del self.inputs_[start:]

    def remove_input(self, index: int) -> None:
        later = self.inputs_[index + 1 :]
        self.drop_inputs(index)
        for v in later:
            self.add_input(v)

    def erase_output(self, index: int) -> None:
        value = self.outputs_.pop(index)
        value.set_name("")

    def insert_before(self, other: Node) -> Node:
        block = other.owner
        assert block is not None
        if other is block.ret:
            return block.append(self)
        block.nodes_.insert(self, other.preceding, other)
        self.owner = block
        return self

    def insert_after(self, other: Node) -> Node:
        block = other.owner
        assert block is not None
        block.nodes_.insert(self, other, other.following)
        self.owner = block
        return self

    def move_before(self, other: Node) -> None:
        assert self.owner is not None
        self.owner.nodes_.remove(self)
        self.insert_before(other)

    def destroy(self) -> None:
        """Remove the node from the graph; its outputs must have no users."""
        for block in list(self.blocks_):
            block.destroy()
        self.blocks_ = []
        self.drop_inputs()
        for value in self.outputs_:
            if value.uses:
                raise RuntimeError(f"%{value.name} is still used")
            value.set_name("")
        if self.owner is not None:
            self.owner.nodes_.remove(self)
            self.owner = None

    def captured(self) -> list[Value]:
        """Return the values from outside that the node's blocks read."""
        inside: set[Value] = set()
        read: dict[Value, None] = {}

        def visit(block: Block) -> None:
            inside.update(block.inputs_)
            for inner in [*block.nodes_, block.ret]:
                read.update(dict.fromkeys(inner.inputs_))
                for each in inner.blocks_:
                    visit(each)
                inside.update(inner.outputs_)

        for block in self.blocks_:
            visit(block)
        return [v for v in read if v not in inside]

    def forked(self) -> Graph:
        """Return the block of a fork as a separate graph."""
        made = Graph()
        known = made.take_block(self)
        for value in self.blocks_[0].outputs_:
            made.add_output(known[value])
        return made

    def __str__(self) -> str:
        return print_node(self, 0).rstrip("\n")

    def findNode(self, kind: str, recurse: bool = True) -> Node | None:  # noqa: N802
        for block in self.blocks_:
            found = next(iter(block.findAllNodes(kind, recurse)), None)
            if found is not None:
                return found
        return None


setattr(Node, "is", Node.get)  # PyTorch's name, which Python does not let one write


def _place(node: Node) -> list[int]:
    """Return the position of a node: its index in its block, with those of the nodes around it before."""
    block = node.owner
    assert block is not None
    own = [block.index(node)]
    around = block.owning_node
    return own if around is None else [*_place(around), around.blocks_.index(block), *own]


class Block:
    """An ordered list of nodes with input and output values."""

    def __init__(self, graph: Graph, owner: Node | None):
        self.graph, self.owning_node = graph, owner
        self.nodes_: NodeList[Node] = NodeList()
        self.param = Node(graph, "prim::Param", outputs=0)
        self.ret = Node(graph, "prim::Return", outputs=0)
        self.param.owner = self.ret.owner = self

    def index(self, node: Node) -> int:
        return len(self.nodes_) if node is self.ret else self.nodes_.index(node)

    @property
    def inputs_(self) -> list[Value]:
        return self.param.outputs_

    @property
    def outputs_(self) -> list[Value]:
        return self.ret.inputs_

    def nodes(self) -> Iterator[Node]:
        return iter(list(self.nodes_))

    def inputs(self) -> Iterator[Value]:
        return iter(self.inputs_)

    def outputs(self) -> Iterator[Value]:
        return iter(self.outputs_)

    def paramNode(self) -> Node:  # noqa: N802
        return self.param

    def returnNode(self) -> Node:  # noqa: N802
        return self.ret

    def owningNode(self) -> Node | None:  # noqa: N802
        return self.owning_node

    def add_input(self, name: str = "", type: Type = TENSOR) -> Value:
        value = self.param.add_output(type)
        return value.set_name(name) if name else value

    def add_output(self, value: Value) -> int:
        self.ret.add_input(value)
        return len(self.outputs_) - 1

    def append(self, node: Node) -> Node:
        self.nodes_.append(node)
        node.owner = self
        return node

    def prepend(self, node: Node) -> Node:
        self.nodes_.prepend(node)
        node.owner = self
        return node

    def clear(self) -> None:
        self.ret.drop_inputs()
        for node in reversed(list(self.nodes_)):
            node.destroy()

    def destroy(self) -> None:
        self.clear()
        for value in self.inputs_:
            value.set_name("")

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:  # noqa: N802
        found = []
        for node in self.nodes_:
            if node.kind_ == kind:
                found.append(node)
            if recurse:
                for block in node.blocks_:
                    found += block.findAllNodes(kind)
        return found

    def findNode(self, kind: str, recurse: bool = True) -> Node | None:  # noqa: N802
        return next(iter(self.findAllNodes(kind, recurse)), None)


class Graph(Block):
    """A whole program: the outermost block."""

    def __init__(self) -> None:
        self._count = -1
        self.label = ""  # the function's name, for errors
        self.names: dict[str, Value] = {}
        self._suffixes: dict[str, int] = {}
        super().__init__(self, None)
        self.insert_block: Block = self
        self.insert_point: Node | None = None  # before this node; None: at the end
        self.scope = ""  # the name of what the nodes that are made belong to
        self.traced: tuple[Any, tuple] | None = None  # the module and the arguments that it is a trace of

    def next_unique(self) -> int:
        self._count += 1
        return self._count

    def free_name(self, name: str) -> str:
        """Return the name followed by a number, such that it is unused."""
        base, dot, digits = name.rpartition(".")
        suffix = 1
        if dot and digits.isdigit():
            suffix = int(digits)
        else:
            base = name
        suffix = max(suffix, self._suffixes.get(base, 0) + 1)
        while f"{base}.{suffix}" in self.names:
            suffix += 1
        self._suffixes[base] = suffix
        return f"{base}.{suffix}"

    def block(self) -> Block:
        return self

    def addInput(self, name: str = "") -> Value:  # noqa: N802
        return self.add_input(name)

    def registerOutput(self, value: Value) -> int:  # noqa: N802
        return self.add_output(value)

    @contextlib.contextmanager
    def at(self, place: Block | Node) -> Iterator[None]:
        """Context manager: insert nodes at the end of a block, or before a node."""
        before = (self.insert_block, self.insert_point)
        if isinstance(place, Block):
            self.insert_block, self.insert_point = place, None
        else:
            assert place.owner is not None
            self.insert_block, self.insert_point = place.owner, None if place is place.owner.ret else place
        try:
            yield
        finally:
            self.insert_block, self.insert_point = before

    def insert(self, node: Node) -> Node:
        if self.insert_point is None:
            return self.insert_block.append(node)
        return node.insert_before(self.insert_point)

    insertNode = insert  # noqa: N815

    def create(self, kind: str, inputs: Iterable[Value] = (), outputs: int = 1, place: Range | None = None) -> Node:
        node = Node(self, kind, inputs, outputs)
        node.range, node.scope = place, self.scope
        return node

    def op(
        self,
        kind: str,
        inputs: Iterable[Value] = (),
        type: Type = TENSOR,
        place: Range | None = None,
        **attributes: Any,
    ) -> Value:
        """Insert a node with one output of a type."""
        node = self.create(kind, inputs, 1, place)
        node.attributes.update(attributes)
        node.outputs_[0].type = type
        return self.insert(node).outputs_[0]

    def constant(self, value: Any, type: Type, place: Range | None = None) -> Value:
        node = self.create("prim::Constant", place=place)
        if value is not None:
            node.attributes["value"] = value
        node.outputs_[0].type = type
        return self.insert(node).outputs_[0]

    def list_of(self, element: Type, values: Sequence[Value], place: Range | None = None) -> Value:
        return self.op("prim::ListConstruct", values, ListType(element), place)

    def tuple_of(self, values: Sequence[Value], place: Range | None = None, type: Type | None = None) -> Value:
        return self.op("prim::TupleConstruct", values, type or TupleType([v.type for v in values]), place)

    def dict_of(self, type: DictType, pairs: Sequence[tuple[Value, Value]], place: Range | None = None) -> Value:
        return self.op("prim::DictConstruct", [v for pair in pairs for v in pair], type, place)

    def unpack(self, value: Value, place: Range | None = None) -> list[Value]:
        """Add a node that unpacks a tuple, and return its values."""
        assert isinstance(value.type, TupleType)
        if value.node.kind_ == "prim::TupleConstruct":
            return list(value.node.inputs_)
        node = self.create("prim::TupleUnpack", [value], len(value.type.elements), place)
        for out, t in zip(node.outputs_, value.type.elements):
            out.type = t
        return list(self.insert(node).outputs_)

    def __str__(self) -> str:
        return print_graph(self)

    __repr__ = __str__

    def str(self, print_source_ranges: bool = True) -> str:
        return print_graph(self, print_source_ranges)

    def copy(self) -> Graph:
        return copy_graph(self)

    def take_block(self, node: Node, known: dict[Value, Value] | None = None) -> dict[Value, Value]:
        """Copy the nodes of a block of another graph's node. Values from outside become inputs, constants are copied. Returns the new
        values by the old ones."""
        known = {} if known is None else known
        captured = node.captured()
        for value in captured:
            if value.node.kind_ != "prim::Constant":
                known[value] = self.add_input().copy_meta(value)
        for value in captured:
            if value.node.kind_ == "prim::Constant":
                self.append(copy_node(value.node, self, known))
        for inner in node.blocks_[0].nodes_:
            self.append(copy_node(inner, self, known))
        return known

    def param_node(self) -> Node:
        return self.param

    def return_node(self) -> Node:
        return self.ret

    def permuteInputs(self, order: Sequence[int]) -> None:  # noqa: N802
        self.param.outputs_ = [self.inputs_[i] for i in order]

    @contextlib.contextmanager
    def insert_point_guard(self, place: Block | Node) -> Iterator[None]:
        with self.at(place):
            yield

    def insertConstant(self, value: Any) -> Value:  # noqa: N802
        return self.constant(value, OF_PYTHON.get(type(value), TENSOR))

    def lint(self) -> None:
        check(self)
