"""Passes that run on every compiled graph: unpacking of tuples, constant folding and pooling, dead code elimination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import operators
from . import types as T
from .ir import Block, Graph, Node, Value
from .ir_values import constant_of
from .schema import schemas_of

_FOLDED = (T.INT, T.FLOAT, T.BOOL, T.STRING, T.COMPLEX, T.DEVICE)
_EFFECTS = frozenset(
    {
        "aten::save", "prim::Print", "prim::RaiseException", "prim::SetAttr", "aten::warn", "aten::manual_seed", "prim::CallFunction",
        "prim::CallMethod", "prim::PythonOp", "prim::Enter", "prim::Exit", "prim::Store", "prim::ReturnStmt", "prim::BreakStmt",
        "prim::ContinueStmt", "prim::LoopContinuation", "aten::set_grad_enabled", "aten::seed", "prim::TracedModuleForward",
    }
)  # fmt: skip


def run(graph: Graph) -> None:
    normalize(graph)
    lower_tuples(graph)
    fold_constants(graph)
    remove_dead(graph)
    pool_constants(graph)
    order_outputs(graph)


def normalize(block: Block) -> None:
    """Replace operators by an equivalent standard one: `is` between bools by `eq`, `rsub` by `sub`."""
    for node in block.nodes_:
        for inner in node.blocks_:
            normalize(inner)
        kinds = [v.type for v in node.inputs_]
        if node.kind_ in ("aten::__is__", "aten::__isnot__") and all(k is T.BOOL for k in kinds):
            node.kind_ = "aten::eq" if node.kind_ == "aten::__is__" else "aten::ne"
            node.schema_ = next(s for s in schemas_of(node.kind_) if s.overload_name == "bool")
        elif node.kind_ == "aten::rsub" and node.schema_ is not None and node.schema_.overload_name == "Tensor":
            first, second, *_ = node.inputs_
            node.kind_, node.schema_ = (
                "aten::sub",
                next(s for s in schemas_of("aten::sub") if s.overload_name == "Tensor"),
            )
            node.replace_input(0, second)
            node.replace_input(1, first)


# -- tuples -----------------------------------------------------------------------------------------------------------------


def lower_tuples(block: Block) -> None:
    """Replace reads of a tuple that is built in the same program by its elements."""
    for node in list(block.nodes_):
        for inner in node.blocks_:
            lower_tuples(inner)
        if node.kind_ == "prim::TupleUnpack" and node.inputs_[0].node.kind_ == "prim::TupleConstruct":
            for out, value in zip(node.outputs_, node.inputs_[0].node.inputs_):
                out.replace_by(value)
        elif node.kind_ == "prim::TupleIndex" and node.inputs_[0].node.kind_ == "prim::TupleConstruct":
            known, index = constant_of(node.inputs_[1])
            values = node.inputs_[0].node.inputs_
            if known and -len(values) <= index < len(values):
                node.outputs_[0].replace_by(values[index])


# -- dead code --------------------------------------------------------------------------------------------------------------


def has_effects(node: Node) -> bool:
    if node.kind_ in _EFFECTS:
        return True
    if node.schema_ is not None and node.schema_.is_mutable:
        return not _writes_what_nobody_reads(node)
    return any(has_effects(n) for block in node.blocks_ for n in block.nodes_)


def _writes_what_nobody_reads(node: Node) -> bool:
    """Return whether a node writes to a tensor that is created in this graph and has no users except such writes."""
    schema = node.schema_
    if not schema.arguments or not schema.arguments[0].is_write or any(a.is_write for a in schema.arguments[1:]):
        return False
    target = node.inputs_[0]
    while target.node.schema_ is not None and target.node.schema_.is_mutable and target.node.inputs_:
        target = target.node.inputs_[0]  # what an operator in place returns is what it changed
    maker = target.node.schema_
    fresh = maker is not None and not maker.shares and target.node.kind_.startswith("aten::")
    fresh = fresh and not any(_holds_tensors(value.type) for value in target.node.inputs_)
    return fresh and isinstance(target.type, T.TensorType) and _is_write_only(target)


def _holds_tensors(kind: T.Type) -> bool:
    """Return whether a value of this type may alias a tensor, as a list does."""
    return (
        kind is T.ANY
        or isinstance(kind, T.ClassType)
        or any(isinstance(t, T.TensorType) or _holds_tensors(t) for t in kind.contained())
    )


def _is_write_only(value: Value) -> bool:
    for user, index in value.uses:
        schema = user.schema_
        if index != 0 or schema is None or not schema.is_mutable or not schema.arguments[0].is_write:
            return False
        if not all(map(_is_write_only, user.outputs_)):
            return False
    return True


def remove_dead(block: Block) -> bool:
    """Remove nodes that are not needed; return whether there were any."""
    changed = False
    for node in reversed(list(block.nodes_)):
        for inner in node.blocks_:
            changed = remove_dead(inner) or changed
        if node.kind_ == "prim::If":
            changed = _trim_if(node) or changed
        elif node.kind_ == "prim::Loop":
            changed = _trim_loop(node) or changed
        if not any(v.uses for v in node.outputs_) and not has_effects(node):
            node.destroy()
            changed = True
    if changed and block.owning_node is None:
        while remove_dead(block):
            pass
    return changed


def _trim_if(node: Node) -> bool:
    changed = False
    for index in reversed(range(len(node.outputs_))):
        if not node.outputs_[index].uses:
            node.erase_output(index)
            for inner in node.blocks_:
                inner.ret.remove_input(index)
            changed = True
    return changed


def _trim_loop(node: Node) -> bool:
    """Remove values carried by a loop that are used for nothing but their own next iteration; return whether any was removed."""
    changed, body = False, node.blocks_[0]
    for index in reversed(range(len(node.outputs_))):
        inside, given = body.inputs_[index + 1], body.outputs_[index + 1]
        used = [u for u in inside.uses if u != (body.ret, index + 1)]
        if node.outputs_[index].uses or used:
            continue
        if inside is not given and any(u == (body.ret, index + 1) for u in inside.uses):
            continue
        node.erase_output(index)
        node.remove_input(index + 2)
        body.ret.remove_input(index + 1)
        if not inside.uses:
            body.param.erase_output(index + 1)
        changed = True
    return changed


# -- constants --------------------------------------------------------------------------------------------------------------


def fold_constants(block: Block) -> None:
    """Evaluate operators on constant numbers and strings, and take the branches of ifs with a constant condition."""
    graph = block.graph
    for node in list(block.nodes_):
        if node.owner is None:
            continue
        if node.kind_ == "prim::If":
            known, truth = constant_of(node.inputs_[0])
            if known:
                _take_branch(node, node.blocks_[0 if truth else 1])
                continue
        for inner in node.blocks_:
            fold_constants(inner)
        if node.kind_ == "prim::Loop":
            _skip_loop(node)
            continue
        if node.kind_ == "prim::If":
            _same_outputs(node)
            continue
        value = _fold_node(node)
        if value is not None:
            with graph.at(node):
                made = graph.constant(value[0], node.outputs_[0].type, node.range)
            node.outputs_[0].replace_by(made)
            node.destroy()


def _fold_node(node: Node) -> tuple[Any] | None:
    if len(node.outputs_) != 1 or node.blocks_ or not node.inputs_ or node.kind_ in _EFFECTS:
        return None
    kind = node.outputs_[0].type
    if kind not in _FOLDED or not node.kind_.startswith(("aten::", "prim::")) or node.schema_ is None:
        return None
    values = []
    for value in node.inputs_:
        known, constant = constant_of(value)
        if not known or not isinstance(constant, (int, float, bool, str, complex, type(None), tuple, list)):
            return None
        values.append(constant)
    run: Callable | None = operators.find(node.schema_.key)
    if run is None:
        return None
    try:
        result = run(*values)
    except Exception:  # what fails will fail again, and be reported, when the program runs
        return None
    return (result,) if isinstance(result, (int, float, bool, str, complex)) or kind is T.DEVICE else None


def _take_branch(node: Node, inner: Block) -> None:
    fold_constants(inner)
    for moved in list(inner.nodes_):
        moved.move_before(node)
    for out, value in zip(node.outputs_, inner.outputs_):
        out.replace_by(value)
    for each in node.blocks_:
        each.ret.drop_inputs()
    node.destroy()


def _same_outputs(node: Node) -> None:
    """Replace an output that is the same value in both branches by that value."""
    for index in reversed(range(len(node.outputs_))):
        a, b = (inner.outputs_[index] for inner in node.blocks_)
        known_a, x = constant_of(a)
        known_b, y = constant_of(b)
        both_constant = (
            known_a and known_b and a.type is b.type and type(x) is type(y) and a.type in (*_FOLDED, T.NONE) and x == y
        )
        if a is b or both_constant:
            if a is not b:
                with node.graph.at(node):
                    a = node.graph.constant(x, a.type, a.node.range)
            node.outputs_[index].replace_by(a)
            node.erase_output(index)
            for inner in node.blocks_:
                inner.ret.remove_input(index)


def _skip_loop(node: Node) -> None:
    known, count = constant_of(node.inputs_[0])
    known_start, start = constant_of(node.inputs_[1])
    if (known and count <= 0) or (known_start and not start):
        for out, value in zip(node.outputs_, node.inputs_[2:]):
            out.replace_by(value)
        node.destroy()


def pool_constants(graph: Graph) -> None:
    """Replace equal constants by one node, at the beginning of the graph."""
    known: dict[Any, Node] = {}
    kept: list[Node] = []

    def visit(block: Block) -> None:
        for node in list(block.nodes_):
            for inner in node.blocks_:
                visit(inner)
            if node.kind_ != "prim::Constant":
                continue
            key = _constant_key(node)
            before = known.get(key) if key is not None else None
            if before is not None:
                node.outputs_[0].replace_by(before.outputs_[0])
                node.destroy()
                continue
            if key is not None:
                known[key] = node
            kept.append(node)

    visit(graph)
    for node in reversed(kept):
        first = graph.nodes_.first
        if first is not None and first is not node:
            node.move_before(first)


def _constant_key(node: Node) -> Any:
    kind = node.outputs_[0].type
    if "function" in node.attributes:
        return ("function", id(node.attributes["function"]))
    value = node.attributes.get("value")
    if kind in _FOLDED or kind is T.NONE:
        return (str(kind), repr(value))
    if isinstance(kind, T.ListType) and kind.element in _FOLDED and isinstance(value, list):
        return (str(kind), repr(value))
    return None


def order_outputs(block: Block) -> None:
    """Sort the outputs of ifs and loops by the order of their uses."""
    places: dict[Node, int] = {}

    def number(b: Block) -> None:
        for node in b.nodes_:
            places[node] = len(places)
            for inner in node.blocks_:
                number(inner)
        places[b.ret] = len(places)

    number(block)

    def first_use(value: Value) -> tuple[int, int]:
        return min(((places.get(n, 0), i) for n, i in value.uses), default=(len(places), 0))

    def visit(b: Block) -> None:
        for node in b.nodes_:
            if node.kind_ == "prim::If" and len(node.outputs_) > 1:
                _permute_if(node, sorted(range(len(node.outputs_)), key=lambda i: first_use(node.outputs_[i])))
            elif node.kind_ == "prim::Loop" and len(node.outputs_) > 1:
                order = sorted(range(len(node.outputs_)), key=lambda i: first_use(node.outputs_[i]))
                _permute_loop(node, order)
            for inner in node.blocks_:
                visit(inner)

    visit(block)


def _permute_if(node: Node, order: list[int]) -> None:
    if order == sorted(order):
        return
    node.outputs_ = [node.outputs_[i] for i in order]
    for inner in node.blocks_:
        values = [inner.outputs_[i] for i in order]
        inner.ret.drop_inputs()
        for value in values:
            inner.add_output(value)


def _permute_loop(node: Node, order: list[int]) -> None:
    if order == sorted(order):
        return
    node.outputs_ = [node.outputs_[i] for i in order]
    body = node.blocks_[0]
    inputs = [node.inputs_[i + 2] for i in order]
    node.drop_inputs(2)
    for value in inputs:
        node.add_input(value)
    body.param.outputs_ = [body.inputs_[0], *(body.inputs_[i + 1] for i in order)]
    outputs = [body.outputs_[0], *(body.outputs_[i + 1] for i in order)]
    body.ret.drop_inputs()
    for value in outputs:
        body.add_output(value)
