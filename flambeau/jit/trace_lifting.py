"""From recorded calls of submodules to methods of the traced submodules."""

from __future__ import annotations

from . import cleanup
from .functions import Function
from .ir import Block, Graph, Node, Value
from .schema import Argument, Schema
from .trace_reader import FORWARD
from .type_joins import unshaped
from .types import NONE, ClassType


def lift(graph: Graph) -> None:
    """Turn the recorded calls of submodules into methods of their types and calls of these."""
    _lift_block(graph)


def _lift_block(block: Block) -> None:
    for node in list(block.nodes_):
        for inner in node.blocks_:
            _lift_block(inner)
        if node.kind_ == FORWARD:
            _lift_node(node)


def _lift_node(node: Node) -> None:
    block, graph = node.blocks_[0], node.graph
    captured = [v for v in node.captured() if v.node.kind_ != "prim::Constant"]
    handed = [v for v in _in_order(block) if any(not _is_within(user, block) for user, _ in v.uses)]
    method = Graph()
    kind = node.inputs_[0].type
    assert isinstance(kind, ClassType)
    known = method.take_block(node, {block.inputs_[0]: method.add_input("self", kind)})
    outs = [known[v] for v in handed]
    with method.at(method):
        result = outs[0] if len(outs) == 1 else method.tuple_of(outs) if outs else method.constant(None, NONE)
    method.add_output(result)
    tidy(method)
    name = _method_name(kind)
    arguments = [
        Argument("self", kind),
        *(Argument(_argument_name(v, i), unshaped(v.type)) for i, v in enumerate(method.inputs_[1:])),
    ]
    schema = Schema(name, "", arguments, [unshaped(result.type)])
    kind.methods[name] = Function(f"{kind.name}.{name}", None, kind).define(method, schema)
    call = graph.create("prim::CallMethod", [node.inputs_[0], *captured], 1, None)
    call.attributes["name"] = name
    call.outputs_[0].type = unshaped(result.type)
    call.insert_before(node)
    with graph.at(node):
        parts = [call.outputs_[0]] if len(handed) == 1 else graph.unpack(call.outputs_[0]) if handed else []
    for value, part in zip(handed, parts):
        for user, index in list(value.uses):
            if not _is_within(user, block):
                user.replace_input(index, part)
    node.destroy()


def _in_order(block: Block) -> list[Value]:
    return [v for n in block.nodes_ for v in n.outputs_]


def _is_within(node: Node, block: Block) -> bool:
    place = node.owner
    while place is not None:
        if place is block:
            return True
        place = place.owning_node.owner if place.owning_node is not None else None
    return False


def _method_name(kind: ClassType) -> str:
    number, name = 0, "forward"
    while name in kind.methods:
        number += 1
        name = f"forward{number}"
    return name


def _argument_name(value: Value, index: int) -> str:
    base = value.name.partition(".")[0]
    return base if value.has_name() and base.isidentifier() else f"argument_{index + 1}"


def tidy(graph: Graph) -> None:
    cleanup.lower_tuples(graph)
    cleanup.remove_dead(graph)
    cleanup.pool_constants(graph)
