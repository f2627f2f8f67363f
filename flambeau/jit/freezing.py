"""Freezing of modules: calls are inlined, attributes become constants, and constant expressions are folded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from . import cleanup, folding
from .functions import Function
from .inlining import inlined
from .ir import Graph, Value
from .matching import insert_constant
from .module import RecursiveScriptModule, ScriptModule
from .naming import mangled
from .schema import Argument, Schema
from .types import BOOL, ClassType, InterfaceType


def freeze(
    mod: Any, preserved_attrs: Sequence[str] | None = None, optimize_numerics: bool = True
) -> RecursiveScriptModule:
    """Return a copy of a compiled module (in eval mode) with its parameters and attributes as constants of the graph, except those in
    `preserved_attrs` ("scale", "layer.bias", names of methods) and those that the program changes. With `optimize_numerics`, batch norms
    and constant factors and summands are folded into the layers before them."""
    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'."
        )
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before freezing."
        )
    return _Freezer(mod, list(preserved_attrs or ())).run(optimize_numerics)


class _Freezer:
    """Builds one frozen module. It contains only those submodules of the original that still hold attributes."""

    def __init__(self, mod: Any, preserved: list[str]):
        self.mod, self.preserved = mod, preserved
        self.held: dict[int, Any] = {}  # the frozen form of the original's modules
        self.made = self._empty(mod)
        self.changed: set[tuple[int, str]] = set()  # attributes that the program changes, by module

    def run(self, optimize_numerics: bool) -> RecursiveScriptModule:
        methods = {}
        for name in dict.fromkeys(["forward", *self.preserved]):
            owner = self._owner(name)
            method = owner.script_type.find_method(name.rpartition(".")[2])
            if method is not None:
                methods[name] = (owner, method, self._inline_calls(method.graph, owner))
            elif name != "forward":
                self._copy_attribute(name)
        for owner, _, graph in methods.values():
            self._note_changes(graph, owner)
        for name, (owner, method, graph) in methods.items():
            self._freeze(graph, owner, name.rpartition(".")[0])
            if optimize_numerics:
                _optimize(graph)
            kind = self._frozen_module(name.rpartition(".")[0]).script_type
            schema = Schema(
                method.base_name, "", [Argument("self", kind), *method.schema.arguments[1:]], method.schema.returns
            )
            graph.inputs_[0].type = kind
            kind.methods[method.base_name] = Function(f"{kind.name}.{method.base_name}", None, kind).define(
                graph, schema
            )
        return self.made

    def _empty(self, module: Any) -> RecursiveScriptModule:
        kind = ClassType(mangled(module.script_type.name), is_module=True)
        kind.attributes["training"] = BOOL
        made = self.held[id(module)] = RecursiveScriptModule._make(kind)
        made.__dict__["training"] = False
        return made

    def _owner(self, name: str) -> Any:
        owner = self.mod
        for part in name.split(".")[:-1]:
            if part not in owner._modules:
                raise RuntimeError(f"Module does not have method or attribute '{name}'")
            owner = owner._modules[part]
        return owner

    def _frozen_module(self, path: str) -> RecursiveScriptModule:
        """Return the frozen form of the module at a path; create it and its parents if needed."""
        if not path:
            return self.made
        parent, _, name = path.rpartition(".")
        above, original = self._frozen_module(parent), self._owner(f"{path}.?")
        if name not in above._modules:
            child = self.held.get(id(original)) or self._empty(original)
            above._modules[name], above.script_type.attributes[name] = child, child.script_type
        return above._modules[name]  # type: ignore[return-value]

    def _copy_attribute(self, name: str) -> None:
        """Copy an attribute ("scale", "layer.bias") into the frozen module, so that it stays an attribute."""
        path, _, short = name.rpartition(".")
        owner, made = self._owner(name), self._frozen_module(path)
        if short not in owner.script_type.attributes:
            raise RuntimeError(f"Module does not have method or attribute '{name}'")
        if short in made.script_type.attributes and short != "training":
            return
        made.script_type.attributes[short] = owner.script_type.attributes[short]
        for table in ("parameters", "buffers"):
            if short in getattr(owner.script_type, table):
                getattr(made.script_type, table).add(short)
        for table in ("_parameters", "_buffers", "_modules"):
            if short in getattr(owner, table):
                getattr(made, table)[short] = getattr(owner, table)[short]
                return
        made.__dict__[short] = owner._slot(short)

    def _inline_calls(self, graph: Graph, owner: Any) -> Graph:
        """Inline all calls, those of interfaces by the actual submodules, and set `training` to False, removing the code behind it."""
        graph = inlined(graph)
        while True:
            typed = False
            for node, (held_by, _) in self._attributes(graph, owner).items():
                held = held_by._slot(node.attributes["name"])
                if isinstance(held, ScriptModule) and node.outputs_[0].type is not held.script_type:
                    node.outputs_[0].type, typed = held.script_type, True
            if not typed:
                break
            graph = inlined(graph)
        for node in graph.findAllNodes("prim::GetAttr"):
            if node.attributes["name"] == "training":
                _to_constant(graph, node, False)
        cleanup.fold_constants(graph)
        cleanup.remove_dead(graph)
        return graph

    def _attributes(self, graph: Graph, root: Any, path: str = "") -> dict[Any, tuple[Any, str]]:
        """Return the nodes that read attributes of modules, each with the module and its path."""
        objects: dict[Value, tuple[Any, str]] = {graph.inputs_[0]: (root, path)}
        found: dict[Any, tuple[Any, str]] = {}
        for node in graph.findAllNodes("prim::GetAttr"):
            if node.inputs_[0] in objects:
                found[node] = owner, where = objects[node.inputs_[0]]
                held = owner._slot(node.attributes["name"])
                if isinstance(held, ScriptModule):
                    objects[node.outputs_[0]] = (held, f"{where}.{node.attributes['name']}".lstrip("."))
        return found

    def _note_changes(self, graph: Graph, root: Any) -> None:
        """Add to `changed` the attributes that a program sets, or whose tensors or objects it modifies."""
        reads = self._attributes(graph, root)
        owners = {node.outputs_[0]: node for node in reads}
        for node in graph.findAllNodes("prim::SetAttr"):
            source, name = node.inputs_[0], node.attributes["name"]
            owner = root if source is graph.inputs_[0] else None
            if source in owners:
                holder, _ = reads[owners[source]]
                owner = holder._slot(owners[source].attributes["name"])
            if isinstance(owner, ScriptModule):
                if isinstance(owner.script_type.attributes.get(name), InterfaceType):
                    raise RuntimeError(f"Freezing does not support SetAttr on an interface type. SetAttr is attempted on '{name}'")  # fmt: skip
                self.changed.add((id(owner), name))
            elif source in owners:
                self.changed.add((id(reads[owners[source]][0]), owners[source].attributes["name"]))
        for node, (owner, _) in reads.items():
            for user, index in node.outputs_[0].uses:
                schema = user.schema_
                if schema is not None and index < len(schema.arguments) and schema.arguments[index].is_write:
                    self.changed.add((id(owner), node.attributes["name"]))

    def _freeze(self, graph: Graph, root: Any, path: str) -> None:
        """Replace attributes of the module by constants, in place."""
        reads = self._attributes(graph, root, path)
        modules = []
        for node, (owner, where) in reads.items():
            name = node.attributes["name"]
            full = f"{where}.{name}".lstrip(".")
            held = owner._slot(name)
            if isinstance(held, ScriptModule):
                modules.append((node, full, held))
            elif (id(owner), name) in self.changed or full in self.preserved:
                self._copy_attribute(full)
            else:
                _to_constant(graph, node, held, f"self.{full}")
        for node in graph.findAllNodes("prim::SetAttr"):
            source = node.inputs_[0]
            homes = [path] if source is graph.inputs_[0] else [p for n, p, _ in modules if n.outputs_[0] is source]
            for home in homes:
                self._copy_attribute(f"{home}.{node.attributes['name']}".lstrip("."))
        for node, full, held in modules:
            if id(held) in self.held:
                node.outputs_[0].type = self._frozen_module(full).script_type
        cleanup.fold_constants(graph)
        cleanup.remove_dead(graph)
        cleanup.pool_constants(graph)
        cleanup.order_outputs(graph)


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
    """Optimize a frozen module as `freeze` does after freezing."""
    for name in ["forward", *(preserved_methods or ())]:
        method = mod.script_type.find_method(name)
        if method is not None and optimize_numerics:
            _optimize(method.graph)
            method.define(method.graph, method.schema)


def optimize_for_inference(mod: Any, other_methods: Sequence[str] | None = None) -> Any:
    """Return the module, frozen if it is not, with batch norms and constant factors folded into the layers before them. Memory layouts,
    which PyTorch chooses here, are chosen by the operators when they run."""
    if not isinstance(mod, ScriptModule):
        raise RuntimeError(
            "optimize_for_inference expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'."
        )
    others = list(other_methods or ())
    if "training" in mod.script_type.attributes and (mod.script_type.parameters or list(mod.parameters())):
        return freeze(mod.eval(), others)
    run_frozen_optimizations(mod, preserved_methods=others)
    return mod
