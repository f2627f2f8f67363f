"""Constant folding: nodes that do not depend on the inputs are computed once."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import flambeau

from ... import nn
from ...core.tensor import Tensor
from .._symbolic_trace import symbolic_trace
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, map_arg
from ..passes.split_module import split_module

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]


class FoldedGraphModule(GraphModule):
    """A module that computes its constant part on its first call (or by `run_folding`)."""

    def __init__(
        self,
        root: nn.Module,
        graph: Graph,
        const_subgraph: Graph | None = None,
        fx_const_folded_attrs_name: str | None = None,
        device_for_folded_attrs: str = "cuda",
    ) -> None:
        super().__init__(root, graph)
        self.const_subgraph_module = None if const_subgraph is None else GraphModule(root, const_subgraph)
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args)

    def _parameter(self, value: Any) -> nn.Parameter:
        if isinstance(value, Tensor):
            return nn.Parameter(value.detach().clone(), requires_grad=value.requires_grad)
        return nn.Parameter(flambeau.tensor([float(value)], device=self.device_for_folded_attrs), requires_grad=False)

    def run_folding(self) -> None:
        """Compute the constants and store them as parameters."""
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None:
            return
        if self.has_folding_been_run:
            raise AssertionError("Folding has already been run")
        self.has_folding_been_run = True
        values = self.const_subgraph_module()
        folded: Any
        if isinstance(values, tuple):
            folded = nn.ParameterList([self._parameter(v) for v in values])
        else:
            folded = self._parameter(values)
        setattr(self, self.fx_const_folded_attrs_name, folded)


def get_unique_attr_name_in_module(mod_traced: GraphModule, name: str) -> str:
    """Return a name derived from `name` that the module does not have."""
    name = re.sub("[^0-9a-zA-Z_]+", "_", name)
    name = f"_{name}" if name[0].isdigit() else name
    while hasattr(mod_traced, name):
        numbered = re.fullmatch(r"(.*)_(\d+)", name)
        name = f"{numbered[1]}_{int(numbered[2]) + 1}" if numbered else f"{name}_1"
    return name


def _inline_module(gm: GraphModule, inline_mod_name: str, run_dce: bool = True) -> dict[Node, Node]:
    """Inline a submodule in place of its call; return a map from old nodes to new ones."""
    inlined = gm.get_submodule(inline_mod_name)
    if not isinstance(inlined, GraphModule):
        raise AssertionError(f"Expected GraphModule, got {type(inlined)}")
    call = next((n for n in gm.graph.nodes if n.op == "call_module" and n.target == inline_mod_name), None)
    if call is None:
        raise AssertionError(f"Could not find call_module node for {inline_mod_name}")
    values: dict[Node, Any] = {}
    positional = iter(call.args)

    def value(node: Node) -> Any:
        values[node].meta = dict(node.meta)
        return values[node]

    for node in inlined.graph.nodes:
        if node.op == "placeholder":
            values[node] = call.kwargs[node.name] if node.name in call.kwargs else next(positional)
        elif node.op == "output":
            _replace_call(gm, call, map_arg(node.args[0], value), values)
        else:
            with gm.graph.inserting_before(call):
                values[node] = gm.graph.node_copy(node, value)
    gm.graph.erase_node(call)
    if run_dce:
        gm.graph.eliminate_dead_code()
    return values


def _replace_call(gm: GraphModule, call: Node, result: Any, values: dict[Node, Any]) -> None:
    items = []
    if isinstance(result, (list, tuple)):
        items = [u for u in call.users if u.target is operator.getitem and isinstance(u.args[1], int)]
    for item in items:
        item.replace_all_uses_with(result[item.args[1]])
        values[item] = result[item.args[1]]
        gm.graph.erase_node(item)
    for user in list(call.users):
        user.args = map_arg(user.args, lambda n: result if n is call else n)
        user.kwargs = map_arg(user.kwargs, lambda n: result if n is call else n)


def _has_effects(module: GraphModule) -> bool:
    """Return whether running the module has effects besides its result."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.is_impure():
            return True
        if node.op == "call_module":
            inner = module.get_submodule(node.target)
            if isinstance(inner, GraphModule) and _has_effects(inner):
                return True
    return False


def _constant_nodes(module: GraphModule, skip: Callable[[Node], bool] | None) -> set[Node]:
    found: set[Node] = set()
    for node in module.graph.nodes:
        if node.op in ("placeholder", "output") or (node.op != "get_attr" and not set(node.all_input_nodes) <= found):
            continue
        if (skip and skip(node)) or node.is_impure():
            continue
        if node.op == "call_module":
            inner = module.get_submodule(node.target)
            if isinstance(inner, GraphModule) and _has_effects(inner):
                continue
        found.add(node)
    return found


def split_const_subgraphs(
    module: nn.Module, skip_folding_node_fn: Callable[[Node], bool] | None = None, device_for_folded_attrs: str = "cpu"
) -> FoldedGraphModule:
    """Split off the part of a module that does not depend on its inputs, to be computed once. Nodes for which `skip_folding_node_fn` holds
    stay."""
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constant = _constant_nodes(traced, skip_folding_node_fn)
    if all(node.op == "get_attr" for node in constant):
        return FoldedGraphModule(traced, traced.graph)
    split = split_module(traced, module, lambda node: 0 if node in constant else 1)
    constants = split.submod_0
    for part in ("submod_0", "submod_1"):
        for name, child in getattr(split, part, nn.Module()).named_children():
            setattr(split, name, child)
    folded_name = get_unique_attr_name_in_module(traced, "_FX_CONST_FOLDED_ATTRS")
    call = next(n for n in split.graph.nodes if n.op == "call_module" and n.target == "submod_0")
    graph = _replace_inputs(GraphModule(split, constants.graph), call.args)
    several = isinstance(graph.output_node().args[0], tuple)
    setattr(split, folded_name, nn.ParameterList() if several else nn.Parameter(Tensor()))
    with split.graph.inserting_before(call):
        folded = split.graph.get_attr(folded_name)
    folded.meta = dict(call.meta)
    call.replace_all_uses_with(folded)
    if hasattr(split, "submod_1"):
        _inline_module(split, "submod_1")
    split.graph.eliminate_dead_code()
    return FoldedGraphModule(split, split.graph, graph, folded_name, device_for_folded_attrs)


def _replace_inputs(module: GraphModule, given: tuple) -> Graph:
    """Replace the inputs of a graph by nodes that read the attributes passed for them."""
    inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
    for node, attribute in zip(inputs, given):
        if attribute.op != "get_attr":
            raise AssertionError(f"Expected get_attr, got {attribute.op}")
        with module.graph.inserting_before(node):
            fetched = module.graph.get_attr(attribute.target)
        fetched.meta = dict(node.meta)
        node.replace_all_uses_with(fetched)
        module.graph.erase_node(node)
    return module.graph
