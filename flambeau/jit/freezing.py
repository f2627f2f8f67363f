"""Frozen modules: calls inlined, attributes turned into constants, what follows from them computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from . import cleanup, folding
from .functions import Function
from .inlining import inlined
from .ir import Block, Graph, Value
from .matching import insert_constant
from .module import RecursiveScriptModule, ScriptModule
from .naming import mangled
from .schema import Argument, Schema
from .types import BOOL, ClassType


def freeze(
    mod: Any, preserved_attrs: Sequence[str] | None = None, optimize_numerics: bool = True
) -> RecursiveScriptModule:
    """A copy of a compiled module (in eval mode) with its parameters and attributes as constants of the graph. With
    `optimize_numerics`, batch norms and constant factors and summands go into the layers before them."""
    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'."
        )
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before freezing."
        )
    preserved = list(preserved_attrs or ())
    kind = ClassType(mangled(mod.script_type.name), is_module=True)
    kind.attributes["training"] = BOOL
    made = RecursiveScriptModule._make(kind)
    made.__dict__["training"] = False
    methods = {name: mod.script_type.find_method(name) for name in ["forward", *preserved]}
    graphs = {name: inlined(m.graph) for name, m in methods.items() if m is not None}
    for graph in graphs.values():  # what only training does goes first
        _freeze_training(graph)
    changed = {name for graph in graphs.values() for name in _written(graph)}
    for name in preserved:
        if methods[name] is None:
            _keep(mod, made, kind, name)
    for name, graph in graphs.items():
        _freeze_graph(graph, mod, made, kind, changed, preserved)
        if optimize_numerics:
            _optimize(graph)
        old = methods[name]
        assert old is not None
        arguments = [Argument("self", kind), *old.schema.arguments[1:]]
        schema = Schema(name, "", arguments, old.schema.returns)
        graph.inputs_[0].type = kind
        kind.methods[name] = Function(f"{kind.name}.{name}", None, kind).define(graph, schema)
    return made


def _freeze_training(graph: Graph) -> None:
    for node in graph.findAllNodes("prim::GetAttr"):
        if node.attributes["name"] == "training":
            _to_constant(graph, node, False)
    cleanup.fold_constants(graph)
    cleanup.remove_dead(graph)


def _keep(mod: Any, made: Any, kind: ClassType, name: str) -> None:
    """Hold on to an attribute of the module."""
    if name not in mod.script_type.attributes:
        raise RuntimeError(f"Module does not have method or attribute '{name}'")
    kind.attributes[name] = mod.script_type.attributes[name]
    for table in ("parameters", "buffers"):
        if name in getattr(mod.script_type, table):
            getattr(kind, table).add(name)
    for table in ("_parameters", "_buffers", "_modules"):
        if name in getattr(mod, table):
            getattr(made, table)[name] = getattr(mod, table)[name]
            return
    made.__dict__[name] = mod._slot(name)


def _written(graph: Graph) -> list[str]:
    """Names of attributes that the program sets, or whose tensors it changes."""
    names = [n.attributes["name"] for n in graph.findAllNodes("prim::SetAttr")]
    for node in graph.findAllNodes("prim::GetAttr"):
        for user, index in node.outputs_[0].uses:
            schema = user.schema_
            if schema is not None and index < len(schema.arguments) and schema.arguments[index].written:
                names.append(node.attributes["name"])
    return names


def _freeze_graph(graph: Graph, mod: Any, made: Any, kind: ClassType, changed: set[str], preserved: list[str]) -> None:
    objects: dict[Value, tuple[str, Any]] = {graph.inputs_[0]: ("self", mod)}

    def visit(block: Block) -> None:
        for node in list(block.nodes_):
            if node.kind_ == "prim::GetAttr" and node.inputs_[0] in objects:
                (path, owner), name = objects[node.inputs_[0]], node.attributes["name"]
                held = owner._slot(name)
                if isinstance(held, ScriptModule):
                    objects[node.outputs_[0]] = (f"{path}.{name}", held)
                    if _holds_changed(held, changed):
                        _keep(owner, made, kind, name) if owner is mod else None
                    continue
                if name in changed or (owner is mod and name in preserved):
                    if owner is mod and name not in kind.attributes:
                        _keep(mod, made, kind, name)
                    continue
                _to_constant(graph, node, held, f"{path}.{name}")
            for inner in node.blocks_:
                visit(inner)

    visit(graph)
    cleanup.fold_constants(graph)
    cleanup.remove_dead(graph)
    cleanup.pool_constants(graph)
    cleanup.order_outputs(graph)


def _holds_changed(module: Any, changed: set[str]) -> bool:
    return any(name in changed for inner in module.modules() for name in inner.script_type.attributes)


def _to_constant(graph: Graph, node: Any, held: Any, name: str = "") -> None:
    out = node.outputs_[0]
    with graph.at(node):
        if isinstance(held, Tensor):
            value = graph.constant(held.detach(), out.type)
            if name and name not in graph.names:
                value.set_name(name)
        elif isinstance(held, list) and held and isinstance(held[0], Tensor):
            value = graph.list_of(out.type.element, [graph.constant(t.detach(), out.type.element) for t in held])
        else:
            value = insert_constant(graph, held, out.type)
    out.replace_by(value)
    node.destroy()


def _optimize(graph: Graph) -> None:
    folding.fold(graph)
    cleanup.remove_dead(graph)
    cleanup.pool_constants(graph)


def run_frozen_optimizations(
    mod: Any, optimize_numerics: bool = True, preserved_methods: Sequence[str] | None = None
) -> None:
    """What `freeze` does behind freezing, for a module that was frozen without it."""
    for name in ["forward", *(preserved_methods or ())]:
        method = mod.script_type.find_method(name)
        if method is not None and optimize_numerics:
            _optimize(method.graph)
            method.define(method.graph, method.schema)


def optimize_for_inference(mod: Any, other_methods: Sequence[str] | None = None) -> Any:
    """The module, frozen if it is not, with batch norms and constant factors in the layers before them. The layouts that
    PyTorch chooses here are chosen by the operators themselves when they run."""
    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "optimize_for_inference expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'."
        )
    others = list(other_methods or ())
    if "training" in mod.script_type.attributes and (mod.script_type.parameters or list(mod.parameters())):
        return freeze(mod.eval(), others)
    run_frozen_optimizations(mod, preserved_methods=others)
    return mod
