"""Unflattening: an exported program with the modules of the original, each with the graph of its forward, calling its children."""

from __future__ import annotations

import abc
import functools
import operator
from typing import Any

from ..fx import _pytree as fx_pytree
from ..fx.graph import Graph
from ..fx.graph_module import GraphModule
from ..fx.node import Node
from ..library.aten import aten
from ..nn import Module, Parameter
from ..utils import _pytree as pytree
from .exported_program import ExportedProgram, ModuleCallSignature
from .graph_signature import ConstantArgument, InputKind, OutputKind

__all__ = ["FlatArgsAdapter", "InterpreterModule", "InterpreterModuleDispatcher", "UnflattenedModule", "unflatten"]


class FlatArgsAdapter(abc.ABC):
    """Interface that adapts arguments with another tree structure than the example's."""

    @abc.abstractmethod
    def adapt(
        self, target_spec: Any, input_spec: Any, input_args: list[Any], metadata: Any = None, obj: Any = None
    ) -> list[Any]:
        """Return the leaves in the order of `target_spec`."""


class InterpreterModule(Module):
    """A module that runs a graph. Its arguments are the values that the graph reads from outside; with a signature, they and the result are
    nested as those of the original module."""

    def __init__(self, graph: Graph, ty: str | None = None, signature: ModuleCallSignature | None = None) -> None:
        super().__init__()
        self.graph, self._ty, self._signature = graph, ty, signature
        self.arg_names: list[str] = []

    def finalize(self) -> None:
        """Prepare the complete graph to run."""
        self.graph.lint()
        self.arg_names = [n.target for n in self.graph.nodes if n.op == "placeholder"]
        # No child: it would hold everything twice.
        self.__dict__["_compiled"] = GraphModule(self, self.graph, "InterpreterModule")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        run = type(self._compiled).forward
        if self._signature is None:
            return run(self, *args, **kwargs)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._signature.in_spec:
            raise TypeError(f"Input treespec does not match with exported module's: \n{spec}\nExpected: {self._signature.in_spec}")  # fmt: skip
        return pytree.tree_unflatten(list(run(self, *leaves)), self._signature.out_spec)

    def type_name(self) -> str | None:
        """Return the class name of the original module."""
        return self._ty

    def print_readable(self, print_output: bool = True, include_stride: bool = False, include_device: bool = False, colored: bool = False) -> str:  # fmt: skip
        """Print the graph as Python code, and return it."""
        return self._compiled.print_readable(print_output, include_stride, include_device, colored)


class InterpreterModuleDispatcher(Module):
    """A module that the program calls several times in different ways: its graphs in the order of the calls."""

    def __init__(self, calls: list[InterpreterModule]) -> None:
        super().__init__()
        self._modules.update(calls[0]._modules)
        self._parameters.update(calls[0]._parameters)
        self._buffers.update(calls[0]._buffers)
        self.__dict__["_calls"], self._next = calls, 0

    def call_modules(self) -> list[InterpreterModule]:
        """Return the graph of each module call."""
        return self._calls

    def type_name(self) -> str | None:
        return self._calls[0].type_name()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        call = self._calls[self._next]
        self._next = (self._next + 1) % len(self._calls)
        return call(*args, **kwargs)


class _Call:
    """Call of a module while the graphs are built. `key` is its path, with @N for the call after the Nth."""

    def __init__(self, chain: tuple[str, ...], path: str, module: Any, parent: _Call | None) -> None:
        self.chain, self.path, self.module, self.parent = chain, path, module, parent
        self.graph: Graph = module.graph
        self.values: dict[Node, Any] = {}
        self.given: list[Node] = []
        self.specs = 0

    @property
    def key(self) -> str:
        return self.chain[-1] if self.chain else ""


def _chain(node: Node) -> tuple[str, ...]:
    """Return the calls of modules, from the outermost on, in which a node was made."""
    return tuple(key.removeprefix("L__self__") for key in node.meta.get("nn_module_stack") or () if key != "L__self__")


class UnflattenedModule(Module):
    """The original's modules, each with the graph of its forward. Parameters have their paths."""

    def __init__(self, export_module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> None:
        super().__init__()
        self.__dict__["_program"] = export_module
        self.flat_args_adapter = flat_args_adapter
        self.graph_signature = export_module.graph_signature
        self.module_call_graph = export_module.module_call_graph
        spec = export_module.call_spec
        self._in_spec, self._out_spec = spec.in_spec, spec.out_spec
        specs = self.graph_signature.input_specs
        self._paths = {s.arg.name: s.target or "" for s in specs if s.kind is not InputKind.USER_INPUT}
        self.graph = Graph()
        self._install_tensors()
        _Builder(self, export_module).build()
        self._order_children(self, "", {e.fqn: i for i, e in enumerate(self.module_call_graph)})
        self.__dict__["_main"] = GraphModule(self, self.graph, "UnflattenedModule")

    def _order_children(self, module: Module, path: str, places: dict[str, int]) -> None:
        """Sort children in the order of the original."""
        prefix = f"{path}." if path else ""
        module._modules = dict(sorted(module._modules.items(), key=lambda m: places.get(prefix + m[0], len(places))))
        for name, child in module._modules.items():
            if isinstance(child, (InterpreterModule, InterpreterModuleDispatcher)):
                self._order_children(child, prefix + name, places)

    def _install_tensors(self) -> None:
        for spec in self.graph_signature.input_specs:
            if spec.kind is InputKind.USER_INPUT or spec.target is None:
                continue
            owner, _, name = spec.target.rpartition(".")
            holder, tensor = self._module_at(owner), self._program._tensor(spec.target)
            if isinstance(tensor, Parameter):
                holder.register_parameter(name, tensor)
            else:
                persistent = spec.persistent is not False and spec.kind is InputKind.BUFFER
                holder.register_buffer(name, tensor, persistent=persistent)

    def _module_at(self, path: str) -> Module:
        """Return the module at a path, creating it if needed."""
        module: Module = self
        for part in path.split(".") if path else ():
            if part not in module._modules:
                module.add_module(part, InterpreterModule(Graph()))
            module = module._modules[part]  # type: ignore[assignment]
        return module

    def print_readable(self, print_output: bool = True, include_stride: bool = False, include_device: bool = False, colored: bool = False) -> str:  # fmt: skip
        """Print the outermost graph as Python code, and return it."""
        return self._main.print_readable(print_output, include_stride, include_device, colored)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            if self.flat_args_adapter is None:
                raise TypeError(
                    "There is no flat args adapter specified. Are you sure you are calling this with the right arguments?"
                )
            leaves = self.flat_args_adapter.adapt(self._in_spec, spec, leaves)
        return pytree.tree_unflatten(list(type(self._main).forward(self, *leaves)), self._out_spec)


class _Builder:
    """Distributes the nodes of a program's graph to the calls of modules in which they were made."""

    def __init__(self, root: UnflattenedModule, program: ExportedProgram) -> None:
        self.root, self.program = root, program
        self.nodes = {n.name: n for n in program.graph.nodes}
        self.signatures = {e.fqn: e.signature for e in program.module_call_graph if e.fqn and e.signature is not None}
        self.calls = [_Call((), "", root, None)]
        self.done: dict[str, list[InterpreterModule]] = {}  # the calls of each path whose signature is kept

    def build(self) -> None:
        output = self.program.graph.output_node()
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                if node.name not in self.root._paths:
                    made = self.calls[0].graph.placeholder(node.name)
                    made.meta = dict(node.meta)
                    self.calls[0].values[node] = made
            elif node is not output:
                self._move_to(node)
                call = self.calls[-1]
                self._branch(node, call)
                call.values[node] = call.graph.node_copy(node, functools.partial(self.value, call))
        while len(self.calls) > 1:
            self._finish()
        self._outputs(output)
        for path, calls in self.done.items():
            if len(calls) > 1:
                owner, _, name = path.rpartition(".")
                self.root._module_at(owner)._modules[name] = InterpreterModuleDispatcher(calls)

    def _outputs(self, output: Node) -> None:
        """Add the program's outputs to the outermost graph, and write changed buffers back."""
        main = self.calls[0]
        results = []
        for spec, value in zip(self.program.graph_signature.output_specs, output.args[0]):
            found = self.value(main, value) if isinstance(value, Node) else value
            if spec.kind is OutputKind.USER_OUTPUT:
                results.append(found)
            elif spec.kind is OutputKind.BUFFER_MUTATION:
                main.graph.call_function(aten.copy_.default, (main.graph.get_attr(spec.target or ""), found))
        main.graph.output(tuple(results))

    # -- where a node belongs --

    def _move_to(self, node: Node) -> None:
        """End and begin calls until the innermost one is that of the node."""
        chain = _chain(node)
        while len(self.calls) - 1 > len(chain) or any(c.key != k for c, k in zip(self.calls[1:], chain)):
            self._finish()
        for depth in range(len(self.calls) - 1, len(chain)):
            self._begin(chain[: depth + 1], node)

    def _begin(self, chain: tuple[str, ...], node: Node) -> None:
        key = chain[-1]
        path, kind = next(v for k, v in node.meta["nn_module_stack"].items() if k.removeprefix("L__self__") == key)
        signature = self.signatures.get(key)
        holder = self.root._module_at(path)
        again = bool(holder.graph.nodes)
        module = holder if not again else InterpreterModule(Graph())
        assert isinstance(module, InterpreterModule)
        if again:  # another call: the same parameters and children
            module._modules, module._parameters, module._buffers = holder._modules, holder._parameters, holder._buffers
        module._ty, module._signature = kind, signature
        call = _Call(chain, path, module, self.calls[-1])
        if signature is not None:
            for spec in signature.inputs:
                if not isinstance(spec, ConstantArgument):
                    call.values[self.nodes[spec.name]] = call.graph.placeholder(spec.name)
                else:
                    call.graph.placeholder(spec.name or "constant")
        self.calls.append(call)

    def value(self, call: _Call, node: Node) -> Any:
        """Return the node of a call's graph for a node of the program: its own, a parameter, or an argument."""
        if node in call.values:
            return call.values[node]
        path = self.root._paths.get(node.name)
        inside = f"{call.path}." if call.path else ""
        if path is not None and path.startswith(inside):
            made = call.graph.get_attr(path[len(inside) :])
        elif call.parent is not None and call.module._signature is not None:
            raise RuntimeError(f"the module {call.path} reads {node.name}, which is none of its arguments: its signature cannot be kept")  # fmt: skip
        else:
            with call.graph.inserting_before(next(iter(call.graph.nodes), call.graph._root)):
                made = call.graph.placeholder(node.name)
            call.given.insert(0, node)
        made.meta = dict(node.meta)
        call.values[node] = made
        return made

    def _branch(self, node: Node, call: _Call) -> None:
        """Move the graph of a conditional's branch, which a node reads, to the module that contains the conditional."""
        if node.op == "get_attr":
            call.module.add_module(str(node.target), getattr(self.program.graph_module, str(node.target)))

    # -- the end of a call --

    def _finish(self) -> None:
        call = self.calls.pop()
        parent, length = call.parent, len(call.chain)
        assert parent is not None
        made = [n for n in self.program.graph.nodes if n in call.values and _chain(n)[:length] == call.chain]
        results = [n for n in made if any(_chain(user)[:length] != call.chain for user in n.users)]
        if call.module._signature is not None:
            self._finish_with_signature(call, parent, results)
            return
        found = tuple(call.values[n] for n in results)
        call.graph.output(found[0] if len(found) == 1 else found)
        target = self._target(call, parent)
        called = parent.graph.call_module(target, tuple(self.value(parent, n) for n in call.given))
        if len(results) == 1:
            called.meta["val"] = results[0].meta.get("val")
            parent.values[results[0]] = called
            return
        for position, node in enumerate(results):
            item = parent.values[node] = parent.graph.call_function(operator.getitem, (called, position))
            item.meta["val"] = node.meta.get("val")

    def _target(self, call: _Call, parent: _Call) -> str:
        """Return the name under which the parent makes a call: the module's if the call is like the first one, else with @N."""
        call.module.finalize()
        holder = self.root._module_at(call.path)
        relative = call.path[len(parent.path) + 1 :] if parent.path else call.path
        if call.module is holder or _make_same_calls(call.graph, holder.graph):
            return relative
        owner, _, name = call.path.rpartition(".")
        siblings = self.root._module_at(owner)._modules
        number = next(n for n in range(1, len(siblings) + 2) if f"{name}@{n}" not in siblings)
        siblings[f"{name}@{number}"] = call.module
        return f"{relative}@{number}"

    def _finish_with_signature(self, call: _Call, parent: _Call, results: list[Node]) -> None:
        signature = call.module._signature
        named = [None if isinstance(s, ConstantArgument) else self.nodes[s.name] for s in signature.outputs]
        if any(n not in named for n in results):
            raise RuntimeError(f"a value of the module {call.path} is used outside, though it does not return it: its signature cannot be kept")  # fmt: skip
        outputs = [s.value if n is None else self.value(call, n) for s, n in zip(signature.outputs, named)]
        call.graph.output(tuple(outputs))
        call.module.finalize()
        self.done.setdefault(call.path, []).append(call.module)
        graph = parent.graph
        given = [s.value if isinstance(s, ConstantArgument) else self.value(parent, self.nodes[s.name]) for s in signature.inputs]  # fmt: skip
        nested = graph.call_function(pytree.tree_unflatten, (given, self._spec(parent, signature.in_spec)))
        args_spec, kwargs_spec = signature.in_spec.children()
        args, kwargs = (graph.call_function(operator.getitem, (nested, i)) for i in (0, 1))
        positional = tuple(graph.call_function(operator.getitem, (args, i)) for i in range(args_spec.num_children))
        by_name = {k: graph.call_function(operator.getitem, (kwargs, k)) for k in kwargs_spec.context}
        relative = call.path[len(parent.path) + 1 :] if parent.path else call.path
        called = graph.call_module(relative, positional, by_name)
        flat = graph.call_function(fx_pytree.tree_flatten_spec, (called, self._spec(parent, signature.out_spec)))
        for position, node in enumerate(named):
            item = graph.call_function(operator.getitem, (flat, position))
            if node is not None:
                item.meta["val"] = node.meta.get("val")
                parent.values[node] = item

    def _spec(self, call: _Call, spec: Any) -> Node:
        """Store a tree structure as an attribute of the module that uses it; return the node that reads it."""
        name = f"_spec_{call.specs}"
        call.specs += 1
        setattr(call.module, name, spec)
        return call.graph.get_attr(name)


def _make_same_calls(a: Graph, b: Graph) -> bool:
    """Return whether two graphs make the same calls."""
    left, right = list(a.nodes), list(b.nodes)
    places = [{n: i for i, n in enumerate(nodes)} for nodes in (left, right)]
    if len(left) != len(right):
        return False

    def told(node: Node, place: dict[Node, int]) -> Any:
        target = None if node.op in ("placeholder", "output") else node.target
        arguments = pytree.tree_map(lambda v: place[v] if isinstance(v, Node) else v, (node.args, dict(node.kwargs)))
        return node.op, target, arguments if node.op != "placeholder" else None

    return all(told(x, places[0]) == told(y, places[1]) for x, y in zip(left, right))


def unflatten(module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> UnflattenedModule:
    """Return the program with the original's tree of modules, parameters under their old paths."""
    return UnflattenedModule(module, flat_args_adapter)
