"""An exported program with the modules of the original: each calls its children."""

from __future__ import annotations

import abc
import operator
from typing import Any

from ..fx.graph import Graph
from ..fx.graph_module import GraphModule
from ..fx.node import Node
from ..nn import Module, Parameter
from ..utils import _pytree as pytree
from .exported_program import ExportedProgram
from .graph_signature import InputKind

__all__ = ["FlatArgsAdapter", "InterpreterModule", "UnflattenedModule", "unflatten"]


class FlatArgsAdapter(abc.ABC):
    """Changes arguments that are nested differently than those of the example."""

    @abc.abstractmethod
    def adapt(
        self, target_spec: Any, input_spec: Any, input_args: list[Any], metadata: Any = None, obj: Any = None
    ) -> list:
        """The leaves in the order of `target_spec`."""


class InterpreterModule(Module):
    """A module that runs a graph; its inputs are what it reads from outside."""

    def __init__(self, graph: Graph, ty: str | None = None) -> None:
        super().__init__()
        self.graph, self._ty = graph, ty
        self.arg_names: list[str] = []

    def finalize(self) -> None:
        self.graph.lint()
        self.arg_names = [n.target for n in self.graph.nodes if n.op == "placeholder"]
        self._compiled = GraphModule(self, self.graph)
        self._forward = type(self._compiled).forward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward(self, *args, **kwargs)

    def type_name(self) -> str | None:
        return self._ty

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_compiled":  # no child: it would hold everything twice
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)


def _path_of(node: Node) -> str:
    """The module whose forward made the call."""
    stack = node.meta.get("nn_module_stack")
    return next(reversed(stack.values()))[0] if stack else ""


class UnflattenedModule(Module):
    """The original's modules, each with the graph of its forward. Parameters have their paths."""

    def __init__(self, export_module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> None:
        super().__init__()
        self._program = export_module
        self.flat_args_adapter = flat_args_adapter
        self.graph_signature = export_module.graph_signature
        self.module_call_graph = export_module.module_call_graph
        spec = export_module.call_spec
        self._in_spec, self._out_spec = spec.in_spec, spec.out_spec
        self._paths = {
            s.arg.name: s.target for s in self.graph_signature.input_specs if s.kind is not InputKind.USER_INPUT
        }
        self._install_tensors()
        self._build()

    def _install_tensors(self) -> None:
        for spec in self.graph_signature.input_specs:
            if spec.kind is InputKind.USER_INPUT or spec.target is None:
                continue
            owner, _, name = spec.target.rpartition(".")
            holder = self._holder(owner)
            tensor = self._program._tensor(spec.target)
            if isinstance(tensor, Parameter):
                holder.register_parameter(name, tensor)
            else:
                holder.register_buffer(
                    name, tensor, persistent=spec.persistent is not False and spec.kind is InputKind.BUFFER
                )

    def _holder(self, path: str) -> Module:
        module: Module = self
        for part in path.split(".") if path else ():
            if part not in module._modules:
                module.add_module(part, InterpreterModule(Graph()))
            found = module._modules[part]
            assert found is not None
            module = found
        return module

    def _build(self) -> None:
        """Cut the graph where one module's calls end and another's begin; every piece becomes the graph of a call."""
        main = Graph()
        values: dict[Node, Any] = {}
        pieces = list(self._pieces())
        for node in self._program.graph.nodes:
            if node.op == "placeholder" and node.name not in self._paths:
                values[node] = main.placeholder(node.name)
                values[node].meta = dict(node.meta)
        for path, nodes in pieces:
            if path == "":
                for node in nodes:
                    self._branch(node, self)
                    self._fetch(main, node, values, "")
                    values[node] = main.node_copy(node, values.__getitem__)
            else:
                self._call(main, path, nodes, values)
        output = self._program.graph.output_node()
        self._fetch(main, output, values, "")
        main.output(pytree.tree_map(lambda v: values[v] if isinstance(v, Node) else v, list(output.args[0])))
        self.graph = main
        self._main = GraphModule(self, main)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_main":
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def _pieces(self) -> Any:
        current: tuple[str, list[Node]] | None = None
        for node in self._program.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            path = _path_of(node)
            if current is not None and current[0] == path:
                current[1].append(node)
                continue
            if current is not None:
                yield current
            current = (path, [node])
        if current is not None:
            yield current

    def _fetch(self, graph: Graph, node: Node, values: dict[Node, Any], prefix: str) -> None:
        """Parameters that a node reads, as attributes of the module."""
        for read in node.all_input_nodes:
            if read not in values and read.name in self._paths:
                values[read] = graph.get_attr(self._paths[read.name] or "")

    def _branch(self, node: Node, owner: Module) -> None:
        """The graph of a choice's branch, which a node fetches, belongs to the module that makes the choice."""
        if node.op == "get_attr":
            owner.add_module(str(node.target), getattr(self._program.graph_module, str(node.target)))

    def _call(self, main: Graph, path: str, nodes: list[Node], values: dict[Node, Any]) -> None:
        inside = set(nodes)
        holder = self._holder(path)
        number = sum(name.startswith("_call_") for name in holder._modules)
        piece = InterpreterModule(Graph(), next(reversed(nodes[0].meta["nn_module_stack"].values()))[1])
        local: dict[Node, Any] = {}
        given: list[Node] = []
        for node in nodes:
            for read in node.all_input_nodes:
                if read in local or read in inside:
                    continue
                self._fetch(main, node, values, "")
                local[read] = piece.graph.placeholder(read.name)
                given.append(read)
            self._branch(node, piece)
            local[node] = piece.graph.node_copy(node, local.__getitem__)
        results = [n for n in nodes if any(user not in inside for user in n.users)]
        piece.graph.output(tuple(local[n] for n in results))
        piece.finalize()
        holder.add_module(f"_call_{number}", piece)
        call = main.call_module(f"{path}._call_{number}", tuple(values[n] for n in given))
        for position, node in enumerate(results):
            values[node] = main.call_function(operator.getitem, (call, position))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            if self.flat_args_adapter is None:
                raise TypeError(
                    "There is no flat args adapter specified. Are you sure you are calling this with the right arguments?"
                )
            leaves = self.flat_args_adapter.adapt(self._in_spec, spec, leaves)
        users = [s for s in self.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
        assert len(users) == len(leaves)
        result = type(self._main).forward(self, *leaves)
        return pytree.tree_unflatten(list(result), self._out_spec)


def unflatten(module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> UnflattenedModule:
    """The program with the original's tree of modules, parameters under their old paths."""
    return UnflattenedModule(module, flat_args_adapter)
