"""Splitting a graph into submodules by a function of its nodes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...nn import Module
from ..graph import Graph
from ..graph_module import GraphModule, _get_attr
from ..node import Node, map_arg
from ..proxy import Proxy

__all__ = ["Partition", "split_module"]

_OUTSIDE_KINDS = ("placeholder", "get_attr", "output")


class Partition:
    """The nodes that become one submodule."""

    def __init__(self, name: str) -> None:
        self.name, self.submod_name = name, f"submod_{name}"
        self.node_names: list[str] = []
        self.inputs: dict[str, None] = {}
        self.outputs: dict[str, None] = {}
        self.dependencies: dict[str, None] = {}
        self.dependents: dict[str, None] = {}
        self.graph = Graph()
        self.environment: dict[Node, Node] = {}
        self.targets: dict[str, Any] = {}

    def __repr__(self) -> str:
        return (
            f"name: {self.name},\n"
            f" nodes: {self.node_names},\n"
            f" inputs: {self.inputs},\n"
            f" outputs: {self.outputs},\n"
            f" partitions depended on: {self.dependencies},\n"
            f" partition dependents: {self.dependents}"
        )


class _Split:
    """The state of one split: partitions and the nodes in them."""

    def __init__(self, module: GraphModule, options: dict[str, Any]) -> None:
        self.module, self.options = module, options
        self.partitions: dict[str, Partition] = {}
        self.home: dict[Node, Partition] = {}
        self.originals = {node.name: node for node in module.graph.nodes}
        self.main = Graph()
        self.values: dict[str, Node] = {}  # of the main graph, by the names of the original nodes
        self.attributes: dict[str, Any] = {}

    def assign(self, callback: Callable[[Node], Any], affix: str | None) -> None:
        """Assign every node to the partition that the callback returns."""
        for node in self.module.graph.nodes:
            if node.op in _OUTSIDE_KINDS:
                continue
            name = str(callback(node)) if affix is None else f"{affix}_{callback(node)}"
            partition = self.partitions.setdefault(name, Partition(name))
            partition.node_names.append(node.name)
            self.home[node] = partition
            node._fx_partition = name

    def find_crossings(self) -> None:
        """Record which values leave a partition and enter another."""
        for node in self.module.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                continue
            for read in node.all_input_nodes:
                self._record_crossing(self.home.get(read), self.home.get(node), read.name)

    def _record_crossing(self, source: Partition | None, user: Partition | None, name: str) -> None:
        if source is user:
            return
        if source is not None:
            source.outputs.setdefault(name)
            if user is not None:
                source.dependents.setdefault(user.name)
                user.dependencies.setdefault(source.name)
        if user is not None:
            user.inputs.setdefault(name)

    def sorted_names(self) -> list[str]:
        """Return the partitions in topological order: each after those it reads."""
        waiting = {name: dict(p.dependencies) for name, p in self.partitions.items()}
        ready = [name for name, dependencies in waiting.items() if not dependencies]
        done: list[str] = []
        while ready:
            current = ready.pop()
            done.append(current)
            for dependent in self.partitions[current].dependents:
                waiting[dependent].pop(current)
                if not waiting[dependent]:
                    ready.append(dependent)
        if len(done) != len(self.partitions):
            raise RuntimeError("cycle exists between partitions!")
        return done

    # -- the submodules --

    def fill(self, names: list[str], qualname_map: dict[str, str] | None) -> None:
        for name in names:
            self._add_inputs(self.partitions[name])
        for node, partition in self.home.items():
            target = node.target
            if node.op == "call_module":
                target = node.target.replace(".", "_")
                partition.targets[target] = _get_attr(self.module, node.target)
                if qualname_map is not None:
                    qualname_map[f"{partition.submod_name}.{target}"] = node.target
            args = map_arg(node.args, partition.environment.__getitem__)
            kwargs = map_arg(node.kwargs, partition.environment.__getitem__)
            kept = node.name if self.options["keep_original_node_name"] else None
            copied = partition.graph.create_node(node.op, target, args, kwargs, kept, node.type)
            copied.meta = dict(node.meta)
            partition.environment[node] = copied

    def _is_module(self, node: Node) -> bool:
        return node.op == "get_attr" and isinstance(_get_attr(self.module, node.target), Module)

    def _add_inputs(self, partition: Partition) -> None:
        kept: dict[str, None] = {}
        for name in sorted(partition.inputs, key=lambda n: self._is_module(self.originals[n])):
            original = self.originals[name]
            if self._is_module(original):
                node = partition.graph.get_attr(original.target)
                partition.targets[original.target] = _get_attr(self.module, original.target)
            else:
                parameter = name if self.options["keep_original_input_name"] else f"arg_{len(kept)}"
                node = partition.graph.placeholder(parameter, type_expr=original.type)
                kept[name] = None
            node.meta = dict(original.meta)
            partition.environment[original] = node
        partition.inputs = kept

    # -- the main graph --

    def take_over(self, node: Node) -> None:
        """Copy an input or attribute node of the original graph to the main graph."""
        if node.op == "placeholder":
            default = node.args[0] if node.args else inspect.Signature.empty
            name = node.name if self.options["keep_original_node_name"] else node.target
            copied = self.main.placeholder(name, type_expr=node.type, default_value=default)
        elif node.op == "get_attr":
            copied = self.main.get_attr(node.target)
            self.attributes[node.target] = _get_attr(self.module, node.target)
        else:
            return
        copied.meta = dict(node.meta)
        self.values[node.name] = copied

    def call(self, partition: Partition) -> None:
        results = tuple(partition.environment[self.originals[name]] for name in partition.outputs)
        single = len(results) == 1 and not self.options["tuple_return"]
        partition.graph.output(results[0] if single else results)
        self.attributes[partition.submod_name] = GraphModule(partition.targets, partition.graph)
        args = tuple(self.values[name] for name in partition.inputs)
        node = self.main.call_module(partition.submod_name, args)
        if single:
            self.values[next(iter(partition.outputs))] = node
        else:
            for i, name in enumerate(partition.outputs):
                self.values[name] = Proxy(node)[i].node
                self.values[name].meta = dict(self.originals[name].meta)
        if single:
            self.values[next(iter(partition.outputs))].meta = dict(self.originals[next(iter(partition.outputs))].meta)


def split_module(
    m: GraphModule,
    root_m: Module | None,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """Split a module into submodules `submod_0`, `submod_1`, ... by the partition that `split_callback` returns for each node.
    `qualname_map` gets the original paths of modules."""
    options = {
        "keep_original_node_name": keep_original_node_name,
        "keep_original_input_name": keep_original_input_name,
        "tuple_return": tuple_return,
    }
    split = _Split(m, options)
    split.assign(split_callback, partition_affix)
    split.find_crossings()
    names = split.sorted_names()
    split.fill(names, qualname_map)
    order = list(split.partitions) if keep_original_order else names
    _build_main(split, order, bool(keep_original_order))
    return GraphModule(split.attributes, split.main)


def _build_main(split: _Split, order: list[str], lazily: bool) -> None:
    nodes = list(split.module.graph.nodes)
    for node in nodes:
        if not lazily or node.op == "placeholder":
            split.take_over(node)
    for name in order:
        partition = split.partitions[name]
        if lazily:  # attributes come just before the call that reads them
            for needed in partition.inputs:
                if needed not in split.values:
                    split.take_over(split.originals[needed])
        split.call(partition)
    for node in nodes:
        if node.op == "output":
            for read in node.all_input_nodes:
                if read.name not in split.values:
                    split.take_over(read)
            result = split.main.output(map_arg(node.args[0], lambda n: split.values[n.name]), type_expr=node.type)
            result.meta = dict(node.meta)
