"""A graph: a program as a list of nodes, which prints as Python.

>>> graph = Graph()
>>> x = graph.placeholder("x")
>>> y = graph.call_function(flambeau.relu, (x,))
>>> output = graph.output(y)
>>> print(graph)
graph():
    %x : [num_users=1] = placeholder[target=x]
    %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
    return relu
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import flambeau

from ..nn import Module, Parameter
from .codegen import (  # noqa: F401  known as names of this module
    CodeGen,
    PythonCode,
    TransformCodeFunc,
    _BoxedCodeGen,
    _custom_builtins,
    _format_target,
    _parse_stack_trace,
    _ParsedStackTrace,
    _register_custom_builtin,
    inplace_methods,
    magic_methods,
    reflectable_magic_methods,
)
from .immutable_collections import immutable_dict
from .names import Namespace, function_name, is_from_torch, is_magic, snake_case
from .node import LEGAL_OPS, Node, map_arg
from .pytree_codegen import _PyTreeCodeGen as _PyTreeCodeGen
from .pytree_codegen import _PyTreeInfo as _PyTreeInfo

__all__ = ["CodeGen", "Graph", "PythonCode"]

_Namespace, _is_from_torch, _snake_case, _is_magic = Namespace, is_from_torch, snake_case, is_magic
_legal_ops = dict.fromkeys(op for op in LEGAL_OPS if op != "root")


class _InsertPoint:
    """Context manager: insert new nodes at another place, restored on exit."""

    def __init__(self, graph: Graph, new_insert: Callable[[Node], None]) -> None:
        self.graph = graph
        self.orig_insert, graph._insert = graph._insert, new_insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        self.graph._insert = self.orig_insert


class _node_list:  # noqa: N801
    """The nodes of a graph, in order; nodes may be inserted and removed during iteration."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        if direction not in ("_next", "_prev"):
            raise AssertionError(f"direction must be '_next' or '_prev', got {direction}")
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        return self._walk(self.direction)

    def __reversed__(self) -> Iterator[Node]:
        return self._walk("_prev" if self.direction == "_next" else "_next")

    def _walk(self, direction: str) -> Iterator[Node]:
        root = self.graph._root
        current = getattr(root, direction)
        while current is not root:
            if not current._erased:
                yield current
            current = getattr(current, direction)


class _Index:
    """Index of a graph's nodes by kind and, for functions, by the function called."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, Any], dict[Node, None]] = {}

    @staticmethod
    def _key(node: Node) -> tuple[str, Any]:
        return node.op, node.target if node.op == "call_function" else None

    def __contains__(self, node: Node) -> bool:
        return node in self.table.get(self._key(node), ())

    def insert(self, node: Node) -> None:
        self.table.setdefault(self._key(node), {})[node] = None

    def remove(self, node: Node) -> None:
        self.table[self._key(node)].pop(node)

    def find(self, op: str, target: Any) -> list[Node]:
        if op != "call_function":
            return [n for n in self.table.get((op, None), ()) if target is None or n.target == target]
        if target is not None:
            return list(self.table.get((op, target), ()))
        return [node for (kind, _), nodes in self.table.items() if kind == op for node in nodes]


class Graph:
    """A program as a list of nodes (see `Node`). Create them by `placeholder`, `call_function`, ...,
    `output`; make the graph a module by `GraphModule`."""

    def __init__(
        self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: dict[str, Any] | None = None
    ) -> None:
        self._numbered = True
        self._root = Node(self, "", "root", "", (), {})
        self._used_names: dict[str, int] = {}
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = Namespace()
        self._owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._codegen = CodeGen()
        self._co_fields: dict[str, Any] = {}
        self._index = _Index()

    @property
    def owning_module(self) -> Any:
        """The GraphModule that runs this graph, if any."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Any) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> _node_list:
        """All nodes, in the order they run."""
        return _node_list(self)

    def output_node(self) -> Node:
        """Return the last node, which is the output."""
        node = next(iter(reversed(self.nodes)))
        if node.op != "output":
            raise AssertionError(f"Expected output node, got op={node.op}")
        return node

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """Return the nodes of kind `op` that call `target`."""
        found = self._index.find(op, target)
        return sorted(found) if sort else found

    # -- order --

    def _renumber_inserted(self, node: Node) -> None:
        """Update the order numbers after a node was inserted: at the end it gets the next number, elsewhere all become invalid."""
        if node._next is self._root:
            node._order = node._prev._order + 1 if node._prev is not self._root else 0
        else:
            self._numbered = False

    def _number_nodes(self) -> None:
        if self._numbered:
            return
        for number, node in enumerate(self.nodes):
            node._order = number
        self._numbered = True

    # -- making nodes --

    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Create a node at the insertion point; its name is made unique."""
        if args and not isinstance(args, tuple):
            raise AssertionError(f"args must be a tuple, got {type(args)}")
        if kwargs and not isinstance(kwargs, dict):
            raise AssertionError(f"kwargs must be a dict, got {type(kwargs)}")
        candidate = name if name is not None else self._target_to_str(target)
        name = self._graph_namespace.create_name(candidate, None)
        node = Node(self, name, op, target, args or (), kwargs or immutable_dict(), type_expr)
        for hook in getattr(self.owning_module, "_create_node_hooks", None) or ():
            hook(node)
        self._graph_namespace.associate_name_with_obj(name, node)
        self._insert(node)
        self._index.insert(node)
        self._len += 1
        return node

    def _target_to_str(self, target: Any) -> str:
        """Return a name for a node that calls `target`."""
        if callable(target):
            name = function_name(target)
        else:
            if not isinstance(target, str):
                raise AssertionError(f"Expected target to be str, got {type(target)}")
            name = target[2:-2] if is_magic(target) else target
        return snake_case(name)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = inspect.Signature.empty) -> Node:
        """Add an input to the graph."""
        args = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Add a node that reads a parameter, buffer or submodule of the owning module, by its path."""
        if self.owning_module is not None and not _has_attribute(self.owning_module, qualified_name):
            warnings.warn(
                "Attempted to insert a get_attr Node with no "
                "underlying reference in the owning "
                "GraphModule! Call "
                "GraphModule.add_submodule to add the "
                "necessary submodule, "
                "GraphModule.add_parameter to add the "
                "necessary Parameter, or "
                "nn.Module.register_buffer to add the "
                "necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: tuple[Any, ...] | None = None, kwargs: dict[Any, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a call of a submodule of the owning module, by its path."""
        if self.owning_module is not None and self.owning_module.get_submodule(module_name) is None:
            warnings.warn(
                "Attempted to insert a call_module Node with "
                "no underlying reference in the owning "
                "GraphModule! Call "
                "GraphModule.add_submodule to add the "
                "necessary submodule",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: tuple[Any, ...] | None = None, kwargs: dict[Any, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[Any, Any] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """Add a call of a function to the graph."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """Add the last node, which returns `result`."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """Copy a node of another graph; `arg_transform` maps its nodes to nodes of this graph."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        copied = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copied.meta = copy.copy(node.meta)
        return copied

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copy all nodes of `g` except its output to the insertion point. `val_map` maps nodes of `g` to nodes that replace them, and gets
        entries for the copies. Returns the value that `g` would return."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                value = map_arg(node.args[0], lambda n: val_map[n])
                return (value, node) if return_output_node else value
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict | None = None) -> Graph:
        copied = Graph(tracer_cls=self._tracer_cls)
        values: Any = memo if memo else {}
        found = copied.graph_copy(self, values, return_output_node=True)
        copied._codegen = copy.deepcopy(self._codegen)
        copied._co_fields = dict(self._co_fields)
        if found is not None:
            value, old = found
            copied.output(value, type_expr=old.type).meta = copy.copy(old.meta)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_insert": self._root.prepend}

    # -- changing it --

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node whose value is not read."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph:"
                f" {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        for hook in getattr(self.owning_module, "_erase_node_hooks", None) or ():
            hook(to_erase)
        self._index.remove(to_erase)
        to_erase._remove_from_list()
        to_erase._erased = True
        self._len -= 1
        to_erase._update_args_kwargs(map_arg(to_erase._args, lambda n: None), map_arg(to_erase._kwargs, lambda n: None))

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Insert new nodes before `n` (by default at the beginning), from now on or inside a `with` block."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """Insert new nodes after `n` (by default at the end), from now on or inside a `with` block."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return _InsertPoint(self, n.append)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove nodes without users, unless they have side effects. Returns whether any was removed."""
        self.lint()
        changed = False
        for node in reversed(self.nodes):
            impure = is_impure_node(node) if is_impure_node is not None else node.is_impure()
            if not impure and not node.users:
                self.erase_node(node)
                changed = True
        if self.owning_module is not None:
            named = {node.target for node in self.find_nodes(op="get_attr")}
            for name, child in self.owning_module.named_children():
                if name in named and isinstance(getattr(child, "graph", None), Graph):
                    changed |= child.graph.eliminate_dead_code()
                    child.recompile()
        return changed

    # -- code --

    def process_inputs(self, *args: Any) -> Any:
        """Return the placeholders' values for the arguments of the generated function."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """Return the generated function's result for the output node's value."""
        return self._codegen.process_outputs(out)

    def set_codegen(self, codegen: CodeGen) -> None:
        """Set the CodeGen that generates the graph's code."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[TransformCodeFunc | None], TransformCodeFunc]) -> Any:
        """Register a function that transforms the lines of generated code; `make_transformer` gets the previous one. As a context manager,
        only inside `with`."""
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)

        @contextlib.contextmanager
        def for_a_while() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = before

        return for_a_while()

    def python_code(self, root_module: str, **options: Any) -> PythonCode:
        """Return the graph as the source of a function, in which the module is called `root_module`. Options: verbose, include_stride,
        include_device, colored, expanded_def, record_func, additional_meta."""
        namespace = Namespace()
        kept = {node: node._repr_fn for node in self.nodes}
        try:
            for node in self.nodes:
                node._repr_fn = lambda n: namespace.create_name(n.name, n)
            return self._codegen._gen_python_code(self.nodes, root_module, namespace, **options)
        finally:
            for node, shown in kept.items():
                node._repr_fn = shown

    def __str__(self) -> str:
        parameters: list[str] = []
        lines = [node.format_node(parameters) for node in self.nodes]
        return "\n    ".join([f"graph({', '.join(parameters)}):", *(line for line in lines if line)])

    def print_tabular(self) -> None:
        """Print the nodes as a table; needs the package `tabulate`."""
        try:
            from tabulate import tabulate  # noqa: PLC0415  an optional package
        except ImportError:
            print(
                "`print_tabular` relies on the library `tabulate`, "
                "which could not be found on this machine. Run `pip "
                "install tabulate` to install the library."
            )
            raise
        rows = [[n.op, n.name, n.target, n.args, n.kwargs] for n in self.nodes]
        print(tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"]))

    # -- checks --

    def lint(self) -> None:
        """Raise an error unless the graph is well-formed: nodes read only earlier nodes of this graph, names are unique, and targets
        exist."""
        names: set[str] = set()
        values: set[Node] = set()
        for node in self.nodes:
            if node.op not in _legal_ops:
                raise RuntimeError(f"Node {node} had unknown opcode {node.op}!")
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            if node not in self._index:
                raise RuntimeError(f"Node '{node}' is not added to the side table")
            for arg in node._input_nodes:
                self._check_argument(arg, node, values)
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            values.add(node)
            names.add(node.name)
        if self.owning_module:
            for node in self.nodes:
                self._check_target(node)

    def _check_argument(self, arg: Node, node: Node, values: set[Node]) -> None:
        if arg.graph is not self:
            raise RuntimeError(
                f"Argument '{arg}' of Node '{node}' does not belong to this Graph, but was used as an argument! If you are"
                " copying nodes from another graph, make sure to use ``arg_transform`` on node_copy() to remap values"
                f"\n{self}"
            )
        if arg not in values:
            raise RuntimeError(
                f"Argument '{arg}' of Node '{node}' was used before it has been defined! Please check that Nodes in the"
                f" graph are topologically ordered\n{self}"
            )

    def _check_target(self, node: Node) -> None:
        fits = callable(node.target) if node.op == "call_function" else isinstance(node.target, str)
        if not fits:
            wanted = "a Callable" if node.op == "call_function" else "a str"
            kind = flambeau.typename(node.target)
            raise ValueError(f"Node {node} target {node.target} has type {kind} but {wanted} is expected")
        if node.op not in ("get_attr", "call_module"):
            return
        owner = self.owning_module
        atoms = node.target.split(".")
        for i, atom in enumerate(atoms):
            found, path = getattr(owner, atom, None), ".".join(atoms[:i])
            if found is None:
                raise RuntimeError(
                    f"Node {node} target {node.target} references nonexistent attribute {atom} of {path}"
                )
            if node.op == "call_module" and not isinstance(found, Module):
                raise RuntimeError(f"Node {node} target {node.target} {atom} of {path} does not reference an nn.Module")
            owner = found


def _has_attribute(module: Module, path: str) -> bool:
    """Return whether the path leads to a submodule, a parameter or a buffer of the module."""
    owner_path, _, name = path.rpartition(".")
    try:
        owner = module.get_submodule(owner_path)
    except AttributeError:
        warnings.warn(f"Failed to fetch module {owner_path}!", stacklevel=3)
        return False
    found = getattr(owner, name, None)
    return isinstance(found, (Module, Parameter)) or name in owner._buffers
