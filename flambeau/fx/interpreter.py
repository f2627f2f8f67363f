"""Execution of a graph node by node, and transformation of a graph into a new one in the same way."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

from ..nn import Module
from . import traceback as fx_traceback
from ._symbolic_trace import Tracer
from .graph import Graph
from .graph_module import GraphModule
from .node import Node, map_aggregate, map_arg
from .proxy import Proxy

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Run a graph node by node. Override `run_node`, or `call_function` and the other methods named after kinds of nodes, to change what
    runs."""

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = graph if graph is not None else module.graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        if garbage_collect_values:
            self.user_to_last_uses = self._last_uses()

    def _last_uses(self) -> dict[Node, list[Node]]:
        """Return for each node the nodes whose value is not needed after it."""
        seen: set[Node] = set()
        found: dict[Node, list[Node]] = {}
        for user in reversed(self.graph.nodes):
            for node in user._input_nodes:
                if node not in seen:
                    seen.add(node)
                    found.setdefault(user, []).append(node)
        return found

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """Return the graph's result for these arguments. `initial_env` has values of nodes that need not be computed."""
        self.env = initial_env if initial_env is not None else {}
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter: Iterator[Any] = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self._run_with_place(node)
            if self.garbage_collect_values:
                for unused in self.user_to_last_uses.get(node, []):
                    self.env.pop(unused, None)
            if node.op == "output":
                value = self.env[node]
                return self.graph.process_outputs(value) if enable_io_processing else value
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """Return the graph's result for a list of arguments, which is emptied: each is freed after its last use."""
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        if len(args_list) != len(placeholders):
            problem = "extra arguments" if len(args_list) > len(placeholders) else "missing arguments"
            raise RuntimeError(
                f"Interpreter.boxed_run expected {len(placeholders)} arguments for placeholders but received"
                f" {len(args_list)} ({problem})"
            )
        env = dict(zip(placeholders, args_list))
        args_list.clear()
        return self.run(initial_env=env)

    def _run_with_place(self, node: Node) -> Any:
        try:
            return self.run_node(node)
        except Exception as problem:
            if self.extra_traceback:
                message = f"While executing {node.format_node()}"
                text = f"{problem.args[0]}\n\n{message}" if problem.args else str(message)
                text += f"\nOriginal traceback:\n{node.stack_trace}"
                if isinstance(self.module, GraphModule) and self.module.graph is not None:
                    text += "\nUse tlparse to see full graph. (https://github.com/pytorch/tlparse?tab=readme-ov-file#tlparse-parse-structured-pt2-logs)"
                problem.args = (text, *problem.args[1:])
                if isinstance(problem, KeyError):
                    raise RuntimeError(*problem.args) from problem
            raise

    @contextlib.contextmanager
    def _set_current_node(self, node: Node) -> Iterator[None]:
        with fx_traceback.set_current_meta(node, f"Interpreter_{type(self).__name__}"):
            yield

    def run_node(self, n: Node) -> Any:
        """Return the value of one node; the values of its arguments are in `env`."""
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the next argument of the graph."""
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the value at a path of the module."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function."""
        if isinstance(target, str):
            raise AssertionError(f"Expected callable target, got str: {target}")
        return target(*args, **kwargs)

    def call_method(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of the first argument."""
        owner, *rest = args
        return getattr(owner, target)(*rest, **kwargs)

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a submodule."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the value that the graph returns."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """Return the value at a path of the module."""
        found: Any = self.module
        parts = target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(found, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[: i + 1])}")
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[Any, Any]]:
        """Return the values of a node's arguments."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Return the arguments with nodes replaced by their values."""

        def value(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[node]

        return map_arg(args, value)


class Transformer(Interpreter):
    """An Interpreter that runs on proxies and so makes a new graph. Override `call_function` and similar methods, which take and return
    proxies. `transform()` returns the new module."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)

        class TransformerTracer(Tracer):
            def __init__(self, graph: Graph) -> None:
                super().__init__()
                self.graph = graph
                self.tensor_attrs: list = []

            def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
                return True

        self.tracer = TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        default = args[0] if args else inspect.Signature.empty
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        submodule = self.fetch_attr(target)
        return self.tracer.call_module(submodule, submodule.forward, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """Run over the graph and return a module of the new one."""
        with fx_traceback.preserve_node_meta():
            result = super().run(enable_io_processing=False)
        if result is not None:
            node = self.new_graph.output(map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a))
            old = next((n for n in reversed(self.graph.nodes) if n.op == "output"), None)
            if old is not None:
                node.meta.update({k: v for k, v in old.meta.items() if k not in node.meta})
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)
